"""A paper's page opens with its claims, what is printed, ours and the verdict, and has few words after that."""

import re

import pytest
from claims import CLAIMS, unexplained
from command_lines import ROOT
from paper_tables import HEADER, PAGES, entries_of, opening_of, renewed, row_today, verdict_of

MOST_WORDS = 250
_BLOCK, _TABLE = re.compile(r"^```.*?^```", flags=re.S | re.M), re.compile(r"^\|.*$", flags=re.M)


def test_every_paper_has_such_a_page() -> None:
    assert [f"docs/papers/{path.name}" for path in sorted((ROOT / "docs" / "papers").glob("*.md"))] == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_with_the_claims(page: str) -> None:
    text = (ROOT / page).read_text()
    head, _, rest = text.partition("\n|")
    assert [cell.strip() for cell in rest.partition("\n")[0].strip("|").split("|")] == HEADER
    assert len(head.split()) < 60, "the title, the paper and its samplers; nothing else stands before the table"
    after = rest.partition("\n\n")[2]
    words = _TABLE.sub("", _BLOCK.sub("", after)).split()
    assert len(words) <= MOST_WORDS, f"{len(words)} words follow the table"


@pytest.mark.parametrize("page", PAGES)
def test_rows_say_what_the_tables_say(page: str) -> None:
    """Numbers agree with their sources, and the verdict is what the report's rules make of them."""
    entries = entries_of(page)
    rows = opening_of(page).rows
    assert [row[0] for row in rows] == list(entries), "docs/claims.yaml, papers, has a row for each claim"
    for row in rows:
        assert row_today(entries[row[0]], row) == row
        assert unexplained(row[0], page) + unexplained(row[4], page) == []


@pytest.mark.parametrize("entry", CLAIMS["papers"], ids=lambda entry: f"{entry['page']}, {entry['row']}")
def test_a_verdict_is_on_something_measured(entry: dict[str, object]) -> None:
    assert verdict_of(entry) != "not measured"


def test_a_number_that_differs_is_renewed() -> None:
    source = {"file": "printed_lns", "table": "table3", "dataset": "amazon670k", "metric": "epoch_speedup_vs_full",
              "column": "value"}  # fmt: skip
    sources = [source | {"method": "lsh_label"}, None, source | {"method": "lsh_embedding"}]
    assert renewed("9.9x of 7 and 11x", sources, {}) == "10.3x of 7 and 11x"
    with pytest.raises(AssertionError, match="1 numbers"):
        renewed("10.3x", sources, {})
