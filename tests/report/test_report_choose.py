"""The first part of the report helps to choose: for each kind of data, extreme classification first."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.data.sequences.synthetic import SyntheticLogConfig
from runner.errors import ConfigError
from runner.methods.catalogue import known_methods
from runner.report.pages import choose as module
from runner.report.pages.choose import choices, guide
from runner.report.pages.page import Choice
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import TableSpec, load_table, table_names

NUMBERS = "kind: numbers\ncolumns: [{name: P@1, metric: test/p@1}]\n"
OF_ROWS = f"title: Toy\n{NUMBERS}grid: toy\nhelps_to_choose: Extreme classification\n"
UNLESS = f"{OF_ROWS}helps_to_choose_unless: exact\n"
Write = Callable[..., Path]


@pytest.fixture
def tables(write_tables: Write, grid_text: str) -> dict[str, TableSpec]:
    """Load ``exact`` and ``short`` (used unless a run of ``exact`` has finished), which have runs of their own."""
    folder = write_tables(grid=grid_text, exact=OF_ROWS.replace("grid: toy", "grid: other"), short=UNLESS)
    (folder / "grid" / "other.yaml").write_text(grid_text.replace("epochs=4", "epochs=5"))
    return {name: load_table(name, folder) for name in ("exact", "short")}


def runs_of(spec: TableSpec, results_dir: Path) -> list[PlannedRun]:
    return expand(spec.grid, "small", results_dir)


def test_short_runs_serve_until_the_better_table_has_a_finished_run(
    tables: dict[str, TableSpec], write_run: Write, results_dir: Path
) -> None:
    shown = [(spec, runs_of(spec, results_dir)) for spec in tables.values()]
    assert guide(shown) == ()
    for run in shown[1][1]:
        write_run(run, [0.2, 0.4], p1=0.4)
    (choice,) = guide(shown)
    assert choice.title == "Extreme classification: WordNet hypernyms"
    assert choice.frame["P@1 (%)"].tolist() == ["40.00"] * 3
    assert [found.title for found in guide(shown[1:])] == [choice.title], "the other table need not be rendered"
    write_run(shown[0][1][0], [0.2, 0.4], p1=0.6)
    (choice,) = guide(shown)
    assert choice.frame["P@1 (%)"].tolist() == ["60.00", "not run", "not run"]


def test_extreme_classification_comes_first(
    tables: dict[str, TableSpec], results_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_table(spec: TableSpec, runs: list[PlannedRun]) -> list[Choice]:
        return [Choice(title=spec.helps_to_choose, caption="", frame=pd.DataFrame())]

    monkeypatch.setattr(module, "choices", of_table)
    spec = tables["exact"]
    runs = runs_of(spec, results_dir)
    log = SyntheticLogConfig(name="synthetic_log")
    of_logs = [dataclasses.replace(run, config=dataclasses.replace(run.config, dataset=log)) for run in runs]
    other = dataclasses.replace(spec, name="another", helps_to_choose="Logs")
    titles = [choice.title for choice in guide([(other, of_logs), (spec, runs)])]
    assert titles == ["Extreme classification", "Logs"]


def test_plain_profile_small_answers_for_extreme_classification() -> None:
    plain = [spec for spec in map(load_table, table_names()) if not spec.grid.by_name]
    families = {spec.helps_to_choose for spec in plain if spec.helps_to_choose}
    assert any("Extreme classification" in family for family in families)
    spec = load_table("lns_table3")
    assert spec.helps_to_choose_unless == "time_to_accuracy"
    assert [data.name for data in spec.grid.profile("small").datasets] == ["wordnet_hypernym"]


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"), [(40.0, "s", "30.0"), (0.04, "ms", "30.0"), (4e-5, "µs", "30.0")]
)
def test_times_are_in_a_unit_in_which_they_say_something(
    tables: dict[str, TableSpec], write_run: Write, results_dir: Path, seconds: float, unit: str, shown: str
) -> None:
    spec = tables["exact"]
    for run in runs_of(spec, results_dir):
        folder = write_run(run, [0.2, 0.3, 0.38, 0.4], seconds=seconds)
        summary = folder / "summary.json"
        summary.write_text(summary.read_text().replace('"epochs": 4.0', '"epochs": 4.0, "steps": 40'))
    (choice,) = choices(spec, runs_of(spec, results_dir))
    assert choice.frame[f"Time to 90 % ({unit})"].tolist() == [shown] * 3
    step = [name for name in choice.frame if name.startswith("A step (")]
    assert step, "its cost stands beside rows a second"
    assert list(choice.frame).index(step[0]) == list(choice.frame).index("Rows a second") + 1
    assert all(float(text) > 0 for text in choice.frame[step[0]])


def test_without_steps_there_is_no_column_of_them(
    tables: dict[str, TableSpec], write_run: Write, results_dir: Path
) -> None:
    spec = tables["exact"]
    for run in runs_of(spec, results_dir):
        write_run(run, [0.2, 0.4])
    (choice,) = choices(spec, runs_of(spec, results_dir))
    assert not [name for name in choice.frame if name.startswith("A step")]


def test_small_times_beside_large_ones_are_not_zero(
    tables: dict[str, TableSpec], write_run: Write, results_dir: Path, pick: Callable[..., PlannedRun]
) -> None:
    spec = tables["exact"]
    runs = runs_of(spec, results_dir)
    for method, seconds in {"full": 8.0, "lsh_label": 4.0, "nce": 0.008}.items():
        write_run(pick(runs, method), [0.4, 0.4], seconds=seconds)
    (choice,) = choices(spec, runs)
    assert choice.frame["Time to 90 % (s)"].tolist() == ["4.000", "2.000", "0.004"]


def test_the_column_beside_quality_has_signs_and_a_heading_that_reads_well(
    tables: dict[str, TableSpec], write_run: Write, results_dir: Path, pick: Callable[..., PlannedRun]
) -> None:
    spec = tables["exact"]
    runs = runs_of(spec, results_dir)
    for method, p1 in {"full": 0.4, "lsh_label": 0.3999, "nce": 0.44}.items():
        write_run(pick(runs, method), [0.2, 0.4], p1=p1)
    (choice,) = choices(spec, runs)
    assert choice.frame["P@1 relative to full softmax (%)"].tolist() == ["+0.0", "+0.0", "+10.0"]


def test_every_method_that_may_be_chosen_has_a_caveat() -> None:
    known = known_methods()
    lacking = {
        f"{name}: {method.name}"
        for name in table_names()
        if (spec := load_table(name)).helps_to_choose
        for method in spec.grid.methods
        if method.look_name not in known or not known[method.look_name].caveat
    }
    assert not lacking, "say in conf/method what to know before one chooses them"
    assert not {name for name, method in known.items() if not method.caveat}


@pytest.mark.parametrize(("text", "hint"), [
    (UNLESS.replace("unless: exact", "unless: exat"), r"bad\.yaml: helps_to_choose_unless: no table 'exat'; did"),
    (UNLESS.replace("helps_to_choose: Extreme classification\n", ""), "helps_to_choose_unless: needs helps_to_choose"),
])  # fmt: skip
def test_a_mistake_is_named(text: str, hint: str, write_tables: Write, grid_text: str) -> None:
    folder = write_tables(grid=grid_text, exact=OF_ROWS, bad=text)
    with pytest.raises(ConfigError, match=hint):
        load_table("bad", folder)


def test_a_choice_is_a_frame_of_text(tables: dict[str, TableSpec], write_run: Write, results_dir: Path) -> None:
    spec = tables["exact"]
    write_run(runs_of(spec, results_dir)[0], [0.4])
    (choice,) = choices(spec, runs_of(spec, results_dir))
    assert isinstance(choice.frame, pd.DataFrame)
    assert "exact; every step computes all classes" in choice.frame["What to know"].tolist()
