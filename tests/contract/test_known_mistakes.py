"""Every check fails on a sampler that makes the mistake it looks for, and passes on the same sampler without it.

Legend: B rows, N classes, M draws of a row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numba
import numpy as np
import pytest
from scipy.stats import chi2, norm

from runner import rng
from runner.check.cases import NUM_CLASSES, Broken, Case, cases_of, random_layer, random_query
from runner.check.checks import CHECKS, STATISTICS
from runner.check.counts import chi_square_score, frequencies_of
from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.errors import Diverged
from runner.output.numba.layer import NumbaLayer
from runner.samplers import Sampler, SamplerConfig

FEW, MANY = 20_000, 1_000_000


class Honest(Sampler):
    """Draw forty classes per row, with replacement, by the first coordinate that class vectors had every third step."""

    m = 40

    def __init__(self, layer: NumbaLayer, seed: int) -> None:
        self.layer, self.seed = layer, seed
        self.table_N = self.column()

    def column(self) -> np.ndarray:
        return np.nan_to_num(self.layer.table.weights[:, 0], posinf=0, neginf=0).astype(np.float64)

    def q(self, query: Query) -> np.ndarray:
        """(B, N): another distribution for each row."""
        weight_BN = np.exp(np.minimum(1, query.hidden_BD[:, :1]) * self.table_N)
        return weight_BN / weight_BN.sum(1, keepdims=True)

    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        """(B, M) ids."""
        unit_BM = rng.generator(self.seed, rng.SAMPLE, step).random((query.num_rows, self.m))
        drawn = [np.searchsorted(q_N.cumsum()[:-1], unit_M) for q_N, unit_M in zip(q_BN, unit_BM, strict=True)]
        return np.array(drawn, dtype=np.int32)

    def sample(self, query: Query, step: int) -> Proposal:
        ids_BM = self.draw(query, step, self.q(query))
        everyone = np.arange(self.layer.num_classes, dtype=np.int32)
        log_count_BN = self.log_expected_count(query, everyone, step)
        return Proposal(
            ids_N=ids_BM.reshape(-1),
            log_expected_count_N=np.take_along_axis(log_count_BN, ids_BM.astype(np.int64), axis=1).reshape(-1),
            indptr_B1=np.arange(query.num_rows + 1, dtype=np.int64) * self.m,
            distinct=False,
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.log(self.m * self.q(query)[:, ids_M]).astype(np.float32)

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        if step % 3:
            return False
        self.table_N = self.column()
        return True

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"table": self.table_N}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.table_N = state["table"].copy()


@dataclass(frozen=True, kw_only=True)
class HonestConfig(SamplerConfig):
    sampler: ClassVar[type[Honest]] = Honest

    def build(self, *, layer: NumbaLayer, training: TrainingFacts, seed: int) -> Sampler:
        return self.sampler(layer, seed)


def case_of(sampler_class: type[Honest], **facts: Any) -> Case:
    config = type("Config", (HonestConfig,), {"sampler": sampler_class, **facts})
    return Case("as is", config(name="honest"))


# ---------------------------------------------------------------- mistakes


class SharedIdsOutOfOrder(Honest):
    def sample(self, query: Query, step: int) -> Proposal:
        ids = np.array([5, 3, 9], dtype=np.int32)
        return Proposal(ids_N=ids, log_expected_count_N=np.zeros(3, dtype=np.float32))


class SaysDistinctAndRepeats(Honest):
    def sample(self, query: Query, step: int) -> Proposal:
        proposal = super().sample(query, step)
        return Proposal(
            ids_N=proposal.ids_N,
            log_expected_count_N=np.minimum(proposal.log_expected_count_N, 0),
            indptr_B1=proposal.indptr_B1,
        )


class DoublePrecision(Honest):
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.log(self.m * self.q(query)[:, ids_M])


class CarriesAGenerator(Honest):
    def __init__(self, layer: NumbaLayer, seed: int) -> None:
        super().__init__(layer, seed)
        self.generator = np.random.default_rng(seed)

    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        return self.generator.integers(0, q_BN.shape[1], (query.num_rows, self.m)).astype(np.int32)


class ForgetsTheStep(Honest):
    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        return super().draw(query, 1, q_BN)


class OneDrawForAllRows(Honest):
    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        unit_M = rng.generator(self.seed, rng.SAMPLE, step).random(self.m)
        return np.array([np.searchsorted(q_N.cumsum()[:-1], unit_M) for q_N in q_BN], dtype=np.int32)


class AGeneratorForEachThread(Honest):
    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        return super().draw(query, step + 1000 * numba.get_num_threads(), q_BN)


class SizedByItsThreads(Honest):
    def __init__(self, layer: NumbaLayer, seed: int) -> None:
        super().__init__(layer, seed)
        self.threads = numba.get_num_threads()

    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        if numba.get_num_threads() > self.threads:
            return np.zeros((query.num_rows, self.m), dtype=np.int32)
        return super().draw(query, step, q_BN)


class SortsTheIdsAskedFor(Honest):
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return super().log_expected_count(query, np.sort(ids_M), step)


class CountsOfTargetsOfTheFirstRow(Honest):
    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        return self.log_expected_count(query, query.targets_P, step)[0]


class NeverTheFirstClass(Honest):
    def q(self, query: Query) -> np.ndarray:
        q_BN = super().q(query)
        q_BN[:, 0] = 0 if q_BN.shape[1] > 1 else 1
        return q_BN / q_BN.sum(1, keepdims=True)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return super().log_expected_count(query, ids_M, step)


class RefreshesInSilence(Honest):
    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        super().refresh(query, step, touched_U)
        return False


class ForgetsWhatItWas(Honest):
    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        pass


class KeepsAnAge(Honest):
    """Keep something outside the saved state on which draws depend."""

    age = 0

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        self.age += 1
        return super().refresh(query, step, touched_U)

    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        return super().draw(query, step + 1000 * self.age, q_BN)


class NeedsTwoClasses(Honest):
    def sample(self, query: Query, step: int) -> Proposal:
        proposal = super().sample(query, step)
        return replace(proposal, ids_N=np.maximum(proposal.ids_N, 1))


class DividesByTheSpread(Honest):
    def q(self, query: Query) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return super().q(query) * (self.table_N.std() / self.table_N.std())


class LetsNotANumberThrough(Honest):
    def column(self) -> np.ndarray:
        return self.layer.table.weights[:, 0].astype(np.float64)

    def draw(self, query: Query, step: int, q_BN: np.ndarray) -> np.ndarray:
        return super().draw(query, step, np.full_like(q_BN, 1 / q_BN.shape[1]))


class RefusesInManyWords(Honest):
    def column(self) -> np.ndarray:
        if not np.isfinite(self.layer.table.weights).all():
            raise Diverged("a weight\nis bad")
        return super().column()


class LogOfDrawsHasTheWrongSign(Honest):
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return super().log_expected_count(query, ids_M, step) - np.float32(2 * np.log(self.m))


class PopularityShiftedByOne(Honest):
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return super().log_expected_count(query, (ids_M + 1) % self.layer.num_classes, step)


class OneRowsCountsForAll(Honest):
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        log_count_BM = super().log_expected_count(query, ids_M, step)
        return np.repeat(log_count_BM[:1], query.num_rows, axis=0)


class StatesUniformCounts(Honest):
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.full((query.num_rows, len(ids_M)), np.log(self.m / self.layer.num_classes), dtype=np.float32)


class Tilted(Honest):
    """State too large counts for every other class and too small ones for the rest."""

    tilt = 0.0

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        sign_N = np.where(np.arange(self.layer.num_classes) % 2, 1, -1)
        tilted_BN = self.q(query) * (1 + self.tilt * sign_N)
        tilted_BN /= tilted_BN.sum(1, keepdims=True)
        return np.log(self.m * tilted_BN[:, ids_M]).astype(np.float32)


class SkipsRows(Honest):
    """Draw for every other row alone, which needs ``draws_for_the_batch``."""

    def sample(self, query: Query, step: int) -> Proposal:
        proposal = super().sample(query, step)
        assert proposal.indptr_B1 is not None
        drawn_B = (np.arange(query.num_rows) + step) % 2
        return Proposal(
            ids_N=proposal.ids_N[np.repeat(drawn_B, self.m) == 1],
            log_expected_count_N=proposal.log_expected_count_N[np.repeat(drawn_B, self.m) == 1],
            indptr_B1=np.concatenate([[0], np.cumsum(drawn_B * self.m)]),
            distinct=False,
        )


class TakesThirdsByTurns(Honest):
    """Take another third of the classes at each step, with count 1; ``wrong``: state the share of steps instead."""

    wrong = 0.0

    def sample(self, query: Query, step: int) -> Proposal:
        ids = np.arange(step % 3, self.layer.num_classes, 3, dtype=np.int32)
        log_count = np.full(len(ids), np.log1p(-self.wrong), dtype=np.float32)
        rows = query.num_rows
        indptr_B1 = np.arange(rows + 1, dtype=np.int64) * len(ids)
        return Proposal(ids_N=np.tile(ids, rows), log_expected_count_N=np.tile(log_count, rows), indptr_B1=indptr_B1)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        count_M = np.where(ids_M % 3 == step % 3, 1 - self.wrong, 0)
        with np.errstate(divide="ignore"):
            return np.log(np.broadcast_to(count_M, (query.num_rows, len(ids_M)))).astype(np.float32)


class ForgetsItsTurns(TakesThirdsByTurns):
    wrong = 2 / 3


MISTAKES: list[tuple[str, type[Honest], dict[str, Any]]] = [
    ("proposals_are_well_formed", SharedIdsOutOfOrder, {}),
    ("proposals_are_well_formed", SaysDistinctAndRepeats, {}),
    ("proposals_are_well_formed", DoublePrecision, {}),
    ("proposals_are_well_formed", SkipsRows, {}),
    ("pure_in_seed_and_step", CarriesAGenerator, {}),
    ("steps_seeds_and_rows_differ", ForgetsTheStep, {}),
    ("steps_seeds_and_rows_differ", OneDrawForAllRows, {}),
    ("steps_seeds_and_rows_differ", Honest, {"by_chance": False}),
    ("same_bits_with_one_thread_and_two", AGeneratorForEachThread, {}),
    ("threads_may_change_after_construction", SizedByItsThreads, {}),
    ("counts_of_any_id_agree_with_the_proposal", SortsTheIdsAskedFor, {}),
    ("counts_of_targets_are_those_of_any_id", CountsOfTargetsOfTheFirstRow, {}),
    ("every_class_can_be_drawn_where_that_is_said", NeverTheFirstClass, {}),
    ("refresh_without_work_changes_nothing", RefreshesInSilence, {}),
    ("state_round_trip", ForgetsWhatItWas, {}),
    ("state_round_trip", KeepsAnAge, {}),
    ("very_few_classes", NeedsTwoClasses, {}),
    ("equal_and_zero_vectors", DividesByTheSpread, {}),
    ("vectors_that_are_not_numbers", LetsNotANumberThrough, {}),
    ("vectors_that_are_not_numbers", RefusesInManyWords, {}),
    ("vectors_that_are_not_numbers", Honest, {"refuses_nan": True}),
    ("mean_number_of_candidates_is_the_sum_of_the_counts", LogOfDrawsHasTheWrongSign, {}),
    ("frequencies_match_the_stated_counts", PopularityShiftedByOne, {}),
    ("frequencies_match_the_stated_counts", OneRowsCountsForAll, {}),
    ("frequencies_match_the_stated_counts", StatesUniformCounts, {}),
    ("partition_estimate_is_unbiased", StatesUniformCounts, {}),
    ("partition_estimate_is_unbiased", ForgetsItsTurns, {"can_draw_every_class": False}),
    ("counts_hold_in_a_normalised_layer", StatesUniformCounts, {}),
]


def test_there_is_a_mistake_for_every_check() -> None:
    assert {check for check, _, _ in MISTAKES} == {*CHECKS, *STATISTICS}


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_mistake_it_passes(check: str) -> None:
    CHECKS[check](case_of(Honest))


@pytest.mark.parametrize("check", STATISTICS)
def test_without_a_mistake_its_counts_are_true(check: str) -> None:
    STATISTICS[check](case_of(Honest), FEW)


def test_a_draw_for_the_batch_may_skip_rows() -> None:
    CHECKS["proposals_are_well_formed"](case_of(SkipsRows, draws_for_the_batch=True))
    CHECKS["steps_seeds_and_rows_differ"](case_of(OneDrawForAllRows, draws_for_the_batch=True))


@pytest.mark.parametrize("check", STATISTICS)
def test_which_classes_can_be_drawn_may_depend_on_the_step(check: str) -> None:
    STATISTICS[check](case_of(TakesThirdsByTurns, can_draw_every_class=False), FEW)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # wrong samplers compute with what is not a number
@pytest.mark.parametrize(("check", "sampler_class", "facts"), MISTAKES)
def test_a_mistake_is_caught(check: str, sampler_class: type[Honest], facts: dict[str, Any]) -> None:
    case = case_of(sampler_class, **facts)
    arguments: tuple[Any, ...] = (case,) if check in CHECKS else (case, FEW)
    with pytest.raises(Broken) as caught:
        (CHECKS | STATISTICS)[check](*arguments)
    assert len(str(caught.value)) > 20, "the message says what is wrong"


# ---------------------------------------------------------------- how small a mistake is seen


@pytest.mark.parametrize(
    ("tilt", "draws"), [(0.15, FEW), pytest.param(0.02, MANY, marks=pytest.mark.slow)], ids=["15 %", "2 %"]
)
def test_how_small_a_mistake_is_seen(tilt: float, draws: int) -> None:
    check = STATISTICS["frequencies_match_the_stated_counts"]
    with pytest.raises(Broken):
        check(case_of(type("Slightly", (Tilted,), {"tilt": tilt})), draws)
    check(case_of(Tilted), draws)


class Misstated(Sampler):
    """Draw as ``inner`` does and state other counts."""

    def __init__(self, inner: Sampler, state: Callable[[np.ndarray, Query], np.ndarray]) -> None:
        self.inner, self.state = inner, state

    def sample(self, query: Query, step: int) -> Proposal | Everything:
        return self.inner.sample(query, step)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        everyone = np.arange(NUM_CLASSES, dtype=np.int32)
        return self.state(self.inner.log_expected_count(query, everyone, step), query)[:, ids_M]


@pytest.mark.parametrize(
    "mistake",
    ["log m with the wrong sign", "another sampler's weights", "popularity shifted by one", "one row's counts"],
)
def test_what_public_code_got_wrong_is_seen_from_afar(mistake: str) -> None:
    """Real samplers with the wrong counts of public code fail beyond any doubt (1e-30), even with few draws."""
    layer, query = random_layer(), random_query()
    rff = cases_of("rff")["tree"].build(layer)
    everyone = np.arange(NUM_CLASSES, dtype=np.int32)
    name, case, state = {
        "log m with the wrong sign": ("rff", "tree", lambda log_count, _: log_count - 2 * np.log(40)),
        "another sampler's weights": (
            "uniform", "per_row_repeats", lambda _, query: rff.log_expected_count(query, everyone, 1)
        ),
        "popularity shifted by one": ("unigram", "per_row_repeats", lambda log_count, _: np.roll(log_count, 1, axis=1)),
        "one row's counts": (
            "quadratic", "steep", lambda log_count, query: np.repeat(log_count[:1], query.num_rows, axis=0)
        ),
    }[mistake]  # fmt: skip
    inner = cases_of(name)[case].build(layer)
    assert chi_square_score(frequencies_of(inner, query, FEW).score_S) < 5
    assert chi_square_score(frequencies_of(Misstated(inner, state), query, FEW).score_S) > norm.isf(1e-30)


@pytest.mark.parametrize("k", [1, 2, 5, 20, 120, 720])
def test_wilson_and_hilferty_err_on_the_safe_side(k: int) -> None:
    """A chi-square of k exceeds 5 standard deviations with a probability of at most 3e-7, and not much less."""
    low, high = 0.0, 1e5
    for _ in range(200):
        middle = (low + high) / 2
        if chi_square_score(np.full(k, np.sqrt(middle / k))) < 5:
            low = middle
        else:
            high = middle
    assert 1e-8 < chi2.sf(low, k) < 3e-7
