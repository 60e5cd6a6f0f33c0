"""Committed tables have today's labels, their folder's profile and today's runs.

Every committed figure has its data beside it, and nothing committed was made by code with uncommitted changes.
"""

import csv
import json
import re
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.methods.catalogue import known_methods
from runner.report.numbers.records import NOT_RUN
from runner.report.pages.bench_tables import document
from runner.report.pages.layout import to_markdown
from runner.report.spec.grids import Grid, expand
from runner.report.spec.tables import load_table, table_names

RESULTS = REPOSITORY / "results"
TABLES = RESULTS / "tables"
FIGURES = sorted(
    path.relative_to(RESULTS).as_posix() for folder in (TABLES, RESULTS / "bench") for path in folder.rglob("*.png")
)
COMMITTED = [
    f"{profile}/{name}"
    for profile in ("small", "medium")
    for name in table_names()
    if (TABLES / profile / f"{name}.md").is_file()
]


def labels_shown(page: str) -> set[str]:
    """Return what stands in the first column of tables that begin with ``Method``, without settings behind a label."""
    found: set[str] = set()
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        head, _, *rows = (re.split(r"(?<!\\)\|", line)[1].strip() for line in table.splitlines())
        found |= {re.sub(r", \w+=.*", "", row) for row in rows} if head == "Method" else set()
    return found


def what_is_stale(table: str) -> list[str]:
    """Return the labels that neither the catalogue nor the grid has, and the commands of another profile."""
    profile, name = table.split("/")
    page = (TABLES / f"{table}.md").read_text()
    known = {method.label for method in known_methods().values()}
    known |= {method.label for method in load_table(name).grid.methods}
    made = re.findall(r"^Made by `([^`]*)`", page, flags=re.MULTILINE)
    assert made, f"{table} does not say how it was made"
    others = [command for command in made if not re.search(rf"\bPROFILE={profile}$", command)]
    return [*sorted(labels_shown(page) - known), *others]


def test_the_first_column_is_read() -> None:
    page = "| Method | a |\n| --- | --: |\n| X \\| Y | 1 |\n\n| run | b |\n| --- | --- |\n| z | 2 |\n"
    assert labels_shown(page) == {"X \\| Y"}
    assert labels_shown(page.replace("Y |", "Y, lr=0.1 loss=nce |")) == {"X \\| Y"}
    assert "Full softmax" in labels_shown((TABLES / "small" / "lns_table2.md").read_text())


@pytest.mark.parametrize("table", COMMITTED)
def test_committed_tables_are_of_this_version_and_of_their_profile(table: str) -> None:
    assert what_is_stale(table) == []


def planned(grid: Grid, profile: str) -> frozenset[str]:
    """Return the ids of the runs that a grid plans, which name every setting of a run by a digest."""
    return frozenset(run.run_id for run in expand(grid, profile, RESULTS))


def runs_behind(table: str) -> set[str]:
    """Return the ids of the runs that the CSVs of a table or figure name. Every CSV with numbers must name some."""
    profile, name = table.split("/")
    found: set[str] = set()
    for path in (TABLES / profile).glob(f"{name}*.csv"):
        owners = [other for other in table_names() if f"{path.stem}_".startswith(f"{other}_")]
        if max(owners, key=len, default="") == name:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            runs = {run for row in rows for run in row.get("run_ids", row.get("run_id", "")).split()}
            assert runs or not any(row.get("ours") for row in rows), f"{path} has numbers and names no runs"
            found |= runs
    return found


@pytest.mark.slow
@pytest.mark.plans
@pytest.mark.parametrize("profile", ["small", "medium"])
def test_committed_numbers_are_of_the_runs_that_their_grid_plans(profile: str) -> None:
    """A changed number of epochs or a changed rate leaves labels as they are, but no run as planned.

    Runs that are planned and missing are not looked at: a table shows them by their status.
    """
    tables = {f"{profile}/{name}": runs_behind(f"{profile}/{name}") for name in table_names()}
    others = {
        table
        for table, runs in tables.items()
        if runs and not runs <= planned(load_table(table.split("/")[1]).grid, profile)
    }
    assert not others, "tables whose grid plans other runs by now: make them again"


def test_every_committed_table_is_looked_at() -> None:
    files = {path.relative_to(TABLES).with_suffix("").as_posix() for path in Path(TABLES).glob("[sm]*/*.md")}
    strange = {
        file for file in files - set(COMMITTED) if not file.startswith("sweep/") and not file.endswith("/README")
    }
    assert not strange, "tables that conf/table does not have"


def data_of(figure: Path) -> Path | None:
    """Return the CSV of the same table, whose name the figure's may continue, or else the bench report beside it."""
    tables = [path for path in figure.parent.glob("*.csv") if f"{figure.stem}_".startswith(f"{path.stem}_")]
    report = figure.with_suffix(".json")
    return report if report.is_file() else max(tables, key=lambda path: len(path.stem), default=None)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_has_its_data_beside_it(figure: str) -> None:
    """A CSV names the runs of every row of theirs; a bench report, which no runs made, its machine and commit."""
    data = data_of(RESULTS / figure)
    assert data is not None
    if data.suffix == ".json":
        made = json.loads(data.read_text())["provenance"]
        assert made["commit"]
        assert made["cpu"]
        return
    with data.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(row["run_ids"] or row["status"] == NOT_RUN if "run_ids" in row else row["run_id"] for row in rows)


def test_a_figure_without_data_is_noticed(tmp_path: Path) -> None:
    """Data of a table whose name only begins alike is not the figure's."""
    for name in ("lns_figure3.csv", "lns_figure31.csv", "step.json"):
        (tmp_path / name).touch()
    found = {name: data_of(tmp_path / f"{name}.png") for name in ("lns_figure3_related", "lns_figure", "step", "steps")}
    assert {name: path and path.name for name, path in found.items()} == {
        "lns_figure3_related": "lns_figure3.csv", "lns_figure": None, "step": "step.json", "steps": None,
    }  # fmt: skip


def test_every_bench_report_is_described() -> None:
    """The page of the bench's folder has a row for each report, and no other."""
    described = re.findall(r"^\| `(\w+)` \|", (RESULTS / "bench" / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(described) == sorted(path.stem for path in (RESULTS / "bench").glob("*.json"))


@pytest.mark.parametrize("name", sorted(path.stem for path in (RESULTS / "bench").glob("*.json")))
def test_the_markdown_of_a_bench_is_what_its_numbers_say(name: str) -> None:
    report = RESULTS / "bench" / f"{name}.json"
    assert to_markdown(document(json.loads(report.read_text()))) == report.with_suffix(".md").read_text()


def test_nothing_was_made_by_code_with_uncommitted_changes() -> None:
    """Neither a page or CSV of runs (``plan.CHANGED``) nor a bench report says so."""
    pages = list(RESULTS.glob("*.md"))
    for folder in (TABLES, RESULTS / "bench"):
        pages += [path for path in folder.rglob("*") if path.suffix in (".md", ".csv")]
    assert [str(path) for path in sorted(pages) if re.search(r"uncommitted changes|\+ changes", path.read_text())] == []
    reports = sorted((RESULTS / "bench").glob("*.json"))
    assert [path.name for path in reports if json.loads(path.read_text())["provenance"]["patch"]] == []
