"""Own samplers and losses: every wrong type, shape, length, range, order and number is one line that names them."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from handed_over import FACTS, NO_ARRAYS, QUERY, ROWS, fuzz, refused, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.check.cases import NUM_CLASSES, random_layer
from runner.config import compose
from runner.contracts import Everything, ExampleDraw, Examples, Proposal, Query, TrainingFacts
from runner.door.examples import build_example_sampler
from runner.door.losses import checked_loss
from runner.door.samplers import build_sampler
from runner.errors import ConfigError
from runner.heads.classes import estimate
from runner.lgd.base import Draws, ExampleSampler, ExampleSamplerConfig
from runner.machine.clock import StageClock
from runner.output.losses import FullLoss, LogisticLoss, SampledSoftmaxLoss
from runner.registry import register_loss, register_sampler
from runner.samplers import Sampler, SamplerConfig
from runner.samplers.static import UniformConfig
from runner.training import loop
from runner.training.run import run

# ---------------------------------------------------------------- samplers of classes


@dataclass(frozen=True, kw_only=True)
class HandsOverConfig(SamplerConfig):
    name: str = "mine"
    hands_over: Any = None

    def build(self, *, layer: Any, training: TrainingFacts, seed: int) -> Any:
        return HandsOver(self.hands_over) if isinstance(self.hands_over, dict) else self.hands_over


class HandsOver(Sampler):
    """Return what it was given, method by method; an exception is raised."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def _give(self, name: str, default: Any) -> Any:
        given = self.given.get(name, default)
        if isinstance(given, Exception):
            raise given
        return given

    def sample(self, query: Query, step: int) -> Any:
        return self._give("sample", None)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> Any:
        return self._give("log_expected_count", None)

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Any:
        return self._give("log_expected_count_of_targets", None)

    @property
    def statistics(self) -> Any:
        return self._give("statistics", {"refreshes": 1.0})

    @property
    def chosen(self) -> Any:
        return self._give("chosen", {"tables": "8"})

    def state_dict(self) -> Any:
        return self._give("state_dict", {})


LAYER = random_layer()


def sampler_of(given: Any) -> Sampler:
    return build_sampler(HandsOverConfig(hands_over=given), layer=LAYER, training=FACTS, seed=0)


IDS = np.array([3, 7, 20, 44, 45, 119], dtype=np.int32)
COUNTS = np.linspace(-3, 0, len(IDS), dtype=np.float32)
SHARED = Proposal(ids_N=IDS, log_expected_count_N=COUNTS)
OWN = Proposal(
    ids_N=np.array([5, 9, 5, 8, 1, 3], dtype=np.int32),
    log_expected_count_N=COUNTS,
    indptr_B1=np.array([0, 2, 2, 4, 4, 5, 6]),
)


def changed(proposal: Proposal) -> st.SearchStrategy[Any]:
    """Proposals with one thing wrong, whatever the others are."""
    fields = {
        "ids_N": spoiled(proposal.ids_N, below=NUM_CLASSES),
        "log_expected_count_N": spoiled(proposal.log_expected_count_N, finite="nan inf -inf"),
        "distinct": st.sampled_from([None, "yes", 1, np.ones(6, dtype=bool)]),
    }
    if proposal.indptr_B1 is not None:
        others = [[0, 6, 3, 4, 4, 5, 6], [1, 2, 2, 4, 4, 5, 6], [0, 2, 2, 4, 4, 5, 7], [0, 2, 2, 4, -4, 5, 6]]
        arrays = st.sampled_from([np.array(other) for other in others])
        fields["indptr_B1"] = (spoiled(proposal.indptr_B1) | arrays).filter(lambda indptr: indptr is not None)
    return st.one_of([
        st.builds(lambda value, key=key: dataclasses.replace(proposal, **{key: value}), values)
        for key, values in fields.items()
    ])  # fmt: skip


@fuzz
@given(wrong=changed(SHARED) | changed(OWN) | st.sampled_from([*NO_ARRAYS, IDS, Everything(7), QUERY]))
def test_proposals(wrong: Any) -> None:
    refused(lambda: sampler_of({"sample": wrong}).sample(QUERY, 3), "sampler=mine", 3)


WRONG_PROPOSALS = {
    "candidate ids must lie in [0, 119], not in [3, 120]": {"ids_N": np.append(IDS[:-1], [120]).astype(np.int32)},
    "shared ids must ascend, but 45 comes after 119": {"ids_N": IDS[::-1].copy()},
    "distinct is true, but the shared candidates have class 7 twice": {
        "ids_N": np.array([3, 7, 7, 8, 9, 10], dtype=np.int32)
    },
    "distinct is true, but row 2 has a class twice": {
        "ids_N": np.array([5, 9, 8, 8, 1, 3], dtype=np.int32), "indptr_B1": OWN.indptr_B1,
    },
    "log expected counts must be finite, but number 2 of (6,) is nan": {
        "log_expected_count_N": np.array([0, 0, np.nan, 0, 0, 0], dtype=np.float32)
    },
    "distinct is true, so log expected counts are at most 0, but class 44 has 0.5": {
        "log_expected_count_N": np.array([0, 0, 0, 0.5, 0, 0], dtype=np.float32)
    },
    "6 candidates must have as many log expected counts, not 5": {"log_expected_count_N": COUNTS[:5]},
    "the proposal has no candidate": {"ids_N": IDS[:0], "log_expected_count_N": COUNTS[:0]},
    "indptr_B1 must go from 0 to 6, not from 0 to 5": {"indptr_B1": np.array([0, 2, 2, 4, 4, 5, 5])},
}  # fmt: skip


@pytest.mark.parametrize("says", WRONG_PROPOSALS)
def test_what_is_said_of_a_proposal(says: str) -> None:
    proposal = dataclasses.replace(SHARED, **WRONG_PROPOSALS[says])
    found = refused(lambda: sampler_of({"sample": proposal}).sample(QUERY, step=9), "sampler=mine", 9)
    assert found == f"{says}; python -m runner.check mine 'plugins=[{own_place()}]' says more"


@dataclass(frozen=True, kw_only=True)
class TakesAllConfig(HandsOverConfig):
    losses: ClassVar[tuple[str, ...]] = ("full",)


def test_all_classes_go_with_the_full_loss_alone() -> None:
    """Their scores know no other loss, so that it would be left out without a word."""
    everything = Everything(NUM_CLASSES)
    found = refused(lambda: sampler_of({"sample": everything}).sample(QUERY, 1), "sampler=mine", 1)
    assert found.startswith("the loss is one of the listed candidates, but sample returned a Everything")
    for made in (SHARED, everything):
        config = TakesAllConfig(hands_over={"sample": made})
        sampler = build_sampler(config, layer=LAYER, training=FACTS, seed=0)
        if made is everything:
            assert sampler.sample(QUERY, 1) is everything
        else:
            assert refused(lambda s=sampler: s.sample(QUERY, 1), "sampler=mine", 1).startswith(
                "the loss is the full one"
            )
    with pytest.raises(ConfigError, match=r"loss=mine: LikeFull\.apply would never be called"):
        register_loss("mine", LikeFull)


@dataclass(frozen=True, kw_only=True)
class LikeFull(FullLoss):
    like: ClassVar[str | None] = "full"

    def apply(self, rows: Any) -> Any:
        return rows.softmax()


def own_place() -> str:
    path = Path(__file__)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@given(st.data())
@settings(max_examples=30)
def test_right_proposals_pass_unchanged(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(st.integers(0, NUM_CLASSES - 1), max_size=30), min_size=ROWS, max_size=ROWS))
    distinct = data.draw(st.booleans())
    rows = [list(dict.fromkeys(row)) if distinct else row for row in [[1], *rows[1:]]]
    ids = np.array([number for row in rows for number in row], dtype=np.int32)
    right = Proposal(
        ids_N=ids, log_expected_count_N=np.zeros(len(ids), dtype=np.float32), distinct=distinct,
        indptr_B1=np.cumsum([0, *map(len, rows)]),
    )  # fmt: skip
    sampler, loss = sampler_of({"sample": right}), SampledSoftmaxLoss(name="sampled_softmax")
    assert sampler.sample(QUERY, 1) is right
    assert np.isfinite(estimate(LAYER, sampler, loss, QUERY, 1, StageClock()).loss_B).all()


OF_TARGETS = np.full(len(QUERY.targets_P), -1, dtype=np.float32)


@fuzz
@given(wrong=spoiled(OF_TARGETS, finite="nan inf -inf"))
def test_counts_of_targets(wrong: Any) -> None:
    sampler = sampler_of({"log_expected_count_of_targets": wrong})
    refused(lambda: sampler.log_expected_count_of_targets(QUERY, SHARED, 4), "sampler=mine", 4)


OF_ANY = np.full((ROWS, len(IDS)), -1, dtype=np.float32)


@fuzz
@given(wrong=spoiled(OF_ANY, finite="nan inf").filter(lambda it: getattr(it, "dtype", None) not in ("f8", ">f4")))
def test_counts_of_any_class(wrong: Any) -> None:
    """They may have another precision, because whoever asks for them converts them."""
    sampler = sampler_of({"log_expected_count": wrong})
    if type(wrong) is not np.ndarray and isinstance(wrong, np.ndarray):
        return
    refused(lambda: sampler.log_expected_count(QUERY, IDS, 4), "sampler=mine", 4)


@pytest.mark.parametrize("given_", [
    {"statistics": 3}, {"statistics": {"a": np.float32(1)}}, {"statistics": {1: 1.0}}, {"chosen": {"a": 3}},
    {"chosen": None}, {"state_dict": None}, {"state_dict": {"a": [1]}}, {"state_dict": {2: IDS}},
    {"state_dict": {"a": np.array([None])}}, {"statistics": ZeroDivisionError("a / b")},
])  # fmt: skip
def test_what_is_written_down(given_: dict[str, Any]) -> None:
    """It is read before training, not only when hours are over."""
    refused(lambda: sampler_of(given_), "sampler=mine")


def test_an_error_of_a_plugin_names_its_place() -> None:
    sampler = sampler_of({"sample": IndexError("index 12 is\nout of bounds")})
    found = refused(lambda: sampler.sample(QUERY, 2), "sampler=mine", 2)
    assert found.startswith("IndexError at test_wrong_proposals.py:"), found
    assert ": index 12 is out of bounds; python -m runner.check" in found
    for wrong in (None, 3, IDS, Sampler):
        assert "build must return a Sampler" in refused(lambda wrong=wrong: sampler_of(wrong), "sampler=mine")


# ---------------------------------------------------------------- samplers of examples


@dataclass(frozen=True, kw_only=True)
class ExamplesConfig(ExampleSamplerConfig):
    name: str = "mine"
    hands_over: Any = None

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> Any:
        made = SimpleExamples()
        made.given = self.hands_over
        return made


class SimpleExamples(ExampleSampler):
    given: Any = None

    def draw(self, step: int, view: Any = None) -> Any:
        return self.given

    def draws(self, first_step: int, steps: int, view: Any = None) -> Any:
        return self.given

    def steps_without_refresh(self, step: int) -> Any:
        return self.given

    def chances(self) -> Any:
        return self.given


def examples_of(given: Any) -> Any:
    config = ExamplesConfig(hands_over=given)
    return build_example_sampler(config, examples=Examples(count=72), batch_size=4, seed=0)


ROWS_B = np.array([5, 71, 0, 33])
LOGS = np.zeros(4)
BEGIN = np.array([0, 1, 4])
A_DRAW = {"rows_B": spoiled(ROWS_B, below=72), "log_expected_count_B": spoiled(LOGS, finite="nan -inf")}
SOME_DRAWS = {
    "rows_M": spoiled(ROWS_B, below=72),
    "begin_S1": spoiled(BEGIN) | st.sampled_from([np.array(b) for b in ([0, 4, 4], [0, 5, 4], [1, 2, 4], [0, 1, 3])]),
    "count_M": spoiled(np.ones(4), finite="nan") | st.just(np.array([1.0, 0, 1, 1])),
}


@fuzz
@given(st.data())
def test_draws_of_examples(data: st.DataObject) -> None:
    is_none = {"log_expected_count_B", "count_M"}  # where None is right
    key = data.draw(st.sampled_from([*A_DRAW, *SOME_DRAWS]))
    wrong = data.draw((A_DRAW | SOME_DRAWS)[key].filter(lambda it: it is not None or key not in is_none))
    if key in A_DRAW:
        draw = ExampleDraw(**{"rows_B": ROWS_B, "log_expected_count_B": LOGS} | {key: wrong})
        # A row more, or less, is another draw; then only the counts do not fit.
        refused(lambda: examples_of(draw).draw(7), "batch_sampler=mine", 7)
    else:
        draws = Draws(**{"rows_M": ROWS_B, "begin_S1": BEGIN, "count_M": np.ones(4)} | {key: wrong})
        refused(lambda: examples_of(draws).draws(7, 2), "batch_sampler=mine", 7)


def test_what_is_said_of_examples() -> None:
    def said(draw: Any) -> str:
        return refused(lambda: examples_of(draw).draw(7), "batch_sampler=mine", 7).partition(";")[0]

    assert said(ExampleDraw(rows_B=np.array([3, 73]))) == "row 73 of 72 examples"
    assert said(ExampleDraw(rows_B=np.array([3, -1]))) == "row -1 of 72 examples"
    assert said(ExampleDraw(rows_B=np.array([3, 3]))).startswith("rows_B has a row twice")
    assert said(ExampleDraw(rows_B=ROWS_B[:0])).startswith("rows_B is empty")
    assert said(ROWS_B) == "draw must return an ExampleDraw, not a ndarray"
    right = ExampleDraw(rows_B=np.array([3, 3]), log_expected_count_B=np.array([0, np.inf]))
    assert examples_of(right).draw(7) is right
    for wrong in (0, -1, 2.5, None, True):
        refused(lambda wrong=wrong: examples_of(wrong).steps_without_refresh(3), "batch_sampler=mine", 3)
    refused(lambda: examples_of(LOGS).chances(), "batch_sampler=mine")


# ---------------------------------------------------------------- losses


@dataclass(frozen=True, kw_only=True)
class MyLoss(SampledSoftmaxLoss):
    like: ClassVar[str | None] = "sampled_softmax"
    name: str = "mine"
    act: Any = None

    def apply(self, rows: Any) -> Any:
        return self.act(rows) if self.act else super().apply(rows)


@dataclass(frozen=True, kw_only=True)
class MyPower(LogisticLoss):
    corrects_candidates = True
    name: str = "mine"
    given: Any = None

    def power(self, num_candidates_B: np.ndarray, num_classes: int) -> Any:
        return np.ones(len(num_candidates_B)) if self.given is None else self.given


def losses_by(loss: Any, proposal: Proposal = OWN) -> np.ndarray:
    return estimate(LAYER, sampler_of({"sample": proposal}), checked_loss(loss), QUERY, 1, StageClock()).loss_B


def _then(act: Callable[[Any, np.ndarray], Any]) -> Callable[[Any], Any]:
    return lambda rows: act(rows, rows.softmax())


def _spoil(array: np.ndarray, number: float) -> None:
    array[1] = number


@fuzz
@given(wrong=spoiled(np.ones(ROWS, dtype=np.float32), finite="nan inf -inf"), proposal=st.sampled_from([SHARED, OWN]))
def test_losses(wrong: Any, proposal: Proposal) -> None:
    refused(lambda: losses_by(MyLoss(act=_then(lambda *_: wrong)), proposal), "loss=mine")


@pytest.mark.parametrize(("act", "says"), [
    (lambda rows: np.zeros(ROWS, dtype=np.float32), "apply left the logits of the targets"),
    (_then(lambda rows, _: rows.softmax()), "apply asks for softmax after the logits were replaced"),
    (_then(lambda rows, done: (_spoil(rows.candidate_N, np.nan), done)[1]), "a gradient in candidate_N is not finite"),
    (_then(lambda rows, done: (_spoil(rows.target_P, np.inf), done)[1]), "a gradient in target_P is not finite"),
    (lambda rows: rows.no_such_thing, "AttributeError at test_wrong_proposals.py:"),
])  # fmt: skip
def test_gradients_of_losses(act: Callable[[Any], Any], says: str) -> None:
    assert refused(lambda: losses_by(MyLoss(act=act)), "loss=mine").startswith(says)


@fuzz
@given(wrong=spoiled(np.ones(ROWS), finite="nan inf -inf").filter(lambda it: not _is_numbers(it)))
def test_powers(wrong: Any) -> None:
    if wrong is not None:
        refused(lambda: losses_by(MyPower(given=wrong)), "loss=mine")


def _is_numbers(value: Any) -> bool:
    """Any precision will do, because a power is converted."""
    is_array = isinstance(value, np.ndarray) and value.shape == (ROWS,) and value.dtype.kind in "fiu"
    return is_array and bool(np.isfinite(value).all())


def test_a_right_loss_passes_unchanged() -> None:
    usual = losses_by(SampledSoftmaxLoss(name="sampled_softmax"))
    assert np.array_equal(losses_by(MyLoss()), usual)
    assert np.isfinite(losses_by(MyPower())).all()


@dataclass(frozen=True, kw_only=True)
class HalfConfig(UniformConfig):
    """Draw as ``uniform`` does, but never half of the classes; the class that samples is this package's."""

    num_samples: int = 5

    def distribution(self, label_counts_N: np.ndarray) -> np.ndarray:
        q_N = (np.arange(len(label_counts_N)) < len(label_counts_N) // 2).astype(np.float64)
        return q_N / q_N.sum()


@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_an_inherited_sampler_is_checked_by_either_engine(engine: str) -> None:
    layer = random_layer(engine=engine)
    with np.errstate(divide="ignore"):
        sampler = build_sampler(HalfConfig(name="mine"), layer=layer, training=FACTS, seed=0)
    query = dataclasses.replace(QUERY, targets_P=np.sort(NUM_CLASSES - 1 - QUERY.targets_P))
    proposal: Any = sampler.sample(query, 7)
    assert (proposal.ids_N < NUM_CLASSES // 2).all()
    found = refused(lambda: sampler.log_expected_count_of_targets(query, proposal, 7), "sampler=mine", 7)
    assert "has log expected count -inf, but can_draw_every_class is true" in found


# ---------------------------------------------------------------- a whole run


@dataclass(frozen=True, kw_only=True)
class RareConfig(UniformConfig):
    """Draw a class that there is not, at step 7."""

    num_samples: int = 5

    def build(self, *, layer: Any, training: TrainingFacts, seed: int) -> Any:
        sampler = super().build(layer=layer, training=training, seed=seed)
        real = sampler.sample

        def sample(query: Query, step: int) -> Any:
            proposal = real(query, step)
            assert isinstance(proposal, Proposal)
            ids_N = proposal.ids_N.copy()
            ids_N[-1] += 10**6 * (step == 7)
            return dataclasses.replace(proposal, ids_N=ids_N)

        sampler.sample = sample  # type: ignore[method-assign]
        return sampler


@pytest.mark.usefixtures("registrations_stay_here", "own_data_dir")
def test_a_run_ends_in_one_line_and_is_a_failed_one(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "warm_up", lambda config: None)
    register_sampler("rare", RareConfig)
    words = ["preset=smoke", "dataset=xmc", f"dataset.path={toy_folder}", "sampler=rare", "batch_size=16"]
    config = compose([*words, "max_steps=9", f"results_dir={tmp_path}"])
    found = refused(lambda: run(config), "sampler=rare", 7)
    assert found.startswith("candidate ids must lie in [0, 49], not in [")
    summary = json.loads((config.run_dir / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["error"].startswith("PluginError: sampler=rare: step 7: candidate ids")
