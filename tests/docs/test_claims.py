"""Every number that docs/claims.yaml names stands in its page, and is that of a committed CSV; no table has others."""

import math
import re
from typing import Any

import pytest
from claims import CLAIMS, Table, Value, agrees, has_number, merged, tables_of, value_of
from command_lines import ROOT

COVERED = ("README.md", "docs/results.md")  # in their tables, a number without a source fails
_BRACKETED = re.compile(r"\[([^\]]+)\]")


def entry_of(page: str, table: Table) -> dict[str, Any] | None:
    """Return the entry of claims.yaml for a table, or None."""
    found = [entry for entry in CLAIMS["tables"] if (entry["page"], entry["under"]) == (page, table.under)]
    assert len(found) <= 1, f"two entries for {page}, {table.under}"
    return found[0] if found else None


def faults_of(page: str, table: Table, entry: dict[str, Any] | None) -> list[str]:
    """Return a line for every cell that differs from its source or that has a number without one."""
    entry = entry or {"rows": {}, "columns": []}
    faults = []
    for label, *cells in table.rows:
        columns = entry["columns"] if label in entry["rows"] else []
        for place, cell in enumerate(cells):
            column = columns[place] if place < len(columns) else None
            if not has_number(cell):
                continue
            if column is None:
                faults.append(f"{page}, {table.under}, {label}: '{cell}' has no source")
                continue
            value = value_of(merged(entry.get("where", {}), entry["rows"][label], column))
            if not agrees(cell, value):
                faults.append(f"{page}, {table.under}, {label}: '{cell}' is {value} in the CSV")
    return faults


@pytest.mark.parametrize("page", sorted({*COVERED, *(entry["page"] for entry in CLAIMS["tables"])}))
def test_tables_say_what_their_csvs_say(page: str) -> None:
    tables = tables_of(page)
    assert len({table.under for table in tables}) == len(tables), "two tables under one heading"
    for table in tables:
        entry = entry_of(page, table)
        if entry is not None or page in COVERED:
            assert faults_of(page, table, entry) == []


@pytest.mark.parametrize("entry", CLAIMS["tables"], ids=lambda entry: f"{entry['page']}, {entry['under']}")
def test_an_entry_has_its_table(entry: dict[str, Any]) -> None:
    """A table that was renamed, or a row that is gone, leaves no entry behind."""
    (table,) = (table for table in tables_of(entry["page"]) if table.under == entry["under"])
    assert set(entry["rows"]) <= {row[0] for row in table.rows}
    assert all(len(row) == 1 + len(entry["columns"]) for row in table.rows)


@pytest.mark.parametrize("entry", CLAIMS["sentences"], ids=lambda entry: entry["text"])
def test_a_sentence_says_what_its_csv_says(entry: dict[str, Any]) -> None:
    page = " ".join((ROOT / entry["page"]).read_text().split())
    assert _BRACKETED.sub(r"\1", entry["text"]) in page
    numbers = _BRACKETED.findall(entry["text"])
    for number, source in zip(numbers, entry["numbers"], strict=True):
        value = value_of(merged(entry.get("where", {}), source))
        assert agrees(number, value), f"{number} is {value} in the CSV"


@pytest.mark.parametrize(("text", "number", "fits"), [
    ("1,162", 1161.69, True), ("1,161", 1161.69, False), ("3.24x", 3.2417, True), ("3.25x", 3.2417, False),
    ("0", 4e-12, True), ("12", 12.12, True), ("8.7 %", 8.7, True), ("inf", math.inf, True), ("inf", 3.0, False),
    ("5", math.nan, False), ("Fail", 5.0, False),
])  # fmt: skip
def test_rounding(text: str, number: float, fits: bool) -> None:
    """A number agrees at the decimals that it shows, and at no others."""
    assert agrees(text, Value(number, math.nan, "finished")) == fits
    assert not agrees("67.1 ± 0.2", Value(67.1, 0.5, "finished"))
    assert agrees("Fail", Value(math.nan, math.nan, "not reached (1 of 3 seeds)"))


def test_a_number_without_a_source_is_noticed() -> None:
    """In a row or a table that claims.yaml does not know, and within the words of a column without numbers."""
    (table,) = tables_of("README.md")
    entry = entry_of("README.md", table)
    assert entry is not None
    for row in (["New method", "1.0", "2.0", ""], ["Full softmax", "48.5", "29.33", "is 5 times as slow"],
                ["Full softmax", "48.6", "29.33", ""]):  # fmt: skip
        assert faults_of("README.md", table._replace(rows=[row]), entry)
    assert faults_of("README.md", table, None)
    assert not has_number("just misses nine tenths of full softmax's P@1")
