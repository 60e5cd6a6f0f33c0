"""RF-softmax Table 1: what its estimators are, and that its report is of what was measured."""

import numpy as np
import pytest

from runner.bench import kernel_error
from runner.bench.kernel_error import (
    errors,
    notes,
    one_size,
    pairs_of,
    published,
    quadratic,
    quadratic_as_used,
    random_fourier,
    random_maclaurin,
)  # fmt: skip
from runner.bench.settings import Kernels
from runner.data import LabelledRows, XmcDataset
from runner.report.pages.bench_tables import TABLES

DIM = 8


@pytest.fixture
def vectors() -> np.ndarray:
    out = np.abs(np.random.default_rng(0).standard_normal((30, DIM))).astype(np.float32)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("tau", [1.0, 4.0])
def test_random_maclaurin_is_unbiased(tau: float, vectors: np.ndarray) -> None:
    """Over 30 draws of 4,096 features the mean is within six standard errors: false alarm 40 x 2e-6."""
    pairs = pairs_of(len(vectors), 40)
    kernel = np.exp(tau * ((vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(axis=1) - 1))
    found = np.stack([random_maclaurin(vectors, pairs, tau, 4096, draw) for draw in range(30)])
    error = found.std(axis=0, ddof=1) / np.sqrt(30)
    assert (np.abs(found.mean(axis=0) - kernel) < 6 * error).all()


def test_random_fourier_is_the_samplers_map(vectors: np.ndarray) -> None:
    """Error of bounded features: (1 - k^2)^2 / 2 D, within a tenth over 40 draws."""
    pairs = pairs_of(len(vectors), 200)
    kernel = np.exp(4 * ((vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(axis=1) - 1))
    found = np.stack([random_fourier(vectors, pairs, 4.0, 256, "plain", draw) for draw in range(40)])
    expected = ((1 - kernel**2) ** 2).mean() / 512
    assert np.square(found - kernel).mean() == pytest.approx(expected, rel=0.1)


def test_quadratic_is_exact_for_quadratics_and_best_otherwise() -> None:
    cosine = np.linspace(-1, 1, 50)
    np.testing.assert_allclose(quadratic(cosine, 3 * cosine**2 + 0.5), 3 * cosine**2 + 0.5)
    np.testing.assert_allclose(quadratic_as_used(cosine, 7 * (100 * (2 * cosine) ** 2 + 1), 2.0)[0], 7 * 401)
    kernel = np.exp(4 * (cosine - 1))
    best = np.square(quadratic(cosine, kernel) - kernel).mean()
    for alpha, beta in ((0.1, 0.0), (1.0, 0.0), (0.3, 0.1)):
        assert best <= np.square(alpha * cosine**2 + beta - kernel).mean()
    assert best <= np.square(quadratic_as_used(cosine, kernel, 4.0) - kernel).mean()


def test_pairs_are_of_two_different_vectors() -> None:
    pairs = pairs_of(5, 1000)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert set(pairs.ravel()) == set(range(5))


def test_errors_fall_with_the_features(vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_error, "FEATURES", (1000, 100, 20))
    ticks: list[int] = []
    found = errors(vectors, num_pairs=300, draws=3, tick=lambda: ticks.append(1))
    mean = {(record["method"], record["D"], record["tau"]): np.mean(record["mse"]) for record in found}
    assert len(ticks) == sum(len(record["mse"]) for record in found)
    for kind in ("random fourier", "random fourier, orthogonal"):
        assert mean[kind, 1000, 4.0] < mean[kind, 100, 4.0] < mean[kind, 20, 4.0]
    assert mean["random maclaurin", 1000, 4.0] > mean["random fourier", 1000, 4.0]


def test_report_stands_beside_the_printed_numbers(vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(published()) == 5
    monkeypatch.setattr(kernel_error, "digits", lambda: vectors)
    monkeypatch.setattr(kernel_error, "NUM_PAIRS", 100)
    monkeypatch.setattr(kernel_error, "FEATURES", (300, 1000, 100))
    part = one_size(len(vectors), Kernels(images=30, draws=2))
    assert part["dim"] == DIM
    assert len(part["results"]) == 9
    frame = TABLES["kernels"][0].frame(part)
    assert [*frame.columns[:5]] == ["Kernel", "D", "tau 1", "tau 4", "tau 11.1"]
    shown = {(row[0], row[1]): row[-1] for row in frame.to_numpy().tolist()}
    assert shown["random fourier", "1000"] == "2.7e-04"
    assert shown["random maclaurin", "300"] == "", "300 features are not those printed"
    assert shown["quadratic, best", "8^2"] == "2.8e-03"
    fewer = one_size(20, Kernels(images=20, draws=2))
    assert fewer["images"] == 20
    assert fewer["results"][0]["mse"] != part["results"][0]["mse"]


def test_notes_say_which_images() -> None:
    assert "over 20,000 pairs" in notes(Kernels())[0]
    assert "Data: scikit-learn's 1,797 digits of 8 x 8" in notes(Kernels())[1]
    assert "Data: the first 20 of scikit-learn's 1,797 digits" in notes(Kernels(images=20))[1]
    assert "the first 20 of USPS's training digits of 16 x 16" in notes(Kernels(images=20, data="usps"))[1]


def test_the_images_are_of_unit_length() -> None:
    images = kernel_error.digits()
    assert images.shape == (kernel_error.NUM_IMAGES, 64) == (1797, 64)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, rtol=1e-6)


def test_usps_is_read_from_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of three pixels stand for the prepared card."""
    rows = {
        "indptr": [0, 2, 3],
        "indices": [0, 2, 1],
        "values": [3.0, -4.0, 0.5],
        "label_indptr": [0, 1, 2],
        "labels": [0, 1],
    }
    split = LabelledRows(**{name: np.array(values) for name, values in rows.items()})
    data = XmcDataset(
        name="usps", train=split, test=split, num_features=3, num_classes=2, propensity_a=0.55, propensity_b=1.5,
        checksum="", variant="",
    )  # fmt: skip
    monkeypatch.setattr("runner.data.CardConfig.build", lambda self: data)
    np.testing.assert_allclose(kernel_error.usps(), [[0.6, 0, -0.8], [0, 1, 0]], rtol=1e-6)
