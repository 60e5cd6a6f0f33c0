"""Levels: a share of the best, when it is first reached, who is first, and what a table and a figure of them say."""

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner import REPOSITORY
from runner.contracts import Measure
from runner.errors import ConfigError
from runner.report.figures.data import as_csv, figure_data
from runner.report.figures.levels import firsts
from runner.report.numbers.levels import COSTS, GOALS, PERCENTS, Courses, as_frame, first_reaching, level, metric_name
from runner.report.numbers.records import FINISHED
from runner.report.pages import levels as pages
from runner.report.render import render
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec, load_table
from runner.training.files import write_atomically

Plan = Callable[..., list[PlannedRun]]
Write = Callable[..., Path]
Pick = Callable[..., PlannedRun]

P_AT_1 = Measure(key="p@1", label="P@1", unit="%", scale=100, decimals=2, higher_is_better=True, headline=True)
PPL = Measure(key="ppl", label="perplexity", unit="", scale=1, decimals=2, higher_is_better=False, headline=True)


def courses(values: dict[tuple[str, int], list[float]], measure: Measure = P_AT_1, **statuses: str) -> Courses:
    """Return courses of an evaluation an epoch, of 10 steps and one second each; unigram's seconds are halves."""
    rows = [
        {
            "method": method, "seed": seed, "run_id": f"{method}-{seed}", "epoch": float(epoch), "step": 10 * epoch,
            "train_seconds": epoch / 2 if method == "unigram" else float(epoch), "value": value,
        }
        for (method, seed), found in values.items()
        for epoch, value in enumerate(found, start=1)
    ]  # fmt: skip
    planned = dict.fromkeys(values, FINISHED) | {(method, 0): why for method, why in statuses.items()}
    return Courses(
        dataset="toy", baseline="full", metric=f"valid/{measure.key}", measure=measure, points=pd.DataFrame(rows),
        statuses=planned, examples_per_step=4, unit="rows",
    )  # fmt: skip


# ---------------------------------------------------------------- what a level is


@pytest.mark.parametrize(("percent", "rising", "falling"), [(100, 0.5, 0.5), (90, 0.45, 0.55), (80, 0.4, 0.6)])
def test_a_level_lacks_of_the_best_or_exceeds_it(percent: int, rising: float, falling: float) -> None:
    assert level(0.5, percent, higher_is_better=True) == pytest.approx(rising)
    assert level(0.5, percent, higher_is_better=False) == pytest.approx(falling)


def test_the_first_evaluation_counts_though_later_ones_are_worse() -> None:
    curve = [(1.0, 0.1), (2.0, 0.5), (3.0, 0.3)]
    assert first_reaching(curve, 0.4, higher_is_better=True) == 2
    assert first_reaching(curve, 0.6, higher_is_better=True) is None
    assert first_reaching(curve, 0.05, higher_is_better=False) is None
    assert first_reaching(curve, 0.3, higher_is_better=False) == 1


# ---------------------------------------------------------------- when it is reached


def test_costs_are_means_over_seeds_of_levels_of_their_own() -> None:
    """Full softmax's best is 0.5 and 1.0 by seed, so 80 % is 0.4 and 0.8."""
    found = courses({
        ("full", 0): [0.2, 0.4, 0.5], ("full", 1): [0.2, 0.9, 1.0],
        ("unigram", 0): [0.4, 0.4, 0.4], ("unigram", 1): [0.4, 0.5, 0.8],
    })  # fmt: skip
    assert found.reached("full", "seconds", 80).each == (2, 2)
    assert found.reached("unigram", "seconds", 80).each == (0.5, 1.5)
    assert found.reached("unigram", "seconds", 80).mean == 1
    assert found.reached("unigram", "steps", 80).each == (10, 30)
    assert found.reached("unigram", "examples", 80).each == (40, 120), "10 steps of 4 rows are an epoch"
    assert [method for method, _ in found.ranking(80)] == ["unigram", "full"]
    never = found.reached("unigram", "seconds", 98)
    assert (never.status, never.reached, never.seeds) == ("never (0 of 2)", 0, 2)
    assert math.isnan(never.mean)


def test_never_says_how_many_seeds_got_there() -> None:
    found = courses({("full", 0): [0.5], ("full", 1): [0.5], ("nce", 0): [0.5], ("nce", 1): [0.3]})
    assert found.reached("nce", "seconds", 80).status == "never (1 of 2)"
    assert found.ranking(80)[0][0] == "full"
    assert len(found.ranking(80)) == 1


def test_the_goal_is_of_ends_of_epochs_and_not_of_the_clock() -> None:
    found = courses({("full", 0): [0.3, 0.9, 0.5]})
    found.points.loc[1, "epoch"] = 1.7
    assert found.goals["full"] == {0: 0.5}
    assert found.reached("full", "seconds", 100).each == (2,), "the clock's evaluation may reach it"


def test_the_other_goal_is_of_the_method_that_ends_best_on_average() -> None:
    found = courses({
        ("full", 0): [0.5], ("full", 1): [0.5], ("nce", 0): [0.9], ("nce", 1): [0.0],
        ("unigram", 0): [0.5, 0.6], ("unigram", 1): [0.6],
    })  # fmt: skip
    assert found.best_method == "unigram"
    assert found.goals["all"] == {0: 0.6, 1: 0.6}
    assert found.reached("unigram", "steps", 100, "all").each == (20, 10)
    assert found.reached("full", "steps", 100, "all").status == "never (0 of 2)"


def test_lower_perplexity_is_better() -> None:
    found = courses({("full", 0): [200, 120, 100], ("unigram", 0): [130, 109, 104]}, PPL)
    assert found.reached("full", "seconds", 80).each == (2,), "120 is 20 % above 100"
    assert found.reached("unigram", "seconds", 90).each == (1,)
    assert found.reached("unigram", "seconds", 98).status == "never (0 of 1)"
    assert found.best_method == "full"


def test_what_is_missing_is_a_status() -> None:
    found = courses({("full", 0): [0.5], ("nce", 0): [0.5]}, topk="diverged", lsh="not run")
    assert found.reached("topk", "seconds", 80).status == "diverged"
    assert found.reached("lsh", "steps", 100).status == "not run"
    found.points["train_seconds"] = found.points["train_seconds"].where(found.points["method"] != "nce")
    assert found.reached("nce", "seconds", 80).status == "no seconds"
    assert found.reached("nce", "steps", 80).each == (10,)
    assert found.clock == "seconds"
    alone = courses({("nce", 0): [0.5]}, full="failed")
    assert alone.reached("nce", "seconds", 80).status == "baseline not run"
    assert alone.ranking(80) == []


def test_without_any_seconds_methods_are_compared_by_steps() -> None:
    found = courses({("full", 0): [0.1, 0.5], ("nce", 0): [0.5]})
    found.points["train_seconds"] = math.nan
    assert found.clock == "steps"
    assert next((first.percent, first.method, first.paid) for first in firsts(found)) == (80, "nce", 10)


def test_the_csv_has_every_level_by_the_names_of_columns_of_numbers() -> None:
    frame = as_frame("toy", [courses({("full", 0): [0.5], ("nce", 0): [0.1]}, topk="not run")])
    assert len(frame) == 3 * len(PERCENTS) * len(COSTS) * len(GOALS)
    named = frame.set_index(["method", "metric"])
    assert named.loc[("full", "seconds_to_90pct"), "ours"] == 1
    assert named.loc[("nce", metric_name("steps", 98, "all")), "status"] == "never (0 of 1)"
    assert named.loc[("topk", "examples_to_80pct"), "run_ids"] == ""


# ---------------------------------------------------------------- the table of a grid


@pytest.fixture
def spec(write_tables: Write, grid_text: str) -> TableSpec:
    text = "title: Toy\nkind: levels\ngrid: toy\ncurves: toyc\nnotes: [A note.]\n"
    return load_table("toy", write_tables(grid=grid_text, toy=text))


def test_a_table_is_made_of_runs_and_of_their_curves_alike(
    spec: TableSpec, planned: Plan, pick: Pick, write_run: Write, results_dir: Path, tmp_path: Path
) -> None:
    runs = planned(spec.grid, "medium")
    for seed in (0, 1):
        write_run(pick(runs, "full", seed), [0.30, 0.50, 0.54, 0.60], seconds=80)
        write_run(pick(runs, "lsh_label", seed), [0.10, 0.35, 0.55, 0.62 - 0.05 * seed], seconds=4)
    *_, page = render([spec], "medium", results_dir)
    folder = page.parent
    text = (folder / "toy.md").read_text()
    assert "| 90 %  |   54.00 |    LSH Label |    3.0 ± 0.0 | Full softmax |      60.0 ± 0.0 |".replace(" ", "") in (
        text.replace(" ", "")
    )
    assert "never (1 of 2)" in text, "seed 1 ends at 57, below 98 % of 60"
    assert "not run: NCE" in text
    assert "A note." in text
    assert "data:image/png" in page.read_text()
    assert (folder / "toy_wordnet_hypernym.svg").stat().st_size > 1000
    numbers = pd.read_csv(folder / "toy.csv")
    rows = numbers[numbers["ours"].notna() | numbers["status"].str.startswith("never")]
    assert rows["run_ids"].str.len().min() > 0

    write_atomically(tmp_path / "toyc.csv", as_csv(figure_data(spec, runs)))
    again = pages.levels_of_csv(spec, "medium", tmp_path / "toyc.csv", "make")
    pages.write(again, tmp_path / "again")
    assert (tmp_path / "again" / "toy.csv").read_text() == (folder / "toy.csv").read_text()


def test_without_a_run_there_is_a_status_and_no_number(spec: TableSpec, results_dir: Path) -> None:
    *_, page = render([spec], "small", results_dir)
    text = (page.parent / "toy.md").read_text()
    assert "WordNet hypernyms: not run." in text
    assert "|" not in text
    assert pd.read_csv(page.parent / "toy.csv")["ours"].isna().all()
    assert not [*page.parent.glob("toy*.png")]


def test_data_that_are_not_prepared_are_a_status(write_tables: Write, grid_text: str, results_dir: Path) -> None:
    text = "title: Toy\nkind: levels\ngrid: toy\ncurves: toyc\n"
    spec = load_table("toy", write_tables(grid=grid_text, toy=text))
    *_, page = render([spec], "paper", results_dir)
    assert "- Amazon-670K: skipped: data not prepared (" in (page.parent / "toy.md").read_text()


def test_curves_go_with_levels_alone(write_tables: Write, grid_text: str) -> None:
    for kind in ("kind: levels\n", "kind: curves\ncurves: toyc\n"):
        with pytest.raises(ConfigError, match="curves: kind: levels needs it"):
            load_table("toy", write_tables(grid=grid_text, toy=f"title: Toy\ngrid: toy\n{kind}"))


# ---------------------------------------------------------------- what is committed


@pytest.fixture(scope="module")
def made() -> list[tuple[Path, Any]]:
    """Compute all committed tables of levels anew."""
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    try:
        return [*importlib.import_module("make_levels").found()]
    finally:
        sys.path.pop(0)


def test_committed_levels_are_those_of_the_committed_curves(made: list[tuple[Path, Any]]) -> None:
    assert len(made) >= 5
    for folder, levels in made:
        pictures = [folder / f"{levels.spec.name}_{found.dataset}.png" for found in levels.courses if found.bests]
        for suffix, text in pages.texts(levels, pages.document(levels, pictures)).items():
            committed = folder / f"{levels.spec.name}.{suffix}"
            assert committed.read_text() == text, f"make generated renews {committed}"
        assert all(path.is_file() for path in pictures)


def test_curves_are_a_figure_of_the_same_grid(made: list[tuple[Path, Any]]) -> None:
    for _, levels in made:
        curves = load_table(levels.spec.curves)
        assert curves.kind == "curves"
        assert curves.grid == levels.spec.grid
