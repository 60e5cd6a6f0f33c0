"""Measure, at fixed weights, how far a sampler is from the softmax and its gradients from those of full softmax.

The measures are taken for each row of a probe, over all n classes. p is the softmax, c_i the stated expected count of
class i, and q = c / sum of c. For a sampler that avoids a row's own targets, because its loss adds them, divergences
and reachable mass are over the other classes.

- KL(p || q) and the second-order Renyi divergence log sum p_i^2 / q_i are in nats and 0 if q = p. With m draws from q,
  the bias of a self-normalised estimate is at most of the order of sqrt((exp(Renyi divergence) - 1) / m) (Metelli et
  al. 2020; MIDX paper, section 5.2). If a class with p > 0 has c = 0, both are infinite and reported so.
- The effective sample size is (sum w)^2 / sum w^2 over the drawn candidates, w = exp(logit) / c. It is at most their
  number, and equals it if q = p. Accidental hits count; repeated candidates count each time.
- The covered mass is the softmax probability of the distinct candidates and targets together. The reachable mass is
  the softmax probability of the classes with c > 0. The recall is the share of the ten most likely classes that are
  among a draw's candidates (of the other classes, if it avoids targets), which tells how well hash tables and other
  indexes find the nearest neighbours.
- The error of the loss's gradient is measured against full softmax's gradient (that of the logits' magnitudes, if
  those were trained), with regard to the hidden state and to the class vectors. The bias is |mean - exact| / |exact|;
  the deviation is the root of the summed variances / |exact|. The mean of R draws has a noise of its own, deviation /
  sqrt(R), and the measured bias cannot fall below this noise floor. ``bias_net`` subtracts it, over all rows at once:
  sqrt(sum of (|mean - exact|^2 - variance / R) / sum of |exact|^2).
  For random hash tables the same is measured over draws that each have fresh tables, built on the present weights.

A row's gradient with regard to the class vectors is the outer product of the logits' gradient and the hidden state. The
norm of the hidden state cancels, so these errors are those of the logits' gradient over all n classes. Samplers that
share candidates between rows see the probe as one batch. Products are made by BLAS, so numbers agree between thread
counts only to about 1e-6.

@article{metelli2020importance, title={Importance Sampling Techniques for Policy Optimization}, author={Metelli,
Alberto Maria and Papini, Matteo and Montali, Nico and Restelli, Marcello}, journal={JMLR}, year={2020}}
@article{renyi1961measures, title={On Divergence of Entropy and Information}, author={R{\\'e}nyi, Alfr{\\'e}d},
journal={Berkeley Symposium on Mathematical Statistics and Probability}, year={1961}}

Legend: B rows, N classes (or pairs of a row and a class), D hidden size, R draws, G groups of ranks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.contracts import Batch, TrainingFacts
from runner.door.samplers import build_sampler
from runner.errors import require
from runner.measures.gradients import (
    Draw,
    GradientError,
    draw_with_gradients,
    fill_class_errors,
    gradient_errors,
    mean_over_rows,
)
from runner.measures.truth import Truth, query_of
from runner.output.layer import Layer
from runner.output.losses import LossConfig
from runner.samplers import Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.network import ClassNetwork

_NEAREST = 10  # the most likely classes that recall counts

Tick = Callable[[], object]  # called once for each draw and each row: a progress bar's ``update``


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The measures that the module's docstring lists, by row.

    Measures of draws are nan for a sampler that takes every class. ``fresh_*`` are errors over fresh hash tables, None
    if the sampler has no random tables. ``rank_end_G`` is one past the last rank of each group, with classes by
    decreasing p; ``truth_G`` and ``proposal_G`` are p and q cumulated up to there, as means over rows. These three are
    empty if nothing is drawn.
    """

    draws: int
    candidates_B: np.ndarray
    kl_B: np.ndarray
    renyi2_B: np.ndarray
    ess_B: np.ndarray
    covered_mass_B: np.ndarray
    reachable_mass_B: np.ndarray
    recall_B: np.ndarray
    hidden: GradientError
    classes: GradientError
    fresh_hidden: GradientError | None
    fresh_classes: GradientError | None
    rank_end_G: np.ndarray
    truth_G: np.ndarray
    proposal_G: np.ndarray

    def record(self) -> dict[str, Any]:
        """Return means and deviations over rows, flat and ready for JSON; see ``mean_over_rows`` for statuses."""
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
            **mean_over_rows("kl", self.kl_B),
            **mean_over_rows("renyi2", self.renyi2_B),
            **mean_over_rows("ess", self.ess_B),
            **mean_over_rows("covered_mass", self.covered_mass_B),
            "reachable_mass": float(self.reachable_mass_B.mean()),
            **mean_over_rows("recall", self.recall_B),
            "rows_out_of_reach": int(np.isinf(self.kl_B).sum()),
            **{
                f"{what}_{name}": value
                for what, error in errors.items()
                if error is not None
                for name, value in error.record().items()
            },
        }

    def curves(self) -> dict[str, list[float]]:
        """Return the cumulative curves, ready for JSON."""
        return {
            "rank_end": self.rank_end_G.tolist(),
            "truth": self.truth_G.tolist(),
            "proposal": self.proposal_G.tolist(),
        }


def measure_divergence(
    sampler: Sampler,
    truth: Truth,
    loss: LossConfig,
    *,
    first_step: int,
    draws: int,
    fresh: Iterable[Sampler] = (),
    tick: Tick = lambda: None,
) -> Divergence:
    """Measure ``sampler`` over ``draws`` draws, at steps ``first_step``, ``first_step`` + 1, ...

    q is what the sampler states at the first of these steps. ``fresh`` gives samplers of the same kind, each with its
    own hash functions; each makes one draw. If counts differ between rows, this needs 4 B N bytes beside the draws (B
    rows, N classes). Raises ConfigError for fewer than two draws.
    """
    require(draws >= 2, "draws must be at least 2, because one has no variance")
    layer, query = truth.layer, truth.query
    rows, n = query.num_rows, layer.num_classes
    ends_G = np.unique(np.geomspace(1, n, 100).astype(np.int64))
    own: list[Draw] = []
    others: list[Draw] = []
    with layer.table.frozen():
        for step in range(first_step, first_step + draws):
            draw = draw_with_gradients(sampler, truth, loss, step)
            if draw is None:
                return _of_everything(truth, draws)
            own.append(draw)
            tick()
        for step, sibling in enumerate(fresh, start=first_step):
            draw = draw_with_gradients(sibling, truth, loss, step)
            assert draw is not None
            others.append(draw)
            tick()
        log_count_BN = sampler.log_expected_count(query, np.arange(n, dtype=np.int32), first_step)

    hidden, classes = gradient_errors(own, truth)
    fresh_hidden, fresh_classes = gradient_errors(others, truth) if len(others) > 1 else (None, None)
    names = ("kl", "renyi2", "ess", "covered_mass", "reachable_mass", "recall")
    of_row = {name: np.zeros(rows) for name in names}
    candidates_B = np.zeros(rows)
    truth_G, proposal_G = np.zeros(len(ends_G)), np.zeros(len(ends_G))
    for row in range(rows):
        log_p_N, exact_N = truth.softmax(row)
        p_N = np.exp(log_p_N)
        targets = query.targets_of(row)
        log_q_N = log_count_BN[row].astype(np.float64)
        if log_q_N.max() > -np.inf:  # otherwise the row has no candidates
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
        order = np.argsort(-log_p_N, kind="stable")
        nearest = order[: min(_NEAREST, n)]
        for draw in own:
            candidates = draw.proposal.row(row)
            ids, log_count = candidates.ids_M, candidates.log_expected_count_M
            of_row["ess"][row] += _effective_sample_size(log_p_N[ids] - log_count) / draws
            of_row["covered_mass"][row] += p_N[np.union1d(ids, targets)].sum() / draws
            of_row["recall"][row] += np.isin(nearest, ids).mean() / draws
            candidates_B[row] += len(ids) / draws
        fill_class_errors(classes, own, row, exact_N)
        if fresh_classes is not None:
            fill_class_errors(fresh_classes, others, row, exact_N)
        truth_G += np.cumsum(aim_N[order])[ends_G - 1] / rows
        proposal_G += np.cumsum(np.exp(log_q_N[order]))[ends_G - 1] / rows
        tick()
    return Divergence(
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


def _of_everything(truth: Truth, draws: int) -> Divergence:
    """Return the measures of full softmax: nothing is drawn, no class is missed and the gradient is exact."""
    rows = truth.query.num_rows
    nothing, nan, one = np.zeros(rows), np.full(rows, np.nan), np.ones(rows)
    exact = GradientError(draws=draws, squared_norm_B=one, squared_bias_B=nothing, variance_B=nothing)
    return Divergence(
        draws=draws,
        candidates_B=np.full(rows, truth.layer.num_classes),
        kl_B=nan,
        renyi2_B=nan,
        ess_B=nan,
        covered_mass_B=one,
        reachable_mass_B=one,
        recall_B=one,
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
    """Return (sum w)^2 / sum w^2, or 0 without candidates."""
    if len(log_weight_M) == 0:
        return 0.0
    weight_M = np.exp(log_weight_M - log_weight_M.max())
    return float(weight_M.sum() ** 2 / np.square(weight_M).sum())


def fresh_samplers(
    config: SamplerConfig, layer: Layer, training: TrainingFacts, seed: int, count: int
) -> Iterator[Sampler]:
    """Build the sampler with ``count`` other seeds, one after the other; none if it has no random tables."""
    if not config.random_tables:
        return
    for other in range(seed + 1, seed + 1 + count):
        yield build_sampler(config, layer=layer, training=training, seed=other)


def divergence_of(network: "ClassNetwork", batch: Batch, *, first_step: int, draws: int) -> Divergence:
    """Measure a network's own sampler and loss on a batch. All rows must be current."""
    head = network.head
    truth = Truth.of(head.layer, query_of(network, batch), by_magnitude=head.loss.by_magnitude)
    fresh = fresh_samplers(head.sampler_config, head.layer, head.training, head.seed, draws)
    return measure_divergence(head.sampler, truth, head.loss, first_step=first_step, draws=draws, fresh=fresh)
