"""Both full softmax kernels against autograd in double precision.

Legend: B rows of a batch, D hidden size, N classes, P targets. Sizes lie around those of tiles (8 to 32), blocks (64
classes) and parts (16); rows have none to three targets. bfloat16 kernels are held against rounded operands, so that
what is left is the rounding of their probabilities (2^-9 of each). Stored logits are rounded by 2^-9 of their distance
to the highest. Under Adam with beta1 = 0 the first moment after the
first step is the gradient.
"""

from types import ModuleType

import numpy as np
import pytest
import torch

from runner.kernels import full_softmax, full_softmax_bf16
from runner.kernels.products import HAS_BF16
from runner.optimizers import AdamConfig
from runner.output.numba.row_table import RowTable

BF16 = pytest.param(
    full_softmax_bf16, 5e-3, id="bf16",
    marks=pytest.mark.skipif(not HAS_BF16, reason="needs AVX512_BF16"),
)  # fmt: skip
KERNELS = [pytest.param(full_softmax, 2e-5, id="float32"), BF16]
SHAPES = [(b, d, n) for b, d in ((1, 7), (33, 1), (33, 128), (200, 7)) for n in (1, 63, 64, 65, 700)]
SHAPES += [(200, 128, 700), (300, 20, 130)]  # 300 rows are more than are summed at a time


def near(ours: np.ndarray, theirs: torch.Tensor, tolerance: float, what: str) -> None:
    """Largest error relative to the largest element: terms may cancel, their rounding does not."""
    reference = theirs.detach().numpy()
    error = np.abs(ours - reference).max(initial=0)
    assert error <= tolerance * max(np.abs(reference).max(initial=0), 1e-12), f"{what}: {error:.2e}"


def room_for_logits(n: int, padded: int) -> tuple[np.ndarray, np.ndarray]:
    """``stored_NB`` and ``shift_SB``, full of what a step before may have left."""
    stored = np.full((n, padded), 0x7FC0, dtype=np.uint16)
    return stored, np.full((full_softmax.num_shifts(n), padded), np.nan, dtype=np.float32)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize(("batch", "dim", "n"), SHAPES)
@pytest.mark.parametrize(("kernels", "tolerance"), KERNELS)
def test_partition_gradients_and_adam(
    kernels: ModuleType, tolerance: float, batch: int, dim: int, n: int, stores: bool
) -> None:
    generator = np.random.default_rng(1000 * batch + n)
    weights = (2 * generator.standard_normal((n, dim)) / np.sqrt(dim)).astype(np.float32)
    hidden = generator.standard_normal((batch, dim)).astype(np.float32)
    bias = generator.standard_normal((n, 1)).astype(np.float32)
    sizes = generator.integers(0, min(n, 3) + 1, batch)
    sizes[-1] = min(n, 3)  # so that even one row has a target
    targets = [np.sort(generator.choice(n, size, replace=False)) for size in sizes]
    row_P, class_P = np.repeat(np.arange(batch), sizes), np.concatenate(targets)
    order = np.argsort(class_P, kind="stable")
    row_P, class_P = row_P[order].astype(np.int32), class_P[order].astype(np.int32)

    operands = [torch.from_numpy(x.copy()) for x in (weights, hidden)]
    if kernels is full_softmax_bf16:
        operands = [x.bfloat16() for x in operands]
    w, h, b = (x.double().requires_grad_() for x in (*operands, torch.from_numpy(bias.copy())))
    logits = h @ w.T + b[:, 0]
    partition = torch.logsumexp(logits, 1)
    has_target = torch.from_numpy(sizes > 0)
    loss = partition[has_target].sum()
    loss = loss - (logits[row_P, class_P] / torch.from_numpy(sizes[row_P])).sum()
    (loss / batch).backward()
    assert w.grad is not None
    assert b.grad is not None
    assert h.grad is not None

    config = AdamConfig(lr=0.01, beta1=0.0)
    table = RowTable(config, weights.copy(), bias=True)
    table.bias[:] = bias
    padded_BD, panels = full_softmax.padded(hidden)
    stored = room_for_logits(n, len(padded_BD)) if stores else (None, None)
    tolerance = max(tolerance, 5e-3) if stores else tolerance
    log_partition_B = kernels.log_partition(table.weights, table.bias, panels, None, *stored)
    off = 2**-8 if stores else 1e-5
    np.testing.assert_allclose(log_partition_B[:batch], partition.detach().numpy(), rtol=1e-5, atol=off)

    log_partition_B[batch:] = np.inf
    log_partition_B[:batch][sizes == 0] = np.inf  # no target: no gradient
    share_P = (1 / (batch * sizes[row_P])).astype(np.float32)
    start = generator.standard_normal((batch, dim)).astype(np.float32)  # gradients are added to what is there
    grad_hidden = start.copy()
    table.update_all(
        kernels.gradients_and_adam, 1, padded_BD, panels, log_partition_B, np.float32(1 / batch), class_P, row_P,
        share_P, grad_hidden, None, *stored,
    )  # fmt: skip
    near(table.first, w.grad, tolerance, "class vectors")
    near(table.bias_first, b.grad, tolerance, "biases")
    near(grad_hidden - start, h.grad, tolerance + 2e-6 * batch, "hidden states")  # start + gradient rounds, too
    assert (table.last_step == 1).all()

    # Adam itself, from the moments that the gradients left.
    for before, parameter, first, second in (
        (weights, table.weights, table.first, table.second),
        (bias, table.bias, table.bias_first, table.bias_second),
    ):
        np.testing.assert_allclose(second, (1 - config.beta2) * first.astype(np.float64) ** 2, rtol=1e-4, atol=1e-37)
        root = np.sqrt(second.astype(np.float64) / (1 - config.beta2)) + config.epsilon
        np.testing.assert_allclose(parameter, before - config.lr * first / root, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kernels", "tolerance"), KERNELS)
def test_stored_probabilities_are_those_of_a_softmax(kernels: ModuleType, tolerance: float) -> None:
    """They sum to 1, whatever was rounded: without targets a row's bias gradients are its probabilities.

    One class of 500 has nearly all of it: its probability must not exceed 1, or its target would be pushed away.
    """
    generator = np.random.default_rng(0)
    n, dim = 500, 24
    weights = generator.standard_normal((n, dim)).astype(np.float32)
    hidden = 0.9 * weights[[17]]
    table = RowTable(AdamConfig(beta1=0.0), weights, bias=True)
    padded_BD, panels = full_softmax.padded(hidden)
    stored = room_for_logits(n, len(padded_BD))
    log_partition_B = kernels.log_partition(table.weights, table.bias, panels, None, *stored)
    log_partition_B[1:] = np.inf
    nothing = np.zeros(0, dtype=np.int32)
    table.update_all(
        kernels.gradients_and_adam, 1, padded_BD, panels, log_partition_B, np.float32(1), nothing, nothing,
        nothing.astype(np.float32), np.zeros_like(hidden), None, *stored,
    )  # fmt: skip
    probabilities = table.bias_first[:, 0]
    assert probabilities.sum(dtype=np.float64) == pytest.approx(1, abs=2e-6)
    assert 0.9 < probabilities[17] < 1 + 1e-6
    if kernels is full_softmax:  # operands are exact, so only the storing rounds
        exact = torch.softmax(torch.from_numpy(hidden @ weights.T).double(), 1)[0].numpy()
        np.testing.assert_allclose(probabilities, exact, rtol=2**-9 * np.log(1 / exact.min()), atol=1e-9)


@pytest.mark.parametrize(("kernels", "tolerance"), KERNELS)
def test_large_logits_do_not_overflow(kernels: ModuleType, tolerance: float) -> None:
    """Maxima rise from block to block and from part to part, and lie far above what exp can take."""
    weights = np.linspace(-400, 400, 300, dtype=np.float32)[:, None]
    bias = np.zeros((300, 1), dtype=np.float32)
    hidden = np.array([[1], [-1], [8], [0]], dtype=np.float32)
    ours = kernels.log_partition(weights, bias, full_softmax.padded(hidden)[1])[:4]
    exact = torch.logsumexp(torch.from_numpy((hidden @ weights.T).astype(np.float64)), 1)
    np.testing.assert_allclose(ours, exact.numpy(), rtol=max(1e-6, tolerance))
