"""How far a sampler is from the softmax, and its estimate of the gradient from full softmax's, at fixed weights.

For each row of a probe, over all n classes (p: the softmax; c_i: the stated expected count; q = c / sum of c; for a
sampler that avoids a row's own targets, whose loss adds them, divergences and reachable mass are over the others):

- KL(p || q) and the second-order Renyi divergence log sum p_i^2 / q_i, both in nats, 0 where q = p. With m draws from q
  the bias of a self-normalised estimate is at most of the order of the root of (exp of the latter - 1) / m (Metelli et
  al. 2020; MIDX paper, section 5.2). Where a class with p > 0 has c = 0 they are infinite, and say so.
- Effective sample size (sum w)^2 / sum w^2 of the drawn candidates, w = exp(logit) / c: at most their number, and
  their number where q = p. Accidental hits count; repeated candidates count each time.
- Covered mass: softmax probability of the distinct candidates and targets together. Reachable mass: of the classes
  with c > 0.
- Error of the gradient of the loss, against full softmax's (of the logits' magnitudes, where those were trained), with
  regard to the hidden state and to the class vectors: |mean estimate - exact| / |exact| (bias) and root of the summed
  variances / |exact| (deviation). The mean of R draws has a noise of its own, deviation / sqrt(R), which the bias can
  not fall below: the noise floor. ``bias_net`` takes it off, over all rows at once:
  sqrt(sum of (|mean - exact|^2 - variance / R) / sum of |exact|^2).
  With random hash tables the same is asked of draws that each have fresh tables, built on the present weights.

A row's gradient with regard to the class vectors is the outer product of the logits' gradient and of the hidden state,
whose norm cancels: errors are those of the logits' gradient, over all n classes. Samplers that share candidates
between rows see the probe as one batch. Products are BLAS's: numbers agree between thread counts to about 1e-6.

@article{metelli2020importance, title={Importance Sampling Techniques for Policy Optimization}, author={Metelli,
Alberto Maria and Papini, Matteo and Montali, Nico and Restelli, Marcello}, journal={JMLR}, year={2020}}
@article{renyi1961measures, title={On Measures of Entropy and Information}, author={R{\\'e}nyi, Alfr{\\'e}d},
journal={Berkeley Symposium on Mathematical Statistics and Probability}, year={1961}}

Legend: B rows, N classes (or pairs of a row and a class), D hidden size, R draws, G groups of ranks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit

from runner.contracts import Batch, CandidateScores, Everything, Proposal, Query, TrainingFacts
from runner.errors import require
from runner.heads.classes import estimate
from runner.losses import LossConfig
from runner.machine.clock import StageClock
from runner.samplers import Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer
    from runner.network import ClassNetwork

Tick = Callable[[], object]  # called once for each draw and each row: a progress bar's ``update``


def query_of(network: "ClassNetwork", batch: Batch) -> Query:
    """Return what a sampler sees of a batch; rows of the input matrix must be current."""
    return Query.of(network.encoder.encode(batch), batch)


# ---------------------------------------------------------------- the softmax itself


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Full softmax on the probe: log partition (B,) and gradient with regard to the hidden state (B, D), float64.

    Where the output layer normalises, the gradient is that of the scaled direction of the hidden state.
    ``by_magnitude``: of the logits' absolute values, as the model was trained.
    """

    layer: "OutputLayer"
    query: Query
    by_magnitude: bool
    log_partition_B: np.ndarray
    hidden_gradient_BD: np.ndarray

    @classmethod
    def of(cls, layer: "OutputLayer", query: Query, *, by_magnitude: bool = False) -> "Truth":
        """One pass over the classes for the partition, one for the gradient. Rows must be current."""
        rows, weights = query.num_rows, layer.class_vectors()
        blocks = layer.blocks(rows)
        top_B, sum_B = np.full(rows, -np.inf), np.zeros(rows)
        for lo, hi in blocks:
            logits_BC = _logits(layer, query.hidden_BD, lo, hi).astype(np.float64)
            if by_magnitude:
                np.abs(logits_BC, out=logits_BC)
            new_top_B = np.maximum(top_B, logits_BC.max(1))
            sum_B = sum_B * np.exp(top_B - new_top_B) + np.exp(logits_BC - new_top_B[:, None]).sum(1)
            top_B = new_top_B
        truth = cls(
            layer=layer,
            query=query,
            by_magnitude=by_magnitude,
            log_partition_B=top_B + np.log(sum_B),
            hidden_gradient_BD=np.zeros((rows, layer.dim)),
        )
        for lo, hi in blocks:
            grad_BC = truth._gradient(np.arange(rows), lo, hi)[1].astype(np.float32)
            truth.hidden_gradient_BD[:] += (torch.from_numpy(grad_BC) @ torch.from_numpy(weights[lo:hi])).numpy()
        return truth

    def softmax(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(N,) log p of one row and the gradient of its cross-entropy with regard to the logits."""
        log_p_1N, grad_1N = self._gradient(np.array([row]), 0, self.layer.num_classes)
        return log_p_1N[0], grad_1N[0]

    def _gradient(self, rows_B: np.ndarray, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        """As ``softmax`` for some rows and the classes [lo, hi)."""
        logits_BC = _logits(self.layer, self.query.hidden_BD[rows_B], lo, hi).astype(np.float64)
        log_p_BC = (np.abs(logits_BC) if self.by_magnitude else logits_BC) - self.log_partition_B[rows_B, None]
        grad_BC = np.exp(log_p_BC)
        for place, row in enumerate(rows_B):
            targets = self.query.targets_of(row)
            grad_BC[place, targets[(targets >= lo) & (targets < hi)] - lo] -= 1 / len(targets)
        if self.by_magnitude:
            grad_BC *= np.sign(logits_BC)
        return log_p_BC, grad_BC


def _logits(layer: "OutputLayer", hidden_BD: np.ndarray, lo: int, hi: int) -> np.ndarray:
    """(B, hi - lo) float32."""
    logits_BC = np.empty((len(hidden_BD), hi - lo), dtype=np.float32)
    layer.block_logits(hidden_BD, lo, hi, logits_BC)
    return logits_BC


# ---------------------------------------------------------------- draws and their gradients


@njit(cache=True)
def _add_weighted_rows(row_N, ids_N, grad_N, weights_ND, out_BD):
    """out[row] += grad * weights[id] for each pair, in float64."""
    for i in range(row_N.shape[0]):
        for k in range(out_BD.shape[1]):
            out_BD[row_N[i], k] += np.float64(grad_N[i]) * np.float64(weights_ND[ids_N[i], k])


@dataclass(frozen=True, kw_only=True)
class _Draw:
    """One proposal and the gradient that the loss makes of it.

    Row b's logits have gradients ``grad_N[b's part]`` of the classes ``ids_N[...]``, where a class may repeat.
    """

    proposal: Proposal
    hidden_gradient_BD: np.ndarray
    indptr_B1: np.ndarray
    ids_N: np.ndarray
    grad_N: np.ndarray

    def logit_gradient(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Distinct classes and the gradient (float64) of each one's logit."""
        here = slice(self.indptr_B1[row], self.indptr_B1[row + 1])
        ids, position = np.unique(self.ids_N[here], return_inverse=True)
        return ids, np.bincount(position, weights=self.grad_N[here], minlength=len(ids))


def _draw(sampler: Sampler, truth: Truth, loss: LossConfig, step: int) -> _Draw | None:
    """A draw at ``step``; None when the sampler takes every class. Nothing is updated."""
    layer, query = truth.layer, truth.query
    made = estimate(layer, sampler, loss, query, step, StageClock())
    if not isinstance(made.scores, CandidateScores):
        return None
    assert isinstance(made.proposal, Proposal)
    row_N, ids_N, grad_N = made.scores.logit_gradients()
    order = np.argsort(row_N, kind="stable")
    row_N, ids_N, grad_N = row_N[order], ids_N[order], grad_N[order] * np.float32(query.num_rows)  # not the batch mean
    hidden_BD = np.zeros((query.num_rows, layer.dim))
    _add_weighted_rows(row_N, ids_N, grad_N, layer.class_vectors(), hidden_BD)
    indptr = np.searchsorted(row_N, np.arange(query.num_rows + 1))
    return _Draw(proposal=made.proposal, hidden_gradient_BD=hidden_BD, indptr_B1=indptr, ids_N=ids_N, grad_N=grad_N)


@dataclass(frozen=True, kw_only=True)
class GradientError:
    """Of ``draws`` estimates of each row's gradient: |exact|^2, |mean - exact|^2, summed variances; each (B,)."""

    draws: int
    squared_norm_B: np.ndarray
    squared_bias_B: np.ndarray
    variance_B: np.ndarray

    def record(self) -> dict[str, Any]:
        """Relative errors as in the module's head; rows whose exact gradient is 0 are left out."""
        norm2 = self.squared_norm_B
        some = norm2 > 0
        if not some.any():
            return dict.fromkeys(("bias", "bias_deviation", "noise_floor", "bias_net", "std", "std_deviation"))
        bias_B = np.sqrt(self.squared_bias_B[some] / norm2[some])
        std_B = np.sqrt(self.variance_B[some] / norm2[some])
        net = (self.squared_bias_B - self.variance_B / self.draws).sum() / norm2.sum()
        return {
            **_mean("bias", bias_B),
            "noise_floor": float(std_B.mean() / np.sqrt(self.draws)),
            "bias_net": float(np.sqrt(net)) if net >= 0 else BELOW_NOISE,
            **_mean("std", std_B),
        }


BELOW_NOISE = "below noise"  # statuses, where a number would be made up
INFINITE = "inf"


def _mean(name: str, values_B: np.ndarray) -> dict[str, Any]:
    """Mean and standard deviation over rows; where some are infinite a status, and None where nothing was measured."""
    if np.isnan(values_B).any():
        return {name: None, f"{name}_deviation": None}
    if np.isinf(values_B).any():
        return {name: INFINITE, f"{name}_deviation": None}
    return {
        name: float(values_B.mean()),
        f"{name}_deviation": float(values_B.std(ddof=1)) if len(values_B) > 1 else None,
    }


def _errors(draws: list[_Draw], truth: Truth) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Buffers of the hidden gradient's errors, complete, and of the class gradient's, to be filled row by row."""
    estimates_RBD = np.stack([draw.hidden_gradient_BD for draw in draws])
    exact_BD = truth.hidden_gradient_BD
    hidden = {
        "squared_norm_B": np.square(exact_BD).sum(1),
        "squared_bias_B": np.square(estimates_RBD.mean(0) - exact_BD).sum(1),
        "variance_B": estimates_RBD.var(0, ddof=1).sum(1),
    }
    return hidden, {name: np.empty(truth.query.num_rows) for name in hidden}


def _fill_class_errors(into: dict[str, np.ndarray], draws: list[_Draw], row: int, exact_N: np.ndarray) -> None:
    count = len(draws)
    found = [draw.logit_gradient(row) for draw in draws]
    ids, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    mean_N = np.bincount(ids, weights=values, minlength=len(exact_N)) / count
    into["squared_norm_B"][row] = np.square(exact_N).sum()
    into["squared_bias_B"][row] = np.square(mean_N - exact_N).sum()
    into["variance_B"][row] = max(0.0, np.square(values).sum() - count * np.square(mean_N).sum()) / (count - 1)


# ---------------------------------------------------------------- all measures of one sampler


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Everything the module's head lists, by row; nan where a sampler takes every class and nothing is drawn.

    ``fresh_*``: over fresh hash tables, None where the sampler has none. ``rank_end`` (G,): one past the last rank of
    each group; ``truth_G``, ``proposal_G``: cumulative p and q up to there, classes by decreasing p, mean over rows;
    empty where nothing is drawn.
    """

    draws: int
    candidates_B: np.ndarray
    kl_B: np.ndarray
    renyi2_B: np.ndarray
    ess_B: np.ndarray
    covered_mass_B: np.ndarray
    reachable_mass_B: np.ndarray
    hidden: GradientError
    classes: GradientError
    fresh_hidden: GradientError | None
    fresh_classes: GradientError | None
    rank_end_G: np.ndarray
    truth_G: np.ndarray
    proposal_G: np.ndarray

    def record(self) -> dict[str, Any]:
        """Means and deviations over rows, flat and ready for JSON; see ``_mean`` for statuses."""
        errors = {
            "hidden": self.hidden,
            "classes": self.classes,
            "fresh_hidden": self.fresh_hidden,
            "fresh_classes": self.fresh_classes,
        }
        return {
            "rows": len(self.kl_B),
            "draws": self.draws,
            "candidates": float(self.candidates_B.mean()),
            **_mean("kl", self.kl_B),
            **_mean("renyi2", self.renyi2_B),
            **_mean("ess", self.ess_B),
            **_mean("covered_mass", self.covered_mass_B),
            "reachable_mass": float(self.reachable_mass_B.mean()),
            "rows_out_of_reach": int(np.isinf(self.kl_B).sum()),
            **{
                f"{what}_{name}": value
                for what, error in errors.items()
                if error is not None
                for name, value in error.record().items()
            },
        }

    def curves(self) -> dict[str, list[float]]:
        return {
            "rank_end": self.rank_end_G.tolist(),
            "truth": self.truth_G.tolist(),
            "proposal": self.proposal_G.tolist(),
        }


def measure(
    sampler: Sampler,
    truth: Truth,
    loss: LossConfig,
    *,
    first_step: int,
    draws: int,
    fresh: Iterable[Sampler] = (),
    tick: Tick = lambda: None,
) -> Measures:
    """Measures of ``sampler`` over ``draws`` draws, at steps ``first_step``, ``first_step`` + 1, ...

    q is what the sampler states at the first of them. ``fresh``: samplers of the same kind, each with hash functions
    of its own, of which one draw each is taken. Needs 4 B N bytes beside the draws where counts differ between rows.
    """
    require(draws >= 2, "draws must be at least 2: one has no variance")
    layer, query = truth.layer, truth.query
    rows, n = query.num_rows, layer.num_classes
    ends_G = np.unique(np.geomspace(1, n, 100).astype(np.int64))
    own: list[_Draw] = []
    others: list[_Draw] = []
    with layer.table.frozen():
        for step in range(first_step, first_step + draws):
            draw = _draw(sampler, truth, loss, step)
            if draw is None:
                return _of_everything(truth, draws)
            own.append(draw)
            tick()
        for step, sibling in enumerate(fresh, start=first_step):
            draw = _draw(sibling, truth, loss, step)
            assert draw is not None
            others.append(draw)
            tick()
        log_count_BN = sampler.log_expected_count(query, np.arange(n, dtype=np.int32), first_step)

    hidden, classes = _errors(own, truth)
    fresh_hidden, fresh_classes = _errors(others, truth) if len(others) > 1 else (None, None)
    names = ("kl", "renyi2", "ess", "covered_mass", "reachable_mass")
    of_row = {name: np.zeros(rows) for name in names}
    candidates_B = np.zeros(rows)
    truth_G, proposal_G = np.zeros(len(ends_G)), np.zeros(len(ends_G))
    for row in range(rows):
        log_p_N, exact_N = truth.softmax(row)
        p_N = np.exp(log_p_N)
        targets = query.targets_of(row)
        log_q_N = log_count_BN[row].astype(np.float64)
        log_q_N -= _log_sum_exp(log_q_N)
        if sampler.avoids_targets and len(targets) < n:
            log_p_N[targets] = -np.inf
            log_p_N -= _log_sum_exp(log_p_N)
        aim_N = np.exp(log_p_N)
        possible = aim_N > 0
        log_ratio = log_p_N[possible] - log_q_N[possible]
        of_row["kl"][row] = np.maximum(0.0, (aim_N[possible] * log_ratio).sum())
        of_row["renyi2"][row] = np.maximum(0.0, _log_sum_exp(log_p_N[possible] + log_ratio))
        of_row["reachable_mass"][row] = aim_N[log_q_N > -np.inf].sum()
        for draw in own:
            candidates = draw.proposal.row(row)
            ids, log_count = candidates.ids_M, candidates.log_expected_count_M
            of_row["ess"][row] += _effective_sample_size(log_p_N[ids] - log_count) / draws
            of_row["covered_mass"][row] += p_N[np.union1d(ids, targets)].sum() / draws
            candidates_B[row] += len(ids) / draws
        _fill_class_errors(classes, own, row, exact_N)
        if fresh_classes is not None:
            _fill_class_errors(fresh_classes, others, row, exact_N)
        order = np.argsort(-log_p_N, kind="stable")
        truth_G += np.cumsum(aim_N[order])[ends_G - 1] / rows
        proposal_G += np.cumsum(np.exp(log_q_N[order]))[ends_G - 1] / rows
        tick()
    return Measures(
        draws=draws,
        candidates_B=candidates_B,
        **{f"{name}_B": values for name, values in of_row.items()},
        hidden=GradientError(draws=draws, **hidden),
        classes=GradientError(draws=draws, **classes),
        fresh_hidden=None if fresh_hidden is None else GradientError(draws=len(others), **fresh_hidden),
        fresh_classes=None if fresh_classes is None else GradientError(draws=len(others), **fresh_classes),
        rank_end_G=ends_G,
        truth_G=truth_G,
        proposal_G=proposal_G,
    )


def _of_everything(truth: Truth, draws: int) -> Measures:
    """Full softmax: nothing is drawn, so nothing is missed and no estimate is off."""
    rows = truth.query.num_rows
    nothing, nan, one = np.zeros(rows), np.full(rows, np.nan), np.ones(rows)
    exact = GradientError(draws=draws, squared_norm_B=one, squared_bias_B=nothing, variance_B=nothing)
    return Measures(
        draws=draws,
        candidates_B=np.full(rows, truth.layer.num_classes),
        kl_B=nan,
        renyi2_B=nan,
        ess_B=nan,
        covered_mass_B=one,
        reachable_mass_B=one,
        hidden=exact,
        classes=exact,
        fresh_hidden=None,
        fresh_classes=None,
        rank_end_G=np.zeros(0, dtype=np.int64),
        truth_G=np.zeros(0),
        proposal_G=np.zeros(0),
    )


def _log_sum_exp(values: np.ndarray) -> float:
    top = values.max(initial=-np.inf)
    return float(top + np.log(np.exp(values - top).sum())) if np.isfinite(top) else float(top)


def _effective_sample_size(log_weight_M: np.ndarray) -> float:
    """(sum w)^2 / sum w^2; 0 of nothing."""
    if len(log_weight_M) == 0:
        return 0.0
    weight_M = np.exp(log_weight_M - log_weight_M.max())
    return float(weight_M.sum() ** 2 / np.square(weight_M).sum())


def fresh_samplers(
    config: SamplerConfig, layer: "OutputLayer", training: TrainingFacts, seed: int, count: int
) -> Iterator[Sampler]:
    """The sampler built anew with other seeds, one at a time; none where it has no random tables."""
    if not config.random_tables:
        return
    for other in range(seed + 1, seed + 1 + count):
        yield config.build(layer=layer, training=training, seed=other)


def measures_of(network: "ClassNetwork", batch: Batch, *, first_step: int, draws: int) -> Measures:
    """Measures of a network's own sampler and loss on a batch. All rows must be current."""
    head = network.head
    truth = Truth.of(network.head.layer, query_of(network, batch), by_magnitude=network.head.loss.by_magnitude)
    fresh = fresh_samplers(head.sampler_config, head.layer, head.training, head.seed, draws)
    return measure(network.head.sampler, truth, network.head.loss, first_step=first_step, draws=draws, fresh=fresh)


# ---------------------------------------------------------------- drawn share by rank


def proposal_against_truth(
    sampler: Sampler, layer: "OutputLayer", query: Query, step: int, *, by_magnitude: bool = False
) -> dict[str, Any]:
    """Mass of softmax and of proposal by rank of the logit, mean over the rows: the LNS paper's Figure 3.

    Classes other than a row's targets are ranked by its logits and cut at log-spaced ranks. ``rank_end`` (G,):
    one past the last rank of each group; ``truth`` (G,): softmax probability in the group, renormalised over
    non-targets; ``proposal`` (G,): share of the drawn candidates. Rows must be current.
    """
    with layer.table.frozen():
        proposal = sampler.sample(query, step)
    n = layer.num_classes
    ends = np.unique(np.geomspace(1, n, 40).astype(np.int64))
    truth, share = np.zeros(len(ends)), np.zeros(len(ends))
    for row in range(query.num_rows):
        logits = _logits(layer, query.hidden_BD[row : row + 1], 0, n)[0]
        if by_magnitude:
            np.abs(logits, out=logits)
        targets = query.targets_of(row)
        weight = np.exp((logits - logits.max()).astype(np.float64))
        weight[targets] = 0
        order = np.argsort(-weight, kind="stable")
        group_of_rank = np.searchsorted(ends, np.arange(n), side="right").clip(max=len(ends) - 1)
        truth += np.bincount(group_of_rank, weights=weight[order] / max(weight.sum(), 1e-300), minlength=len(ends))
        ids = np.arange(n) if isinstance(proposal, Everything) else proposal.row(row).ids_M
        ids = ids[~np.isin(ids, targets)]
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        share += np.bincount(group_of_rank[rank[ids]], minlength=len(ends)) / max(1, len(ids))
    return {
        "rank_end": ends.tolist(),
        "truth": (truth / query.num_rows).tolist(),
        "proposal": (share / query.num_rows).tolist(),
    }


def proposal_of(network: "ClassNetwork", batch: Batch, step: int) -> dict[str, Any]:
    """``proposal_against_truth`` of a network's own sampler on a batch."""
    head, query = network.head, query_of(network, batch)
    return proposal_against_truth(head.sampler, head.layer, query, step, by_magnitude=head.loss.by_magnitude)
