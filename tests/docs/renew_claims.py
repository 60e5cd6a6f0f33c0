"""Write what the committed tables say today into the pages and into docs/claims.yaml, where the numbers are old.

``python tests/docs/renew_claims.py`` after ``make publish`` prints each sentence and cell that it changes. Labels
of rows are left as they are. Whoever runs it reads the sentences again, because a difference may have another sign now.
"""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs from a plain clone

from claims import CLAIMS, agrees, as_shown, has_number, merged, tables_of, value_of, without_brackets
from command_lines import ROOT
from paper_tables import PAGES, entries_of, opening_of, row_today
from test_claims import COVERED, DEFINING

CLAIMS_FILE = ROOT / "docs" / "claims.yaml"


def renew_sentences(pages: dict[str, str]) -> None:
    """Put today's numbers into the sentences of ``pages`` (names and texts) and into claims.yaml."""
    claims = CLAIMS_FILE.read_text()
    for entry in CLAIMS["sentences"]:
        sentence, numbers = without_brackets(entry["text"])
        values = [value_of(merged(entry.get("where", {}), source)) for source in entry["numbers"]]
        if all(agrees(number, value) for number, value in zip(numbers, values, strict=True)):
            continue
        renewed = iter(
            number if agrees(number, value) else as_shown(number, value)
            for number, value in zip(numbers, values, strict=True)
        )
        text = re.sub(r"\[[^\]]+\]", lambda _, words=renewed: f"[{next(words)}]", entry["text"])
        if entry["text"] not in claims:
            print(f"claims.yaml: '{entry['text']}' is not on one line there: mend it by hand")
            continue
        claims = claims.replace(entry["text"], text)
        for name in [entry["page"]] if "page" in entry else pages:
            before, pages[name] = pages[name], _replaced(pages[name], sentence, without_brackets(text)[0])
            if "page" in entry and pages[name] == before:
                print(f"{name}: the next sentence is not there: mend it by hand")
        print(f"{sentence}\n    {text}")
    CLAIMS_FILE.write_text(claims)


def _replaced(page: str, old: str, new: str) -> str:
    """Return the page with the sentence replaced word by word, so that its lines break where they did."""
    pattern = r"(\s+)".join(re.escape(word) for word in old.split())

    def words(found: re.Match[str]) -> str:
        blanks = [*found.groups(), ""]
        return "".join(word + blank for word, blank in zip(new.split(), blanks, strict=True))

    return re.sub(pattern, words, page)


def renew_tables(pages: dict[str, str]) -> None:
    """Put today's numbers into the tables of ``pages`` (names and texts)."""
    for entry in CLAIMS["tables"]:
        (table,) = (table for table in tables_of(entry["page"]) if table.under == entry["under"])
        for label, *cells in table.rows:
            if label not in entry["rows"]:
                continue
            renewed = [_cell(cell, entry, label, column) for cell, column in zip(cells, entry["columns"], strict=True)]
            if renewed != cells:
                print(f"{entry['page']}, {label}: {cells} -> {renewed}")
                row = r"^\|\s*" + r"\s*\|\s*".join(re.escape(cell) for cell in (label, *cells)) + r"\s*\|$"
                line = f"| {' | '.join((label, *renewed))} |"
                pages[entry["page"]] = re.sub(row, lambda _, line=line: line, pages[entry["page"]], flags=re.M)


def renew_papers(pages: dict[str, str]) -> None:
    """Put today's numbers and verdicts into the tables that open the papers' pages."""
    for page in PAGES:
        entries = entries_of(page)
        for row in opening_of(page).rows:
            today = row_today(entries[row[0]], row)
            if today != row:
                print(f"{page}, {row[0]}: {row[1:4]} -> {today[1:4]}")
                before, after = (f"| {' | '.join(cells)} |".replace("  ", " ") for cells in (row, today))
                pages[page] = pages[page].replace(before, after)


def _cell(cell: str, entry: dict[str, Any], label: str, column: dict[str, Any] | None) -> str:
    if column is None or not has_number(cell):
        return cell
    value = value_of(merged(entry.get("where", {}), entry["rows"][label], column))
    return cell if agrees(cell, value) else as_shown(cell, value)


def main() -> None:
    pages = {name: (ROOT / name).read_text() for name in (*COVERED, *DEFINING)}
    before = dict(pages)
    renew_tables(pages)
    renew_papers(pages)
    renew_sentences(pages)
    for name, text in pages.items():
        if text != before[name]:
            (ROOT / name).write_text(text)


if __name__ == "__main__":
    main()
