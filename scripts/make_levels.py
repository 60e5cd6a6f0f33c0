"""Make the committed tables of levels, and their figures, from the committed curves of the same runs.

A table of levels (kind: levels in conf/table) names its figure of curves. Where results/tables/PROFILE has the CSV of
that figure, the table is computed from it, so that it needs no run folders and says nothing else than the curves do.
"""

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner import REPOSITORY
from runner.report.pages.levels import Levels, levels_of_csv, write
from runner.report.pages.publish import published_dir
from runner.report.spec.grids import PROFILES
from runner.report.spec.tables import load_table, table_names

RESULTS = REPOSITORY / "results"


def found() -> Iterator[tuple[Path, Levels]]:
    """Yield each table of levels whose curves are committed, with the folder that it belongs to."""
    specs = [spec for spec in map(load_table, table_names()) if spec.kind == "levels"]
    for profile in PROFILES:
        folder = published_dir(RESULTS, profile)
        for spec in specs:
            curves = folder / f"{spec.curves}.csv"
            if curves.is_file():
                command = f"make reproduce TABLE={spec.name} PROFILE={profile}"
                yield folder, levels_of_csv(spec, profile, curves, command)


def main() -> int:
    argparse.ArgumentParser(
        description=inspect.cleandoc(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for folder, levels in found():
        for path in write(levels, folder)[0]:
            print(path.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
