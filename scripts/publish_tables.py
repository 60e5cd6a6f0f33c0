"""Replace committed tables and figures (results/tables) by those rendered last (results/out).

python scripts/publish_tables.py lns_table2 lns_figure4 --profile small

Nothing changes if a table shows fewer finished runs than the committed one.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.config import explain
from runner.conversion import as_path
from runner.errors import RunnerError
from runner.report.grids import PROFILES
from runner.report.publish import publish
from runner.report.tables import TABLES, load_table, table_names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="files of conf/table")
    parser.add_argument("--profile", default="small", metavar="|".join(PROFILES), help="default: small")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--tables-dir", type=Path, default=TABLES, metavar="DIR", help="default: conf/table")
    arguments = parser.parse_args()
    try:
        folder = arguments.tables_dir.absolute()
        names = [load_table(name, folder).name for name in arguments.tables]
        results_dir = as_path(arguments.results_dir, "--results-dir")
        for path in publish(names, table_names(folder), arguments.profile, results_dir):
            print(path)
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
