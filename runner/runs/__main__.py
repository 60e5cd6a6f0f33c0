"""List runs, show one, or delete what holds no result.

python -m runner.runs list --where dataset=ml100k        a line for each run
python -m runner.runs show 5c0d3c2a17                     settings, metrics, stages and provenance of one
python -m runner.runs prune                               what would be deleted: runs without a result
python -m runner.runs prune --status diverged --yes       delete those that diverged
python -m runner.runs prune --weights --yes               delete kept weights, and keep the results

A run is named by its folder, its id or the end of its id. Finished runs are deleted only by name.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.commands.frame import carry_out, parser_of
from runner.errors import RunnerError


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("python -m runner.runs", __doc__)
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    some = argparse.ArgumentParser(add_help=False)
    some.add_argument("--where", nargs="+", default=[], metavar="KEY=VALUE", help="only runs with these settings")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", parents=[place, some], help="a line for each run")
    show = commands.add_parser("show", parents=[place], help="settings, metrics, stages and provenance of a run")
    show.add_argument("run", metavar="RUN", help="its folder, its id or the end of its id")
    prune = commands.add_parser("prune", parents=[place, some], help="delete runs without a result, or kept weights")
    prune.add_argument("runs", nargs="*", metavar="RUN", help="these runs, even finished ones (default: by status)")
    prune.add_argument(
        "--status", nargs="+", choices=["unfinished", "failed", "diverged", "damaged", "not run"], metavar="STATUS",
        help="unfinished, failed, diverged, damaged, 'not run' (default: any of them)",
    )  # fmt: skip
    prune.add_argument("--weights", action="store_true", help="only kept weights, of finished runs too")
    prune.add_argument("--yes", action="store_true", help="delete; without it, only what would be deleted is printed")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words say; return the exit status (2 for a user's mistake)."""
    arguments = _parser().parse_args(words)
    return carry_out(lambda: print(_answer(arguments)))


def _answer(arguments: argparse.Namespace) -> str:
    from runner.machine.disk import size, size_text
    from runner.report.numbers.comparison import NO_RUNS_YET, NO_SUCH_RUNS
    from runner.report.numbers.records import DAMAGED
    from runner.report.pages.screen import screen_table
    from runner.runs.details import details
    from runner.runs.inventory import folders, selected, table
    from runner.runs.prune import WITHOUT_RESULT, doomed, prune

    results_dir = arguments.results_dir.expanduser().absolute()
    if arguments.command == "prune":
        statuses = arguments.status or WITHOUT_RESULT
        items = doomed(results_dir, arguments.runs, arguments.where, statuses, weights=arguments.weights)
        return prune(items, yes=arguments.yes)
    where = getattr(arguments, "where", [])
    everything = folders(results_dir, tells=bool(where))
    if not everything:
        raise RunnerError(f"{results_dir / 'runs'}: {NO_RUNS_YET}")
    records = selected(everything, [arguments.run] if arguments.command == "show" else [], where)
    if not records:
        raise RunnerError(f"{results_dir / 'runs'}: {NO_SUCH_RUNS}")
    if arguments.command == "list":
        total = size_text(sum(size(record.path) for record in records))
        return f"{screen_table(table(records), sys.stdout)}\n{len(records)} runs, {total}"
    (record,) = records
    if record.status == DAMAGED:
        raise RunnerError(f"{record.path} is damaged: {record.damage}; python -m runner.runs prune {record.short_id}")
    return details(record)


if __name__ == "__main__":
    sys.exit(main())
