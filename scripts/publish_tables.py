"""Replace committed tables and figures (results/tables) by those rendered last (results/out).

python scripts/publish_tables.py lns_table2 lns_figure4 --profile small
python scripts/publish_tables.py                              all that were rendered, and results/REPRODUCTION.md

Committed files that a table no longer has are removed. With each call the folder's README.md is written anew, which
shows its figures with their notes. A new results/REPRODUCTION.md also changes the table of what runs took in
docs/reproducing.md. All of these change or none: none if a table shows fewer finished runs than the committed one, or
if the page shows fewer of a table. Then the figure of the first page is drawn from what is committed, and
the claims of results/REPRODUCTION.md are judged by the committed tables of larger profiles.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner import REPOSITORY
from runner.commands.frame import carry_out, parser_of
from runner.errors import require
from runner.options.conversion import as_path, did_you_mean
from runner.report.figures.first_page import draw_first_page
from runner.report.pages.evidence import with_evidence
from runner.report.pages.folder_page import PAGE, folder_page
from runner.report.pages.footprint import with_footprint_of
from runner.report.pages.publish import published_dir, published_figure, published_page, replace_together, to_publish
from runner.report.spec.first_page import load_first_page
from runner.report.spec.grids import PROFILES
from runner.report.spec.tables import TABLES, load_table, table_names

MANUAL = REPOSITORY / "docs" / "reproducing.md"


def main() -> int:
    parser = parser_of("python scripts/publish_tables.py", __doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="files of conf/table (default: all, and the page)")
    parser.add_argument("--profile", default="small", metavar="|".join(PROFILES), help="default: small")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--tables-dir", type=Path, default=TABLES, metavar="DIR", help="default: conf/table")
    arguments = parser.parse_args()

    def work() -> None:
        folder = arguments.tables_dir.absolute()
        names = [load_table(name, folder).name for name in arguments.tables]
        hint = did_you_mean(arguments.profile, PROFILES)
        require(arguments.profile in PROFILES, f"unknown profile '{arguments.profile}'{hint}")
        results_dir = as_path(arguments.results_dir, "--results-dir")
        known = table_names(folder)
        changes = to_publish(names, known, arguments.profile, results_dir)
        report = changes.get(published_page(REPOSITORY / "results", "small").with_suffix(".json"))
        if report is not None:  # the page in the manual is about this report alone
            changes[MANUAL] = with_footprint_of(json.loads(report), MANUAL.read_text("utf-8")).encode()
        target = published_dir(results_dir, arguments.profile)
        specs = [load_table(name, folder) for name in known]
        changes[target / PAGE] = folder_page(specs, arguments.profile, target, changes).encode()
        replace_together(changes)
        page = published_page(results_dir, "small")
        if page.is_file():
            page.write_text(with_evidence(page.read_text("utf-8"), target.parent), "utf-8")
        for path, content in changes.items():
            print(path if content is not None else f"removed {path}")
        folders = [published_dir(results_dir, profile) for profile in PROFILES]
        figure = published_figure(results_dir)
        for path in draw_first_page(load_first_page().families, folders, figure.parent, folder):
            print(path)

    return carry_out(work)


if __name__ == "__main__":
    sys.exit(main())
