"""Compare runs: what differs between them, their quality and their seconds, a table for each data set.

python -m runner.compare                                  all runs under results/runs
python -m runner.compare --where dataset=ml100k epochs=30
python -m runner.compare results/runs/RUN 5c0d3c2a17      two runs, by folder or by the end of the run id

Runs that differ in nothing but the seed are one row, and the best come first. A row with more than four settings
shows those that tell it from the rows above and below, at most four; +7 says that seven more differ somewhere in the
table. --all shows every one, and so does --csv.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.commands.frame import carry_out, parser_of
from runner.errors import RunnerError
from runner.options.conversion import as_path


def main(words: Sequence[str] | None = None) -> int:
    """Print the comparison; return the exit status (2 for a user's mistake)."""
    parser = parser_of("python -m runner.compare", __doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders, run ids or their ends (default: all)")
    parser.add_argument("--where", nargs="+", default=[], metavar="KEY=VALUE", help="only runs with these settings")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument(
        "--all", action="store_true", help="show every setting that differs, in rows as long as it takes"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the numbers to this file, too")
    arguments = parser.parse_args(words)
    return carry_out(lambda: compare(arguments))


def compare(arguments: argparse.Namespace) -> None:
    """Print a table for each data set. Raises RunnerError if no run is found."""
    import pandas as pd

    from runner.report.numbers.comparison import NO_RUNS_YET, NO_SUCH_RUNS, as_printed, by_dataset, chosen, comparison
    from runner.report.numbers.records import all_records
    from runner.report.pages.screen import screen_table
    from runner.training.files import write_atomically

    results_dir = as_path(arguments.results_dir, "--results-dir")
    everything = all_records(results_dir)
    records = chosen(everything, arguments.runs, arguments.where)
    if not records:
        raise RunnerError(f"{results_dir / 'runs'}: {NO_SUCH_RUNS if everything else NO_RUNS_YET}")
    frames = {}
    for name, mine in by_dataset(records):
        frames[name] = comparison(mine)
        print(f"## {name}\n\n{screen_table(as_printed(frames[name], mine, whole=arguments.all), sys.stdout)}\n")
    if arguments.csv is not None:
        together = pd.concat([frame.assign(dataset=name) for name, frame in frames.items()])
        write_atomically(as_path(arguments.csv, "--csv"), together.to_csv(index=False, float_format="%.6g"))
        print(arguments.csv)


if __name__ == "__main__":
    sys.exit(main())
