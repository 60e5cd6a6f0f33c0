"""Loss kernels against torch's autograd on ragged rows. Legend: B rows, P targets, N candidates."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.kernels.losses import correct_and_mask_shared, count_unmasked, magnitudes, mask_pairs, restore_signs
from runner.output.across import Alone
from runner.output.losses import LOSSES
from runner.output.numba.losses import NumbaRowLogits

few = settings(max_examples=60)
seeds = st.integers(0, 2**32 - 1)
Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def softmax_reference(targets: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(torch.cat([targets, candidates]), 0) - targets.mean()


def partition_reference(targets: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(candidates, 0) - targets.mean() if len(candidates) else 0 * targets.sum()


def logistic_reference(targets: torch.Tensor, candidates: torch.Tensor, power: float = 1) -> torch.Tensor:
    softplus = torch.nn.functional.softplus
    return power * softplus(-targets).mean() + softplus(candidates).sum()


def row_logits(
    target_indptr_B1: np.ndarray, target_P: np.ndarray, begin_B: np.ndarray, end_B: np.ndarray, candidate_N: np.ndarray,
    weight_B: np.ndarray, num_classes: int = 100,
) -> NumbaRowLogits:  # fmt: skip
    return NumbaRowLogits(
        target_indptr_B1=target_indptr_B1, target_P=target_P, begin_B=begin_B, end_B=end_B, candidate_N=candidate_N,
        num_targets_B=np.diff(target_indptr_B1), weight_B=weight_B, num_classes=num_classes, across=Alone(),
    )  # fmt: skip


def softmax_loss(*arrays: np.ndarray) -> np.ndarray:
    return row_logits(*arrays).softmax()


def partition_loss(*arrays: np.ndarray) -> np.ndarray:
    return row_logits(*arrays).partition()


def unweighted_logistic_loss(*arrays: np.ndarray) -> np.ndarray:
    return row_logits(*arrays).logistic(lambda counts_B, num_classes: np.ones(len(counts_B)))


def blackout_loss(*arrays: np.ndarray) -> np.ndarray:
    return row_logits(*arrays).blackout()


def blackout_reference(targets: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    """1 - p of a candidate as the share of all others, which no rounding can make 0."""
    every = torch.cat([targets, candidates])
    others = [torch.logsumexp(torch.cat([every[:i], every[i + 1 :]]), 0) for i in range(len(targets), len(every))]
    partition = torch.logsumexp(every, 0)
    return partition - targets.mean() + sum((partition - other for other in others), start=partition * 0)


ONE = np.ones(1, dtype=np.float32)  # the weight of the one row of a batch
KERNELS: list[tuple[Kernel, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = [
    (softmax_loss, softmax_reference),
    (partition_loss, partition_reference),
    (unweighted_logistic_loss, logistic_reference),
    (blackout_loss, blackout_reference),
]


@few
@given(
    seed=seeds,
    shape=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=6),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
    masked=st.sampled_from([0.0, 0.3, 1.0]),
    gap=st.sampled_from([0, 3]),
    kernel=st.sampled_from(KERNELS),
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
    equal = np.full(rows, np.float32(1 / rows), dtype=np.float32)
    ours = compiled(target_indptr, targets, begin, end, candidates, equal)
    np.testing.assert_allclose(ours, stacked.detach().numpy(), rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(targets, grads[0].numpy(), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(candidates[~between], grads[1].numpy()[~between], rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(candidates[between], before[between])


@pytest.mark.parametrize(("kernel", "times", "grads"), [
    (softmax_loss, 2, [-1, 1, 0, 0]), (partition_loss, 2, [-1, 1, 0, 0]),
    (unweighted_logistic_loss, 2, [-1, 1, 0, 0]),
    # log p of the target and log(1 - p) of the candidate both are -2 size; the second candidate shares in 1 - p.
    (blackout_loss, 4, [-1.5, 2, -0.5, 0]),
])  # fmt: skip
@pytest.mark.parametrize("size", [1e3, 1e30])
def test_large_logits_do_not_overflow(kernel: Kernel, times: int, grads: list[float], size: float) -> None:
    one_row = np.array([0, 1], dtype=np.int64)
    targets = np.array([-size], dtype=np.float32)
    candidates = np.array([size, -size, -np.inf], dtype=np.float32)
    loss = kernel(one_row, targets, np.zeros(1, np.int64), np.array([3], np.int64), candidates, ONE)
    assert loss[0] == pytest.approx(times * size, rel=1e-3 if size < 1e6 else 1e-5)
    np.testing.assert_allclose([*targets, *candidates], grads, atol=1e-6)


@pytest.mark.parametrize("lead", [0.0, 5.0, 17.0, 40.0, 86.0, 200.0])
def test_blackout_as_a_candidate_takes_all(lead: float) -> None:
    """1 - p of the leading candidate falls to e^-200; its logarithm and the gradients keep their digits."""
    values = np.array([0.3, -0.4, lead, 0.1, -0.7], dtype=np.float32)
    t, c = (torch.from_numpy(part.copy()).double().requires_grad_() for part in (values[:2], values[2:]))
    expected = blackout_reference(t, c)
    expected.backward()
    assert t.grad is not None
    assert c.grad is not None
    targets, candidates = values[:2], values[2:]
    loss = blackout_loss(np.array([0, 2]), targets, np.array([0]), np.array([3]), candidates, ONE)
    assert loss[0] == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose([*targets, *candidates], [*t.grad, *c.grad], rtol=2e-6)


@few
@given(seed=seeds, rows=st.integers(1, 5), t=st.sampled_from([0.0, 0.4, 1.0]), masked=st.sampled_from([0.0, 0.4]))
def test_gbce_weighs_targets_by_the_sampling_rate(seed: int, rows: int, t: float, masked: float) -> None:
    """beta by the paper's formula, from candidates that are not masked."""
    generator = np.random.default_rng(seed)
    num_classes = 9
    sizes = generator.integers(0, 3 * num_classes, rows)  # repeats may be more than there are classes
    end = np.cumsum(sizes)
    begin = end - sizes
    logits = generator.standard_normal(rows + end[-1]).astype(np.float32)
    targets, candidates = logits[:rows].copy(), logits[rows:].copy()
    candidates[generator.random(len(candidates)) < masked] = -np.inf
    powers = []
    for row in range(rows):
        alpha = min(1, np.isfinite(candidates[begin[row] : end[row]]).sum() / (num_classes - 1))
        powers.append(alpha * (t * (1 - 1 / alpha) + 1 / alpha) if alpha else 1 - t)
    x, c = (torch.from_numpy(part.copy()).double().requires_grad_() for part in (targets, candidates))
    expected = []
    for row in range(rows):
        own = c[begin[row] : end[row]]
        expected.append(logistic_reference(x[row : row + 1], own[torch.isfinite(own)], powers[row]))
    torch.stack(expected).mean().backward()
    assert x.grad is not None
    loss = LOSSES["gbce"](name="gbce", t=t)  # type: ignore[call-arg]
    equal = np.full(rows, 1 / rows, dtype=np.float32)
    ours = loss.apply(row_logits(np.arange(rows + 1), targets, begin, end, candidates, equal, num_classes))
    np.testing.assert_allclose(ours, torch.stack(expected).detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(targets, x.grad.numpy(), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(candidates, 0 if c.grad is None else c.grad.numpy(), rtol=1e-5, atol=1e-8)


def test_unmasked_candidates_are_counted() -> None:
    values = np.array([1, -np.inf, 3, -np.inf, -1e30, np.inf], dtype=np.float32)
    counts = count_unmasked(np.array([0, 2, 2, 3]), np.array([2, 2, 3, 6]), values)
    assert counts.tolist() == [1, 0, 1, 2]


def test_magnitudes_and_signs() -> None:
    values = np.array([1, -2, 0, -0.0, -np.inf, 3e38], dtype=np.float32)
    grads = values.copy()
    negative = magnitudes(values)
    np.testing.assert_array_equal(values, np.abs(grads))
    restore_signs(values, negative)
    np.testing.assert_array_equal(values, grads)


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
