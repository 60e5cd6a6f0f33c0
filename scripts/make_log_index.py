"""Write the index of the log into docs/log.md: a list of the entries of each page of docs/log/, newest first."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INDEX, PAGES = ROOT / "docs" / "log.md", ROOT / "docs" / "log"
MARK = "<!-- The index: scripts/make_log_index.py writes what follows. -->\n"
_HEADING = re.compile(r"^## (\d{4}-\d\d-\d\d|Earlier): (.+)$", flags=re.M)


def anchor(heading: str) -> str:
    """Return the anchor that the site and repositories give to a heading."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def entries_of(page: Path) -> list[tuple[str, str]]:
    """Return the dates and titles of a page's entries, in the page's order."""
    return _HEADING.findall(page.read_text())


def written() -> dict[Path, str]:
    """Return the page of the index with a list for each topic."""
    lines = []
    for page in sorted(PAGES.glob("*.md")):
        title = page.read_text().partition("\n")[0].removeprefix("# Log: ")
        lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        lines += [f"- {date} [{name}](log/{page.name}#{anchor(f'{date}: {name}')})" for date, name in entries_of(page)]
    head = INDEX.read_text().partition(MARK)[0]
    return {INDEX: head + MARK + "\n".join(lines) + "\n"}


def main() -> int:
    for path, text in written().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
