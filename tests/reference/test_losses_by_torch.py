"""Loss kernels against torch's autograd on ragged rows. Legend: B rows, P targets, N candidates."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.kernels.losses import (
    correct_per_row,
    correct_shared,
    logistic_loss,
    softmax_block,
    softmax_loss,
    streaming_log_sum_exp,
)

few = settings(max_examples=60, deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def softmax_reference(targets: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(torch.cat([targets, candidates]), 0) - targets.mean()


def logistic_reference(targets: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    softplus = torch.nn.functional.softplus
    return softplus(-targets).mean() + softplus(candidates).sum()


@few
@given(
    seed=seeds,
    shape=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=6),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
    masked=st.sampled_from([0.0, 0.3, 1.0]),
    kernel=st.sampled_from([(softmax_loss, softmax_reference), (logistic_loss, logistic_reference)]),
)
def test_loss_and_gradient(
    seed: int, shape: list[tuple[int, int]], spread: float, masked: float,
    kernel: tuple[Kernel, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]],
) -> None:  # fmt: skip
    compiled, reference = kernel
    generator = np.random.default_rng(seed)
    rows = len(shape)
    target_indptr = np.concatenate([[0], np.cumsum([t for t, _ in shape])]).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum([c for _, c in shape])]).astype(np.int64)
    targets = (spread * generator.standard_normal(target_indptr[-1])).astype(np.float32)
    candidates = (spread * generator.standard_normal(indptr[-1])).astype(np.float32)
    hit = generator.random(len(candidates)) < masked
    candidates[hit] = -np.inf
    t = torch.from_numpy(targets.copy()).double().requires_grad_()
    c = torch.from_numpy(np.where(hit, 0, candidates)).double().requires_grad_()
    kept = torch.from_numpy(~hit)
    losses = []
    for row in range(rows):
        mine = slice(target_indptr[row], target_indptr[row + 1])
        own = slice(indptr[row], indptr[row + 1])
        # A row without targets has no loss and no gradient.
        losses.append(reference(t[mine], c[own][kept[own]]) if mine.stop > mine.start else t.new_zeros(()))
    stacked = torch.stack(losses)
    grads = torch.autograd.grad(stacked.mean(), [t, c], allow_unused=True, materialize_grads=True) if (
        stacked.requires_grad
    ) else [torch.zeros_like(t), torch.zeros_like(c)]  # fmt: skip
    ours = compiled(target_indptr, targets, indptr, candidates)
    np.testing.assert_allclose(ours, stacked.detach().numpy(), rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(targets, grads[0].numpy(), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(candidates, grads[1].numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kernel", [softmax_loss, logistic_loss])
@pytest.mark.parametrize("size", [1e3, 1e30])
def test_large_logits_do_not_overflow(kernel: Kernel, size: float) -> None:
    one_row = np.array([0, 1], dtype=np.int64)
    targets = np.array([-size], dtype=np.float32)
    candidates = np.array([size, -size, -np.inf], dtype=np.float32)
    loss = kernel(one_row, targets, np.array([0, 3], dtype=np.int64), candidates)
    assert loss[0] == pytest.approx(2 * size, rel=1e-5)
    np.testing.assert_allclose(targets, [-1], atol=1e-6)
    np.testing.assert_allclose(candidates, [1, 0, 0], atol=1e-6)


@few
@given(seed=seeds, rows=st.integers(1, 5), widths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
       spread=st.sampled_from([0.0, 3.0, 60.0]))  # fmt: skip
def test_streaming_log_sum_exp(seed: int, rows: int, widths: list[int], spread: float) -> None:
    generator = np.random.default_rng(seed)
    blocks = [(spread * generator.standard_normal((rows, w)) - 50).astype(np.float32) for w in widths]
    top, total = np.full(rows, -np.inf, dtype=np.float32), np.zeros(rows, dtype=np.float32)
    for block in blocks:
        streaming_log_sum_exp(block, top, total)
    expected = torch.logsumexp(torch.from_numpy(np.concatenate(blocks, axis=1)).double(), 1).numpy()
    ours = top + np.log(total)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-5)
    for block in blocks:
        truth = np.exp(block.astype(np.float64) - expected[:, None]) * 0.25
        softmax_block(block, ours, np.float32(0.25))
        np.testing.assert_allclose(block, truth, rtol=3e-5, atol=1e-9)


@few
@given(seed=seeds, rows=st.integers(1, 5), size=st.integers(0, 12), repeats=st.booleans())
def test_corrections_and_masks(seed: int, rows: int, size: int, repeats: bool) -> None:
    """Shared and per-row corrections agree with NumPy, and so with one another."""
    generator = np.random.default_rng(seed)
    ids = np.sort(generator.choice(15, size, replace=repeats)).astype(np.int32)
    log_count = generator.standard_normal(size).astype(np.float32)
    logits = generator.standard_normal((rows, size)).astype(np.float32)
    sizes = generator.integers(0, 4, rows)
    target_indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    targets = np.concatenate([np.sort(generator.choice(15, s, replace=False)) for s in sizes]).astype(
        np.int32
    )
    expected = logits - log_count
    for row in range(rows):
        expected[row, np.isin(ids, targets[target_indptr[row] : target_indptr[row + 1]])] = -np.inf
    shared, own = logits.copy(), logits.copy().reshape(-1)
    correct_shared(shared, log_count, ids, target_indptr, targets)
    indptr = np.arange(rows + 1, dtype=np.int64) * size
    correct_per_row(own, np.tile(log_count, rows), np.tile(ids, rows), indptr, target_indptr, targets)
    np.testing.assert_array_equal(shared, expected)
    np.testing.assert_array_equal(own.reshape(rows, size), expected)
