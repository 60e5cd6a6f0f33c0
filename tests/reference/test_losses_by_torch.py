"""Loss kernels against torch's autograd on ragged rows. Legend: B rows, P targets, N candidates."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.kernels.losses import correct_and_mask_shared, logistic_loss, mask_pairs, softmax_loss

few = settings(max_examples=60, deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


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
    gap=st.sampled_from([0, 3]),
    kernel=st.sampled_from([(softmax_loss, softmax_reference), (logistic_loss, logistic_reference)]),
)
def test_loss_and_gradient(
    seed: int, shape: list[tuple[int, int]], spread: float, masked: float, gap: int,
    kernel: tuple[Kernel, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]],
) -> None:  # fmt: skip
    """Candidates of a row may be followed by others' memory (``gap``), which must stay as it is."""
    compiled, reference = kernel
    generator = np.random.default_rng(seed)
    rows = len(shape)
    target_indptr = np.concatenate([[0], np.cumsum([t for t, _ in shape])]).astype(np.int64)
    begin = np.cumsum([0] + [c + gap for _, c in shape[:-1]]).astype(np.int64)
    end = begin + [c for _, c in shape]
    targets = (spread * generator.standard_normal(target_indptr[-1])).astype(np.float32)
    candidates = (spread * generator.standard_normal(end[-1] + gap)).astype(np.float32)
    hit = generator.random(len(candidates)) < masked
    candidates[hit] = -np.inf
    t = torch.from_numpy(targets.copy()).double().requires_grad_()
    c = torch.from_numpy(np.where(hit, 0, candidates)).double().requires_grad_()
    kept = torch.from_numpy(~hit)
    losses, between, before = [], np.ones(len(candidates), dtype=bool), candidates.copy()
    for row in range(rows):
        mine = slice(target_indptr[row], target_indptr[row + 1])
        own = slice(begin[row], end[row])
        between[own] = False
        # A row without targets has no loss and no gradient.
        losses.append(reference(t[mine], c[own][kept[own]]) if mine.stop > mine.start else t.new_zeros(()))
    stacked = torch.stack(losses)
    grads = torch.autograd.grad(stacked.mean(), [t, c], allow_unused=True, materialize_grads=True) if (
        stacked.requires_grad
    ) else [torch.zeros_like(t), torch.zeros_like(c)]  # fmt: skip
    ours = compiled(target_indptr, targets, begin, end, candidates)
    np.testing.assert_allclose(ours, stacked.detach().numpy(), rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(targets, grads[0].numpy(), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(candidates[~between], grads[1].numpy()[~between], rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(candidates[between], before[between])


@pytest.mark.parametrize("kernel", [softmax_loss, logistic_loss])
@pytest.mark.parametrize("size", [1e3, 1e30])
def test_large_logits_do_not_overflow(kernel: Kernel, size: float) -> None:
    one_row = np.array([0, 1], dtype=np.int64)
    targets = np.array([-size], dtype=np.float32)
    candidates = np.array([size, -size, -np.inf], dtype=np.float32)
    loss = kernel(one_row, targets, np.zeros(1, np.int64), np.array([3], np.int64), candidates)
    assert loss[0] == pytest.approx(2 * size, rel=1e-5)
    np.testing.assert_allclose(targets, [-1], atol=1e-6)
    np.testing.assert_allclose(candidates, [1, 0, 0], atol=1e-6)


@few
@given(seed=seeds, rows=st.integers(1, 5), size=st.integers(0, 12), repeats=st.booleans(), slack=st.integers(0, 3),
       corrects=st.booleans())  # fmt: skip
def test_corrections_and_masks(seed: int, rows: int, size: int, repeats: bool, slack: int, corrects: bool) -> None:
    """Shared candidates' rows may be longer than the ids; what is behind them must stay as it is."""
    generator = np.random.default_rng(seed)
    ids = np.sort(generator.choice(15, size, replace=repeats)).astype(np.int32)
    log_count = generator.standard_normal(size).astype(np.float32)
    logits = generator.standard_normal((rows, size)).astype(np.float32)
    sizes = generator.integers(0, 4, rows)
    target_indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    targets = np.concatenate([np.sort(generator.choice(15, s, replace=False)) for s in sizes]).astype(np.int32)
    expected = logits - log_count if corrects else logits.copy()
    for row in range(rows):
        expected[row, np.isin(ids, targets[target_indptr[row] : target_indptr[row + 1]])] = -np.inf
    shared = np.full((rows, size + slack), 7, dtype=np.float32)
    shared[:, :size] = logits
    correct_and_mask_shared(shared, log_count if corrects else None, ids, target_indptr, targets)
    np.testing.assert_array_equal(shared[:, :size], expected)
    assert (shared[:, size:] == 7).all()
    own = (logits - log_count if corrects else logits.copy()).reshape(-1)
    begin = np.arange(rows, dtype=np.int64) * size
    mask_pairs(own, np.tile(ids, rows), begin, begin + size, target_indptr, targets)
    np.testing.assert_array_equal(own.reshape(rows, size), expected)
