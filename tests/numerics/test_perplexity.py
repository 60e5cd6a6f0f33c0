"""Exact cross-entropy over all classes in blocks, and perplexity.

Legend: N classes, D hidden size, B rows.
"""

import math

import numpy as np
import pytest
import torch

from runner.metrics import perplexity
from runner.optimizers import AdamConfig
from runner.output.numba import layer as output_layer
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable


def layer_of(weights: np.ndarray, scale: float | None = None) -> NumbaLayer:
    return NumbaLayer(RowTable(AdamConfig(), weights, bias=True), scale)


@pytest.mark.parametrize("n", [2, 10_000, 33_278])
def test_a_uniform_model_has_perplexity_n(n: int) -> None:
    layer = layer_of(np.zeros((n, 8), dtype=np.float32))
    layer.table.biases()[:] = -3.7
    hidden = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    losses = layer.cross_entropy(hidden, np.arange(50) % n)
    assert perplexity(float(losses.mean())) == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("by_magnitude", [False, True])
@pytest.mark.parametrize("scale", [None, 9.0])
def test_blocks_give_torchs_cross_entropy(
    scale: float | None, by_magnitude: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_layer, "_BLOCK_ELEMENTS", 5000)  # several blocks, the last one short
    generator = np.random.default_rng(1)
    n, dim, rows = 1111, 16, 37
    layer = layer_of(generator.standard_normal((n, dim)).astype(np.float32), scale)
    assert len(layer.blocks(rows)) > 3
    layer.table.biases()[:] = generator.standard_normal(n)
    hidden = 2 * generator.standard_normal((rows, dim)).astype(np.float32)
    targets = generator.integers(0, n, rows)
    w, h, b = (torch.from_numpy(x).double() for x in (layer.table.weights, hidden, layer.table.biases()))
    if scale is None:
        logits = h @ w.T + b
    else:
        logits = scale * torch.nn.functional.normalize(h) @ torch.nn.functional.normalize(w).T + b
    logits = logits.abs() if by_magnitude else logits
    exact = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets), reduction="none")
    ours = layer.cross_entropy(hidden, targets, by_magnitude=by_magnitude)
    np.testing.assert_allclose(ours, exact.numpy(), rtol=1e-5, atol=1e-5)


def test_large_logits_do_not_overflow() -> None:
    layer = layer_of(np.linspace(-900, 900, 600, dtype=np.float32)[:, None])
    losses = layer.cross_entropy(np.array([[1], [-1], [100]], dtype=np.float32), np.array([599, 599, 0]))
    np.testing.assert_allclose(losses, [math.log(1 / (1 - math.exp(-1800 / 599))), 1800, 180_000], atol=0.06)


def test_what_is_no_number_stays_none() -> None:
    layer = layer_of(np.full((5, 2), np.inf, dtype=np.float32))
    assert not np.isfinite(layer.cross_entropy(np.ones((3, 2), dtype=np.float32), np.zeros(3, dtype=np.int32))).any()


def test_perplexity_beyond_floats_is_a_word() -> None:
    assert perplexity(math.log(123.0)) == pytest.approx(123)
    assert perplexity(700.0) == pytest.approx(math.exp(700))
    assert perplexity(1e4) == "inf"
    assert perplexity(math.inf) == "inf"
