"""Draw figures of conf/table from run folders, or plot any metric of runs that you choose.

python scripts/plot.py lns_figure4 --profile small
python scripts/plot.py --against sampler.K --where dataset=wordnet_hypernym     lines, one for each method
python scripts/plot.py --against sampler.K sampler.L --metric test/p@5          a heat map
python scripts/plot.py --against seconds --metric valid/ndcg@10                 curves; also epoch and step
python scripts/plot.py --frontier --keys sampler.K sampler.L                    the metric in the end against seconds

Runs are chosen as in python -m runner.compare: RUN... or --where KEY=VALUE, or all. A metric is one of the runs'
(test/p@1), or train_seconds, seconds_per_epoch, units_per_second, candidates_per_row or peak_rss_mb. A plot is written
to results/out/plot as PNG, SVG and PDF, with a CSV of its data and run ids.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.commands.frame import carry_out, parser_of
from runner.errors import RunnerError, require
from runner.options.conversion import as_path
from runner.report.spec.grids import PROFILES
from runner.report.spec.tables import TABLES, load_table, table_names


def main() -> int:
    """Draw what is asked for and print the paths; return the exit status (2 for a user's mistake)."""
    parser = parser_of("python scripts/plot.py", __doc__)
    parser.add_argument(
        "names", nargs="*", metavar="FIGURE | RUN",
        help="figures of conf/table (default: all); with --against or --frontier, runs (default: all)",
    )  # fmt: skip
    parser.add_argument("--profile", default="small", metavar="|".join(PROFILES), help="default: small")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--tables-dir", type=Path, default=TABLES, metavar="DIR", help="default: conf/table")
    parser.add_argument(
        "--against", nargs="+", default=[], metavar="KEY", help="a setting or two, or epoch|step|seconds"
    )
    parser.add_argument("--frontier", action="store_true", help="against seconds, with what nothing beats in both")
    parser.add_argument("--metric", default="", help="what is plotted (default: the headline)")
    parser.add_argument("--where", nargs="+", default=[], metavar="KEY=VALUE", help="only runs with these settings")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="medians of N neighbouring evaluations")
    parser.add_argument(
        "--keys", nargs="+", default=[], metavar="KEY",
        help="with --frontier: settings written beside the points (default: all that differ)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.png, STEM.svg, STEM.pdf and STEM.csv")
    arguments = parser.parse_args()

    def work() -> None:
        results_dir = as_path(arguments.results_dir, "--results-dir")
        if arguments.against or arguments.frontier:
            paths = plot(arguments, results_dir)
        else:
            paths = draw(arguments, results_dir)
        for path in paths:
            print(path)

    return carry_out(work)


def plot(arguments: argparse.Namespace, results_dir: Path) -> list[Path]:
    """Plot the runs that are chosen; return the paths. Raises RunnerError or ConfigError (one line)."""
    require(not (arguments.against and arguments.frontier), "--frontier: is against seconds; leave --against out")
    require(arguments.frontier or not arguments.keys, "--keys: goes with --frontier")
    from runner.report.figures.explore import explore, explore_frontier
    from runner.report.figures.style import save
    from runner.report.numbers.comparison import NO_RUNS_YET, NO_SUCH_RUNS, chosen
    from runner.report.numbers.records import all_records
    from runner.training.files import write_atomically

    everything = all_records(results_dir)
    if not everything:
        raise RunnerError(f"{results_dir / 'runs'}: {NO_RUNS_YET}")
    records = chosen(everything, arguments.names, arguments.where)
    if not records:
        raise RunnerError(f"{results_dir / 'runs'}: {NO_SUCH_RUNS}")
    if arguments.frontier:
        found = explore_frontier(records, arguments.metric, arguments.keys)
    else:
        found = explore(records, arguments.against, arguments.metric, arguments.smooth)
    stem = results_dir / "out" / "plot" / found.name if arguments.out is None else as_path(arguments.out, "--out")
    png = save(found.figure, stem, with_pdf=True)
    data = Path(f"{stem}.csv")
    write_atomically(data, found.data.to_csv(index=False, float_format="%.6g"))
    return [png, Path(f"{stem}.svg"), Path(f"{stem}.pdf"), data]


def draw(arguments: argparse.Namespace, results_dir: Path) -> list[Path]:
    """Draw figures of conf/table; return the paths of the PNGs. RunnerError if no finished run can be drawn."""
    given = [name for name in ("metric", "where", "keys", "out") if getattr(arguments, name)]
    require(not given, f"--{', --'.join(given)}: goes with --against or --frontier")
    from runner.report.figures import plots
    from runner.report.pages.publish import rendered_dir
    from runner.report.spec.grids import expand

    folder = arguments.tables_dir.absolute()
    specs = [load_table(name, folder) for name in arguments.names or table_names(folder)]
    for spec in specs:
        if arguments.names and not spec.is_figure:
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
