"""Replace committed tables and figures (results/tables) by those rendered last (results/out).

python scripts/publish_tables.py lns_table2 lns_figure4 --profile small
python scripts/publish_tables.py                              all that were rendered, and results/REPRODUCTION.md

With each call the folder's README.md is written anew, which shows its figures with their notes. A new
results/REPRODUCTION.md also changes the table of what runs took in docs/reproducing.md. All other files change or none.
Nothing changes if a table shows fewer finished runs than the committed one, or the page shows fewer of a table.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner import REPOSITORY
from runner.commands.frame import carry_out, parser_of
from runner.conversion import as_path, did_you_mean
from runner.errors import require
from runner.report.folder_page import write_folder_page
from runner.report.footprint import with_footprint_of
from runner.report.grids import PROFILES
from runner.report.publish import publish, published_page
from runner.report.tables import TABLES, load_table, table_names
from runner.training.files import write_atomically

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
        replaced = publish(names, known, arguments.profile, results_dir)
        report = published_page(REPOSITORY / "results", "small")
        if report in replaced:  # the page in the manual is about this report alone
            write_atomically(MANUAL, with_footprint_of(report.read_text("utf-8"), MANUAL.read_text("utf-8")))
            replaced.append(MANUAL)
        for path in replaced:
            print(path)
        print(write_folder_page([load_table(name, folder) for name in known], arguments.profile, results_dir))

    return carry_out(work)


if __name__ == "__main__":
    sys.exit(main())
