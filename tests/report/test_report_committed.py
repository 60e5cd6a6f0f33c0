"""Committed tables have the methods' labels of today and the profile of their folder, but for those named here."""

import re
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.report.methods import known_methods
from runner.report.tables import load_table, table_names

TABLES = REPOSITORY / "results" / "tables"
# These are of earlier versions, and wait for runs: a table that was made again must be taken from this list.
STALE = {
    "medium/lsh_softmax_table1", "medium/lsh_softmax_table2", "medium/midx_table4", "medium/midx_table4_ptb",
    "medium/midx_table9", "medium/rf_softmax_table3",
}  # fmt: skip
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


@pytest.mark.parametrize("table", [table for table in COMMITTED if table not in STALE])
def test_committed_tables_are_of_this_version_and_of_their_profile(table: str) -> None:
    assert what_is_stale(table) == []


@pytest.mark.parametrize("table", sorted(STALE))
def test_only_stale_tables_are_exempt(table: str) -> None:
    assert table in COMMITTED, "there is no such table: take it from the list"
    assert what_is_stale(table), "it is of this version: take it from the list"


def test_every_committed_table_is_looked_at() -> None:
    files = {path.relative_to(TABLES).with_suffix("").as_posix() for path in Path(TABLES).glob("[sm]*/*.md")}
    strange = {
        file for file in files - set(COMMITTED) if not file.startswith("sweep/") and not file.endswith("/README")
    }
    assert not strange, "tables that conf/table does not have"
