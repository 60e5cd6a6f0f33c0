"""Measure how well feature maps approximate the softmax's kernel of directions: RF-softmax Table 1.

Legend: R images, H their dimension, P pairs of images, D features as the table counts them, F computed columns of
features (2 D for random Fourier features).

Images are l2-normalised as in the paper: its USPS digits if they are prepared and asked for, otherwise scikit-learn's
digits (1,797 images of 8 x 8), which need no download. Errors
are those of exp(tau (h . c - 1)), which is at most 1. The errors of exp(tau h . c) are exp(2 tau) times as large. The
paper does not print its tau.

@inproceedings{kar2012random, title={Random Feature Maps for Dot Product Kernels}, author={Kar, Purushottam and Karnick,
Harish}, booktitle={AISTATS}, year={2012}}
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from runner import rng
from runner.bench.settings import NUM_IMAGES, Kernels
from runner.report.numbers.cells import published_numbers
from runner.report.spec.tables import Published
from runner.structures.features import ONE, RandomFourier

NUM_PAIRS = 20_000
FEATURES = (256**2, 1000, 100)
TAUS = (1.0, 4.0, 1 / 0.3**2)  # the last one is the inverse square temperature of the paper's other tables
SAMPLER_ALPHA = 100.0  # alpha of the quadratic kernel as used, 100 o^2 + 1
_BLOCK = 2048  # feature columns computed at a time

NOTES = (
    "Mean squared error of exp(tau (h . c - 1)) over {pairs:,} pairs of different images, mean ± standard deviation "
    "over {draws} draws of the features; of exp(tau h . c) it is exp(2 tau) times as large.",
    "{data} Random features are as many as printed, 256^2 among them; a quadratic kernel has the square of the "
    "dimension.",
    "Quadratic, best: alpha (h . c)^2 + beta by least squares on these very pairs; quadratic, as used: the best "
    "multiple of 100 (tau h . c)^2 + 1. Neither has a draw.",
    "Random Fourier: frequencies from N(0, tau I), features in bytes, as in sampler=rff. The paper prints "
    "N(0, I / tau), which is another kernel's.",
)


DATA = {
    "digits": "Data: {images} of 8 x 8 pixels, l2-normalised; the paper has USPS, 16 x 16, and prints no tau. So "
    "magnitudes differ, and the order of methods and the fall with D compare.",
    "usps": "Data: {images} of 16 x 16 pixels, l2-normalised, as in the paper, which prints no tau.",
}


def usps() -> np.ndarray:
    """Return the training images of the card usps, as many as scikit-learn has, of unit length, (1797, 256) float32.

    Raises DataError if the card is not prepared.
    """
    from runner.data import CardConfig, XmcDataset

    data = CardConfig(name="usps").build()
    assert isinstance(data, XmcDataset)
    rows = data.train
    images = np.zeros((rows.num_rows, data.num_features))
    images[np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr)), rows.indices] = rows.values
    return _of_unit_length(images[:NUM_IMAGES])


def digits() -> np.ndarray:
    """Return scikit-learn's digits as images of unit length, (1797, 64) float32."""
    from sklearn.datasets import load_digits

    return _of_unit_length(load_digits().data.astype(np.float64))


def _of_unit_length(images: np.ndarray) -> np.ndarray:
    return (images / np.linalg.norm(images, axis=1, keepdims=True)).astype(np.float32)


def pairs_of(num_vectors: int, num_pairs: int, seed: int = 0) -> np.ndarray:
    """Draw ``num_pairs`` pairs of different vectors and return their indices, (P, 2) int64."""
    generator = rng.generator(seed, rng.EVALUATE)
    first = generator.integers(0, num_vectors, num_pairs)
    return np.stack([first, (first + generator.integers(1, num_vectors, num_pairs)) % num_vectors], axis=1)


def random_fourier(
    vectors_RH: np.ndarray, pairs_P2: np.ndarray, tau: float, D: int, kind: Any, seed: int
) -> np.ndarray:
    """Estimate exp(tau (x . y - 1)) of each pair by D random Fourier features, (P,) float64.

    ``kind``: "plain" or "orthogonal" frequencies.
    """
    fourier = RandomFourier(dim=vectors_RH.shape[1], D=D, nu=tau, kind=kind, seed=seed)
    features_RF = fourier.features(vectors_RH, np.arange(len(vectors_RH), dtype=np.int32))
    return _products(pairs_P2, lambda begin, end: features_RF[:, begin:end], 2 * D) / (ONE * D)


def random_maclaurin(vectors_RH: np.ndarray, pairs_P2: np.ndarray, tau: float, D: int, seed: int) -> np.ndarray:
    """Estimate exp(tau (x . y - 1)) of each pair by D random Maclaurin features (Kar and Karnick), (P,) float64.

    Each feature is a product of k random projections, where k has probability 2^-(k + 1). Dividing the series'
    coefficient tau^k / k! by this probability makes the estimate unbiased.
    """
    generator = rng.generator(seed, rng.HASH, 3)
    degree_D = generator.geometric(0.5, D) - 1
    log_scale_D = [0.5 * (n * math.log(tau) - math.lgamma(n + 1) + (n + 1) * math.log(2) - tau) for n in degree_D]

    def features(begin: int, end: int) -> np.ndarray:
        out_RF = np.empty((len(vectors_RH), end - begin))
        for place, index in enumerate(range(begin, end)):
            signs = 2.0 * generator.integers(0, 2, size=(vectors_RH.shape[1], degree_D[index])) - 1
            out_RF[:, place] = math.exp(log_scale_D[index]) * (vectors_RH @ signs).prod(axis=1)
        return out_RF

    return _products(pairs_P2, features, D) / D


def _products(pairs_P2: np.ndarray, features: Callable[[int, int], np.ndarray], num_features: int) -> np.ndarray:
    """Return the inner product of each pair's features, (P,) float64.

    Multiplying all images with all others, a block of features at a time, is the fastest way.
    """
    total_P = np.zeros(len(pairs_P2))
    for begin in range(0, num_features, _BLOCK):
        block_RF = features(begin, min(begin + _BLOCK, num_features)).astype(np.float32)
        total_P += (block_RF @ block_RF.T)[pairs_P2[:, 0], pairs_P2[:, 1]]
    return total_P


def quadratic(cosine_P: np.ndarray, kernel_P: np.ndarray) -> np.ndarray:
    """Return alpha cos^2 + beta of each pair, (P,), with the alpha and beta of least squared error."""
    design = np.stack([cosine_P**2, np.ones_like(cosine_P)], axis=1)
    return design @ np.linalg.lstsq(design, kernel_P, rcond=None)[0]


def quadratic_as_used(cosine_P: np.ndarray, kernel_P: np.ndarray, tau: float) -> np.ndarray:
    """Return the best multiple of 100 o^2 + 1 for each pair, (P,), where o = tau cos."""
    shape = SAMPLER_ALPHA * (tau * cosine_P) ** 2 + 1
    return shape * (shape @ kernel_P) / (shape @ shape)


def errors(vectors_RH: np.ndarray, *, num_pairs: int, draws: int, tick: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return a record for each method, D and tau; its ``mse`` lists the mean squared error of every draw.

    ``vectors_RH``: float32 of unit length. ``tick`` is called after each draw.
    """
    pairs_P2 = pairs_of(len(vectors_RH), num_pairs)
    left, right = (vectors_RH[pairs_P2[:, side]].astype(np.float64) for side in (0, 1))
    cosine_P = np.einsum("ph,ph->p", left, right)
    out = []
    for method, D in methods():
        for tau in TAUS:
            kernel_P = np.exp(tau * (cosine_P - 1))
            squares = []
            for draw in range(draws if method.startswith("random") else 1):
                if method == "quadratic, best":
                    estimate_P = quadratic(cosine_P, kernel_P)
                elif method == "quadratic, as used":
                    estimate_P = quadratic_as_used(cosine_P, kernel_P, tau)
                elif method == "random maclaurin":
                    estimate_P = random_maclaurin(vectors_RH, pairs_P2, tau, D, draw)
                else:
                    kind = "orthogonal" if method.endswith("orthogonal") else "plain"
                    estimate_P = random_fourier(vectors_RH, pairs_P2, tau, D, kind, draw)
                squares.append(float(np.square(estimate_P - kernel_P).mean()))
                tick()
            out.append({"method": method, "D": D, "tau": tau, "mse": squares})
    return out


def methods() -> list[tuple[str, int]]:
    """Return the table's rows in printed order: method and number of features (0: the square of the dimension)."""
    fourier = [(f"random fourier{kind}", D) for kind in ("", ", orthogonal") for D in FEATURES]
    return [("quadratic, best", 0), ("quadratic, as used", 0), *fourier, ("random maclaurin", FEATURES[0])]


def published() -> dict[tuple[str, str], float]:
    """Return the printed mean squared errors on USPS, by method and D as printed."""
    frame = published_numbers(Published(csv="rf_softmax.csv", table="table1"))
    names = {"quadratic": "quadratic, best", "rff": "random fourier", "random_maclaurin": "random maclaurin"}
    out = {}
    for printed, value in frame[["method", "value"]].itertuples(index=False):
        method, _, D = str(printed).partition(" D=")
        out[names[method], D] = float(value)
    return out


def _printed(D: int) -> str:
    return "256^2" if D in (0, 256**2) else str(D)


def one_size(images: int, asked: Kernels) -> dict[str, Any]:
    """Measure on the first ``images`` digits and return the report's part: a row for each method and D.

    Time is nearly the square of ``images``. Each row has the errors of every draw by tau.
    """
    from tqdm import tqdm

    from runner.bench.measure import BAR

    vectors_RH = (usps() if asked.data == "usps" else digits())[:images]
    total = sum(len(TAUS) * (asked.draws if method.startswith("random") else 1) for method, _ in methods())
    with tqdm(total=total, unit="kernel", **BAR) as bar:
        records = errors(vectors_RH, num_pairs=NUM_PAIRS, draws=asked.draws, tick=bar.update)
    dim, printed = vectors_RH.shape[1], published()
    results: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        method, D = record["method"], record["D"]
        row = {"method": method, "D": D, "features": _printed(D) if D else f"{dim}^2", "mse": {}}
        row = results.setdefault((method, D), row | {"published": printed.get((method, _printed(D)))})
        row["mse"][f"{record['tau']:.3g}"] = record["mse"]
    return {"images": images, "dim": dim, "results": [*results.values()]}


def notes(asked: Kernels) -> list[str]:
    """Return the notes that the report's reader needs."""
    images = f"the first {asked.images:,} of USPS's training digits"
    if asked.data == "digits":
        images = f"scikit-learn's {NUM_IMAGES:,} digits"
        images = images if asked.images == NUM_IMAGES else f"the first {asked.images:,} of {images}"
    data = DATA[asked.data].format(images=images)
    return [note.format(pairs=NUM_PAIRS, draws=asked.draws, data=data) for note in NOTES]
