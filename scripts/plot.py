"""Draw figures from run folders: figures of conf/table, or the headline of all finished runs against seconds.

python scripts/plot.py lns_figure4 --profile small
python scripts/plot.py --frontier wordnet_hypernym --keys sampler.K sampler.L
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.config import explain
from runner.conversion import as_path
from runner.errors import RunnerError
from runner.report.grids import PROFILES
from runner.report.tables import TABLES, load_table, table_names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="figures of conf/table (default: all)")
    parser.add_argument("--profile", default="small", metavar="|".join(PROFILES), help="default: small")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--tables-dir", type=Path, default=TABLES, metavar="DIR", help="default: conf/table")
    parser.add_argument("--frontier", metavar="DATASET", help="draw every finished run of a data set as a point")
    parser.add_argument(
        "--keys", nargs="+", default=[], metavar="KEY",
        help="with --frontier: settings written beside the points (default: all that differ)",
    )  # fmt: skip
    arguments = parser.parse_args()
    try:
        paths = draw(arguments, as_path(arguments.results_dir, "--results-dir"))
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    for path in paths:
        print(path)
    return 0


def draw(arguments: argparse.Namespace, results_dir: Path) -> list[Path]:
    """Draw what is asked for and return the paths of the PNGs; RunnerError if no finished run can be drawn."""
    from runner.report import plots
    from runner.report.figure_style import save
    from runner.report.frontier import frontier, settings_of_records
    from runner.report.grids import expand
    from runner.report.methods import known_methods
    from runner.report.publish import rendered_dir
    from runner.report.records import all_records

    if arguments.frontier:
        of_set = [
            r for r in all_records(results_dir) if r.finished and r.config["dataset"]["name"] == arguments.frontier
        ]
        if not of_set:
            raise RunnerError(f"{results_dir / 'runs'}: no finished run of '{arguments.frontier}'")
        settings = settings_of_records(of_set, arguments.keys)
        known = known_methods()
        labels = {s.method: known[s.method].label if s.method in known else s.method for s in settings}
        figure = frontier({f"{arguments.frontier}: every finished run": settings}, labels)
        return [save(figure, results_dir / "out" / f"frontier_{arguments.frontier}")]
    folder = arguments.tables_dir.absolute()
    specs = [load_table(name, folder) for name in arguments.figures or table_names(folder)]
    for spec in specs:
        if arguments.figures and not spec.is_figure:
            raise RunnerError(f"{spec.name} is a table: python scripts/render_tables.py {spec.name}")
    target = rendered_dir(results_dir, arguments.profile)
    drawn = [
        path
        for spec in specs
        if spec.is_figure
        for path in plots.draw(spec, expand(spec.grid, arguments.profile, results_dir), target)
    ]
    if not drawn:
        raise RunnerError(f"{results_dir / 'runs'}: no finished run of profile {arguments.profile} to draw")
    return drawn


if __name__ == "__main__":
    sys.exit(main())
