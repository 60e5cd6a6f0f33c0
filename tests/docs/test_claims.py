"""Every number that docs/claims.yaml names is in its page and in a committed file; pages of results have no others.

Pages of definitions have no others that look measured.
"""

import math
import re
from typing import Any

import pytest
from claims import (
    CLAIMS,
    Table,
    Value,
    agrees,
    as_shown,
    has_number,
    merged,
    prose_of,
    setting_pattern,
    tables_of,
    unexplained,
    value_of,
    without_brackets,
)
from command_lines import ROOT
from paper_tables import PAGES, opening_of

# In these pages, a number without a source fails.
COVERED = (
    "README.md", "docs/results.md", "docs/cost.md", "docs/language-models.md", "docs/recommendation.md",
    "docs/regression.md", "docs/sentence-pairs.md",
    *(f"docs/papers/{path.name}" for path in sorted((ROOT / "docs" / "papers").glob("*.md"))),
)  # fmt: skip

# These pages define more than they report, so only a number that looks measured needs a source there. The log is
# history, and the options' page is made from configs. reproducing.md reports seconds, and tests/report compares them.
DEFINING = sorted(
    {"CONTRIBUTING.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}
    - {*COVERED, "docs/log.md", "docs/options.md", "docs/reproducing.md"}
)
_LOOKS_MEASURED = re.compile(r"»[\d,]*\.\d+«|« %")


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
                if cell in ("inf", "Fail") or unexplained(cell, page):
                    faults.append(f"{page}, {table.under}, {label}: '{cell}' has no source")
                continue
            value = value_of(merged(entry.get("where", {}), entry["rows"][label], column))
            if not agrees(cell, value):
                faults.append(f"{page}, {table.under}, {label}: '{cell}' is {value} in its source")
    return faults


@pytest.mark.parametrize("page", sorted({*COVERED, *(entry["page"] for entry in CLAIMS["tables"])}))
def test_tables_say_what_their_csvs_say(page: str) -> None:
    tables = tables_of(page)
    assert len({table.under for table in tables}) == len(tables), "two tables under one heading"
    opening = [opening_of(page)] if page in PAGES else []  # test_paper_tables.py compares these
    for table in tables:
        entry = entry_of(page, table)
        if table in opening:
            continue
        if entry is not None or page in COVERED:
            assert faults_of(page, table, entry) == []


@pytest.mark.parametrize("entry", CLAIMS["tables"], ids=lambda entry: f"{entry['page']}, {entry['under']}")
def test_an_entry_has_its_table(entry: dict[str, Any]) -> None:
    """A table that was renamed, or a row that is gone, leaves no entry behind."""
    (table,) = (table for table in tables_of(entry["page"]) if table.under == entry["under"])
    assert set(entry["rows"]) <= {row[0] for row in table.rows}
    assert all(len(row) == 1 + len(entry["columns"]) for row in table.rows)


@pytest.mark.parametrize("entry", CLAIMS["sentences"], ids=lambda entry: entry["text"])
def test_a_sentence_says_what_its_source_says(entry: dict[str, Any]) -> None:
    sentence, numbers = without_brackets(entry["text"])
    assert any(sentence in page for page in pages_of(entry))
    for number, source in zip(numbers, entry["numbers"], strict=True):
        value = value_of(merged(entry.get("where", {}), source))
        assert agrees(number, value), f"{number} is {value} in its source"


def pages_of(entry: dict[str, Any]) -> list[str]:
    """Return the text of the page that an entry is for, or of all pages; each as one line."""
    names = (entry["page"],) if "page" in entry else (*COVERED, *DEFINING)
    return [" ".join((ROOT / name).read_text().split()) for name in names]


@pytest.mark.parametrize("page", COVERED)
def test_every_number_of_the_prose_has_a_source(page: str) -> None:
    """A number is that of an entry, a setting (both in claims.yaml), or history in a sentence that links to the log."""
    assert unexplained(prose_of(page), page) == []


@pytest.mark.parametrize("page", DEFINING)
def test_a_number_that_looks_measured_has_a_source(page: str) -> None:
    """A decimal point or a percent sign in a page of definitions is taken for a measurement."""
    cells = [cell for table in tables_of(page) if entry_of(page, table) is None for row in table.rows for cell in row]
    found = [number for text in (prose_of(page), *cells) for number in unexplained(text, page)]
    assert [number for number in found if _LOOKS_MEASURED.search(number)] == []


@pytest.mark.parametrize("setting", CLAIMS["settings"], ids=lambda setting: setting["text"])
def test_a_setting_is_on_its_page(setting: dict[str, Any]) -> None:
    """No setting is left behind by a sentence that is gone, and each says why nobody measured its numbers."""
    assert any(setting_pattern(setting["text"]).search(page) for page in pages_of(setting))
    assert setting["why"]


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


@pytest.mark.parametrize(("old", "value", "new"), [
    ("67.1 ± 0.2", Value(66.04, 1.26, "finished"), "66.0 ± 1.3"), ("3.2x", Value(0.96, math.nan, "finished"), "1.0x"),
    ("8.7 %", Value(9.26, math.nan, "finished"), "9.3 %"), ("999", Value(1161.69, 0.4, "finished"), "1,162"),
    ("5.0", Value(math.nan, math.nan, "not reached (1 of 3 seeds)"), "Fail"),
    ("Fail", Value(4.26, math.nan, "finished"), "4.3"), ("2.5", Value(math.inf, math.nan, "finished"), "inf"),
])  # fmt: skip
def test_a_renewed_number_looks_like_the_old_one_and_agrees(old: str, value: Value, new: str) -> None:
    assert as_shown(old, value) == new
    assert agrees(new, value)


def test_a_number_without_a_source_is_noticed() -> None:
    """In a row or a table that claims.yaml does not know, and within the words of a column without numbers."""
    page = "docs/results.md"
    table = next(table for table in tables_of(page) if table.under == "Time to accuracy on 670,091 classes")
    entry = entry_of(page, table)
    assert entry is not None
    entry = {**entry, "columns": [*entry["columns"][:-1], None]}
    right = ["Log-uniform", "0.8", "3.8", "54.6x", "62.20", "fast"]
    assert faults_of(page, table._replace(rows=[right]), entry) == []
    for row in (["New method", *right[1:]], [*right[:2], "3.9", *right[3:]], [*right[:-1], "1.9 times as fast"]):
        assert faults_of(page, table._replace(rows=[row]), entry)
    assert faults_of(page, table, None)
    for text, looks_measured in (("3.7 times", True), ("12 % of them", True), ("at least 12 of them", False)):
        (number,) = unexplained(text, "docs/contract.md")
        assert bool(_LOOKS_MEASURED.search(number)) == looks_measured
    assert not has_number("just misses nine tenths of full softmax's P@1")


@pytest.mark.parametrize(("text", "numbers"), [
    ("P@1 is 12.34 and 5 % more in 0.7 s, or 3.2x", ["12.34", "5", "0.7", "3.2"]),
    ("MovieLens-100K by NDCG@10, `sampler.K=7`, [a](b2.md#c-3), ![4 lines](5.png)", []),
    ("It took 97.5 s. It took 40.5 s or 41.5 ([the log](docs/log.md)). It took 40.5 s.", ["97.5", "41.5", "40.5"]),
    ("P@1 is .658, no 0.659, on 2 sets "
     "([the log](docs/log/classification.md#2026-11-21-lsh-with-expected-counts)).", ["0.659", "2"]),
    ("with 4 epochs and 250 draws, then 4.5 epochs", ["4.5"]),
    ("WordNet (13,575 and 89,599 classes), not (13,576 and 89,599 classes)", ["13,576"]),
])  # fmt: skip
def test_numbers_of_prose_are_found(text: str, numbers: list[str]) -> None:
    """Code, where links lead, settings, what an entry covers and what the log has are left out, and nothing else."""
    found = unexplained(text, "README.md")
    assert [where.partition("»")[2].partition("«")[0] for where in found] == numbers


def test_a_bench_report_is_a_source() -> None:
    """Its rows have the names of the JSON, nested ones with dots, and arithmetic works on them as on a CSV's."""
    where = {"file": "layer", "column": "s_per_1k_rows"}
    full, lsh = (value_of({**where, "method": method}).number for method in ("full", "lsh_embedding"))
    assert value_of({**where, "ratio": [{"method": "full"}, {"method": "lsh_embedding"}]}).number == full / lsh
    median = value_of({**where, "column": "step_s_per_1k_rows.median", "method": "full", "times": 1000}).number
    assert 0 < median <= 1000 * full
    with pytest.raises(AssertionError, match="0 rows fit"):
        value_of({**where, "method": "unheard_of"})
