"""What a reader sees in figures: words on axes, plain numbers, methods that only count as levels, and notes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.config import CONF
from runner.data.shared.cards import dataset_title
from runner.report.figures.axis_words import WORDS, words_of
from runner.report.figures.curves import Alike, curves, drawn, mean_curve
from runner.report.figures.data import figure_data
from runner.report.figures.direct_labels import apart
from runner.report.figures.explore import explore
from runner.report.figures.plots import distribution_panel
from runner.report.figures.style import Look, look_of_value, new_figure
from runner.report.numbers.records import RunRecord, all_records, record_of
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec, load_table, table_names

Write = Callable[..., Path]


def test_every_figure_has_notes() -> None:
    specs = [load_table(name) for name in table_names()]
    assert [spec.name for spec in specs if spec.is_figure and not spec.notes] == []


# ---------------------------------------------------------------- words on axes


def _record(unit: str, **sampler: Any) -> RunRecord:
    record = RunRecord(Path("no folder"))
    summary = {"config": {"sampler": sampler}, "measures": [], "watched": "valid", "unit": unit}
    record.__dict__.update(damage="", summary=summary)
    return record


def test_swept_keys_have_words() -> None:
    own, full = _record("token", num_samples=20, shared=False), _record("token", name="full")
    assert words_of("sampler.num_samples", [full, own]) == "draws a token"
    assert words_of("sampler.num_samples", [_record("row", num_samples=20)]) == "draws a row"
    assert words_of("sampler.num_samples", [own, _record("token", num_samples=9, shared=True)]) == "draws"
    assert words_of("sampler.codewords", [own]) == "codewords a codebook"
    assert words_of("model.hidden", [own]) == "model.hidden", "what has no words keeps its key"


@pytest.mark.parametrize("key", WORDS)
def test_words_are_those_of_settings(key: str) -> None:
    group, _, name = key.partition(".")
    files = (CONF / group).glob("*.yaml") if (CONF / group).is_dir() else [CONF / "config.yaml"]
    assert any(f"\n{name}:" in text or f"\n  {name}:" in text for text in (file.read_text() for file in files))


def test_plots_of_chosen_runs_have_the_words(swept: Path) -> None:
    (axis,) = explore(all_records(swept), ["sampler.K"]).figure.axes
    assert axis.get_xlabel() == WORDS["sampler.K"]
    (axis,) = explore(all_records(swept), ["sampler.K", "sampler.L"]).figure.axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == (WORDS["sampler.L"], WORDS["sampler.K"])


def test_data_sets_are_called_by_their_titles() -> None:
    assert dataset_title("wordnet_related") == "WordNet related synsets"
    assert dataset_title("synthetic_xc") == "synthetic_xc", "it has no card"


# ---------------------------------------------------------------- plain numbers


def test_probabilities_by_rank_have_plain_ticks() -> None:
    figure, axes = new_figure(1, 1, width=3, height=3)
    record = {"rank_end": [1, 10, 20000], "truth": [0.5, 0.3, 0.2], "proposal": [0.2, 0.2, 0.6]}
    distribution_panel(axes[0, 0], record, Look("#123456", "o"))
    figure.draw_without_rendering()
    low, high = axes[0, 0].get_ylim()
    seen = [tick.label1.get_text() for tick in axes[0, 0].yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert seen == ["0.000001", "0.0001", "0.01", "1"]


# ---------------------------------------------------------------- methods that only count


@pytest.fixture
def lines(
    toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]], write_run: Write
) -> Callable[..., list[Alike]]:
    """Write a run for each list of (step, seconds, P@1)."""

    def write(**courses: list[tuple[int, float, float]]) -> list[Alike]:
        found = []
        for run in planned(toy["curves"].grid, "small"):
            if run.method not in courses:
                continue
            folder = write_run(run, [0.5])
            seen = [
                {"kind": "evaluation", "step": step, "epoch": place, "train_seconds": seconds, "test_subset/p@1": value}
                for place, (step, seconds, value) in enumerate(courses[run.method], start=1)
            ]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in seen))
            records = (record_of(run),)
            found.append(Alike(label=run.method, method=run.method, records=records, look=look_of_value(0, 2)))
        return found

    return write


def test_what_counts_in_one_step_is_a_level_beside_what_trains(lines: Callable[..., list[Alike]]) -> None:
    both = lines(full=[(50, 10.0, 0.2), (100, 20.0, 0.4)], nce=[(1, 0.001, 0.3)], lsh_label=[(50, 9.0, 0.2)])
    found = {line.label: line for line in drawn([mean_curve(e, "seconds", "test_subset/p@1", 1) for e in both], "full")}
    assert [found[name].is_level for name in ("full", "nce", "lsh_label")] == [False, True, False]
    assert found["nce"].y_P.tolist() == [30]
    assert found["full"].is_reference


def test_what_counts_alone_is_a_point(lines: Callable[..., list[Alike]]) -> None:
    (line,) = drawn([mean_curve(e, "seconds", "test_subset/p@1", 1) for e in lines(nce=[(1, 0.001, 0.3)])], "full")
    assert not line.is_level, "without a course the axis would have nothing to show"


# ---------------------------------------------------------------- names beside lines


def test_runs_made_side_by_side_have_no_seconds_in_a_figure(
    toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]], write_run: Write
) -> None:
    spec = replace(toy["curves"], against=("seconds", "epoch"))
    runs = planned(spec.grid, "small")
    folders = [write_run(run, [0.2, 0.4]) for run in runs]
    shown = [spec.grid.dataset(name) for name in dict.fromkeys(run.dataset for run in runs)]

    def axes() -> set[str]:
        (figure,) = curves(spec, shown, runs).values()
        return {axis.get_xlabel() for axis in figure.axes if axis.axison}

    assert axes() == {"seconds of training", "epochs"}
    assert figure_data(spec, runs)["train_seconds"].notna().all()
    for folder in folders:
        provenance = folder / "provenance.json"
        provenance.write_text(json.dumps({**json.loads(provenance.read_text()), "parallel_jobs": 2}))
    assert axes() == {"epochs"}, "an empty panel tells nothing"
    assert figure_data(spec, runs)["train_seconds"].isna().all()


def test_names_lie_around_the_ends_of_their_lines() -> None:
    def places(*heights: float) -> list[float]:
        return apart(np.array(heights), 200.0).tolist()

    assert places(20.0, 100.0) == [20, 100], "where there is room, a name is as high as its end"
    assert places(99.0, 100.0, 101.0) == [89, 100, 111], "a bundle spreads both ways"
    assert places(1.0, 2.0) == [0, 11], "but not below the panel"
    assert places(199.0, 200.0) == [189, 200], "nor above it"
    assert places() == []
