"""Check that a class has the same stated expected count wherever it is asked for, and that the counts are true.

Legend: B rows, N classes, P targets of the batch, S scores (in ``excess_SB`` and ``sum_SB``: steps).
"""

import math
from dataclasses import dataclass

import numpy as np

from runner.check.cases import (
    BOUND,
    NUM_CLASSES,
    ROWS,
    Case,
    demand,
    is_distinct,
    rows_of,
    stated_counts,
)  # fmt: skip
from runner.contracts import Everything, Query
from runner.samplers import Sampler

# ---------------------------------------------------------------- one count for a class


def counts_of_any_id_agree_with_the_proposal(case: Case) -> None:
    """Check that ``log_expected_count`` agrees with the proposal on its candidates, for ids in any order."""
    sampler, _, query = case.on_the_usual()
    everyone = np.arange(NUM_CLASSES, dtype=np.int32)
    for step in (1, 7):
        log_count_BN = sampler.log_expected_count(query, everyone, step)
        demand(
            log_count_BN.shape == (ROWS, NUM_CLASSES),
            f"log_expected_count of {NUM_CLASSES} ids must have shape {(ROWS, NUM_CLASSES)}, not {log_count_BN.shape}",
        )
        demand(not np.isnan(log_count_BN).any(), "a log expected count is not a number")
        for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, step), ROWS)):
            demand(
                np.array_equal(log_count_BN[row, ids], log_counts),
                f"step {step}, row {row}: log_expected_count differs from the proposal's",
            )
        some = np.array([5, 0, 5, NUM_CLASSES - 1], dtype=np.int32)
        demand(
            np.array_equal(sampler.log_expected_count(query, some, step), log_count_BN[:, some]),
            f"step {step}: log_expected_count of ids out of order, one of them twice, differs from that of all classes",
        )


def counts_of_targets_are_those_of_any_id(case: Case) -> None:
    """Check that ``log_expected_count_of_targets`` is ``log_expected_count`` of each row's own targets."""
    sampler, _, query = case.on_the_usual()
    everyone = np.arange(NUM_CLASSES, dtype=np.int32)
    for step in (1, 7):
        log_count_BN = sampler.log_expected_count(query, everyone, step)
        log_count_P = sampler.log_expected_count_of_targets(query, sampler.sample(query, step), step)
        demand(
            np.array_equal(log_count_P, log_count_BN[query.row_P, query.targets_P]),
            f"step {step}: log_expected_count_of_targets differs from log_expected_count",
        )


def every_class_can_be_drawn_where_that_is_said(case: Case) -> None:
    """Check that no class has an expected count of 0 where ``can_draw_every_class`` is true."""
    sampler, _, query = case.on_the_usual()
    for step in (1, 7):
        impossible = int((stated_counts(sampler, query, step) == 0).any(0).sum())
        demand(
            impossible == 0 or not case.config.can_draw_every_class,
            f"can_draw_every_class is true, and {impossible} classes have an expected count of 0",
        )


# ---------------------------------------------------------------- true counts


def mean_number_of_candidates_is_the_sum_of_the_counts(case: Case, draws: int) -> None:
    """Check that a row's mean number of candidates is the sum of its stated counts over all classes.

    If neither changes from step to step, the two must be equal; otherwise they must agree to 5 standard errors.
    """
    sampler, _, query = case.on_the_usual()
    steps = max(300, draws // 2000)
    excess_SB, sum_SB = np.empty((steps, ROWS)), np.empty((steps, ROWS))
    for step in range(steps):
        sizes = [len(ids) for ids, _ in rows_of(sampler.sample(query, step + 1), ROWS)]
        sum_SB[step] = stated_counts(sampler, query, step + 1).sum(1)
        excess_SB[step] = sizes - sum_SB[step]
    error_B = BOUND * excess_SB.std(0) / math.sqrt(steps) + 1e-5 * sum_SB.mean(0)
    row = int(np.argmax(np.abs(excess_SB.mean(0)) / error_B))
    demand(
        (np.abs(excess_SB.mean(0)) <= error_B).all(),
        f"row {row} has {(excess_SB + sum_SB).mean(0)[row]:.3f} candidates on average, and its stated counts sum to "
        f"{sum_SB.mean(0)[row]:.3f}",
    )


def frequencies_match_the_stated_counts(case: Case, draws: int) -> None:
    """Check how often each row draws each class, by the largest deviation from the stated counts and by chi-square."""
    sampler, _, query = case.on_the_usual()
    frequencies_of(sampler, query, draws).are_as_stated()


@dataclass(frozen=True)
class Frequencies:
    """Hold the standard scores of (times drawn - stated count), one for each class and row.

    ``limit_S``: the largest score allowed. Counts are skewed where few are expected: a Poisson number of mean 10 is 5
    standard deviations above its mean in 2e-5 of cases, not in 3e-7. So the limit is Cornish and Fisher's quantile,
    5 + (5^2 - 1) skewness / 6.
    """

    score_S: np.ndarray
    limit_S: np.ndarray

    def are_as_stated(self) -> None:
        """Raise Broken if a score exceeds its limit, or if the sum of squares is 5 standard deviations too large."""
        if len(self.score_S) == 0:  # every count is certain, and was met exactly
            return
        worst = int(np.argmax(np.abs(self.score_S) / self.limit_S))
        demand(
            (np.abs(self.score_S) < self.limit_S).all(),
            f"a class was drawn {abs(self.score_S[worst]):.1f} standard deviations more or less often than its stated"
            " counts predict",
        )
        together = chi_square_score(self.score_S)
        demand(
            together < BOUND,
            f"over all classes, draws differ from the stated counts by a chi-square {together:.1f} standard deviations"
            " too large",
        )


def chi_square_score(scores_S: np.ndarray) -> float:
    """Return the sum of squares of independent standard scores as a standard score.

    Wilson & Hilferty (1931): the cube root of chi-square / k is about normal with mean 1 - 2 / (9 k) and variance
    2 / (9 k). At 5 standard deviations the approximation errs on the safe side: chi-square exceeds it for 2e-8 (k = 1)
    to 3e-7 (k large) of all seeds.

    @article{wilson1931distribution, title={The Distribution of Chi-Square}, author={Wilson, Edwin B. and Hilferty,
    Margaret M.}, journal={Proceedings of the National Academy of Sciences}, year={1931}}
    """
    variance = 2 / (9 * len(scores_S))
    cube_root = float(np.square(scores_S).mean()) ** (1 / 3)
    return (cube_root - (1 - variance)) / math.sqrt(variance)


def frequencies_of(sampler: Sampler, query: Query, draws: int) -> Frequencies:
    """Draw at least ``draws`` candidates; compare how often each class came with the counts stated at each step.

    Summed over steps the difference is a martingale, whatever the tables retrieve. In a distinct proposal a class is
    drawn or not; otherwise its number among a row's draws is binomial. Classes expected fewer than ten times are taken
    together. Raise Broken if a class whose count is certain (0 or 1) was drawn another number of times.
    """
    proposal = sampler.sample(query, 1)
    distinct = is_distinct(proposal)
    shared = isinstance(proposal, Everything) or proposal.is_shared
    rows = 1 if shared else query.num_rows
    candidates = proposal.candidates_per_row(query.num_rows)
    excess_BN, variance_BN, third_BN, expected_BN = (np.zeros((rows, NUM_CLASSES)) for _ in range(4))
    for step in range(1, 1 + math.ceil(draws / (rows * candidates))):
        counts_BN = stated_counts(sampler, query, step)[:rows]
        drawn_BN = np.zeros((rows, NUM_CLASSES))
        for row, (ids, _) in enumerate(rows_of(sampler.sample(query, step), query.num_rows)[:rows]):
            drawn_BN[row] = np.bincount(ids, minlength=NUM_CLASSES)
        certain_BN = (counts_BN == 0) | (distinct & (counts_BN > 1 - 1e-6))
        demand(
            np.array_equal(drawn_BN[certain_BN], counts_BN[certain_BN].round()),
            f"step {step}: a class with a stated count of 0 was drawn, or one that is certain was not",
        )
        chance_BN = counts_BN if distinct else counts_BN / candidates
        spread_BN = np.where(certain_BN, 0, counts_BN * (1 - chance_BN))
        variance_BN += spread_BN
        third_BN += spread_BN * (1 - 2 * chance_BN)
        excess_BN += np.where(certain_BN, 0, drawn_BN - counts_BN)
        expected_BN += counts_BN
    often_BN = (expected_BN >= 10) & (variance_BN > 0)
    rarely_BN = ~often_BN & (variance_BN > 0)
    excess_S, variance_S, third_S = excess_BN[often_BN], variance_BN[often_BN], third_BN[often_BN]
    if expected_BN[rarely_BN].sum() >= 10:
        excess_S = np.append(excess_S, excess_BN[rarely_BN].sum())
        variance_S = np.append(variance_S, variance_BN[rarely_BN].sum())
        third_S = np.append(third_S, third_BN[rarely_BN].sum())
    skewness_S = np.abs(third_S) / variance_S**1.5
    return Frequencies(excess_S / np.sqrt(variance_S), BOUND + (BOUND**2 - 1) / 6 * skewness_S)
