"""Write the rule of conf/first_page.yaml into the pages that open with it; draw their figure from committed data.

README.md and docs/results.md also get the tables of who is first at which level, from the committed tables of levels
(make_levels.py), and the page of reproduced results its claims judged by the committed tables of larger profiles.
"""

import argparse
import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner import REPOSITORY
from runner.report.figures.first_page import draw_first_page
from runner.report.pages.evidence import with_evidence
from runner.report.pages.opening import with_part, with_rule
from runner.report.pages.publish import published_dir
from runner.report.pages.who_is_first import in_full, in_short
from runner.report.spec.first_page import load_first_page
from runner.report.spec.grids import PROFILES

RESULTS = REPOSITORY / "results"
README, RESULTS_PAGE = REPOSITORY / "README.md", REPOSITORY / "docs" / "results.md"
PAGES = (README, REPOSITORY / "docs" / "index.md", RESULTS / "REPRODUCTION.md")  # which open with the rule
FIRST = "who is first"


def written() -> dict[Path, str]:
    """Return the new text of each page."""
    page, tables = load_first_page(), RESULTS / "tables"
    texts = {path: with_evidence(with_rule(path.read_text("utf-8"), page), tables) for path in PAGES}
    texts[README] = with_part(texts[README], FIRST, in_short(page.sets, tables))
    texts[RESULTS_PAGE] = with_part(RESULTS_PAGE.read_text("utf-8"), FIRST, in_full(page.sets, tables))
    return texts


def draw(folder: Path) -> list[Path]:
    """Draw the figure from the committed figures of all profiles, the smallest first; return the paths."""
    sources = [published_dir(RESULTS, profile) for profile in PROFILES]
    return draw_first_page(load_first_page().families, sources, folder)


def main() -> int:
    argparse.ArgumentParser(
        description=inspect.cleandoc(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(REPOSITORY))
    for path in draw(RESULTS / "tables"):
        print(path.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
