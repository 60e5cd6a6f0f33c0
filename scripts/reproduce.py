"""Make the runs that tables and figures need, then render these; what is finished is not repeated.

python scripts/reproduce.py                      all tables and figures except those run by name only, small profile
python scripts/reproduce.py lns_table2 --profile paper --dry-run
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.config import CONF, explain
from runner.errors import RunnerError
from runner.machine.terminal import fitted, print_anything
from runner.options.conversion import as_path
from runner.report.spec.grids import PROFILES
from runner.report.spec.tables import (
    SMALL,
    TABLES,
    BenchSpec,
    TableSpec,
    bench_names,
    load_bench,
    load_table,
    table_names,
)

_INTERRUPTED = 130  # the exit code that shells use after Ctrl-C


def main() -> int:
    print_anything()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="files of conf/table (see --list)")
    parser.add_argument("--profile", default="small", metavar="|".join(PROFILES), help="how much (default: small)")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--tables-dir", type=Path, default=TABLES, metavar="DIR", help="default: conf/table")
    parser.add_argument("--list", action="store_true", help="list tables, figures and profiles")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    parser.add_argument(
        "--record-seconds", type=Path, metavar="FILE", help="write how long each run took, like conf/table/seconds.csv"
    )
    parser.add_argument("--render-only", action="store_true", help="render from what has been run")
    arguments = parser.parse_args()
    if arguments.record_seconds and (arguments.dry_run or arguments.render_only):
        parser.error("--record-seconds needs runs: leave out --dry-run and --render-only")
    if arguments.record_seconds and not arguments.record_seconds.absolute().parent.is_dir():
        parser.error(f"--record-seconds {arguments.record_seconds}: its folder does not exist")
    try:
        folder = arguments.tables_dir.absolute()
        benches = bench_names(folder)
        specs = [load_table(name, folder) for name in arguments.tables or table_names(folder) if name not in benches]
        measured = [load_bench(name, folder) for name in arguments.tables or benches if name in benches]
        if not specs and not measured:
            raise RunnerError(f"{folder}: contains no table file (NAME.yaml)")
        if arguments.list:
            print_list(specs, measured)
            return 0
        by_name = [] if arguments.tables else [spec for spec in specs if spec.grid.by_name]
        code = 0
        if arguments.tables and not (specs and arguments.render_only):  # first, since the page shows what is measured
            code = max((measure(spec, arguments) for spec in measured), default=0)
        if specs or not arguments.tables:
            made = reproduce([spec for spec in specs if spec not in by_name], by_name, measured, arguments)
            code = max(code, made)
        return code
    except (RunnerError, OSError) as error:
        print(fitted(f"error: {explain(error)}", sys.stderr), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED


def measure(spec: BenchSpec, arguments: argparse.Namespace) -> int:
    """Measure a table that no runs make, at full size; return the exit code of the bench, which writes its report.

    Raises RunnerError with --render-only, as there are no runs to render.
    """
    if arguments.render_only:
        raise RunnerError(f"{spec.name} is not made from runs: leave out --render-only to measure it")
    command = spec.command(as_path(arguments.results_dir, "--results-dir"))
    print(f"{spec.title}: {' '.join(command)}", flush=True)
    if arguments.dry_run:
        return 0
    code = subprocess.run(command, cwd=CONF.parent, check=False).returncode
    return code if code >= 0 else 1  # it was killed by a signal


def reproduce(
    specs: Sequence[TableSpec],
    by_name: Sequence[TableSpec],
    benches: Sequence[BenchSpec],
    arguments: argparse.Namespace,
) -> int:
    """Make the runs of ``specs`` and render these, with those tables of ``by_name`` of which a run of their own exists.

    The pages also show what the bench has measured of ``benches``. If no tables are named, profile small measures these
    at laptop size after the runs, and the plan lists what is run by name only. Returns the exit code.

    Runs come in an order that readies one table soon after the other, and the pages are renewed as they are ready. The
    path of report.html is printed first and last.
    """
    from runner.diagnosis.of_tables import diagnose_runs
    from runner.report.diagnoses.diagnosed import seconds_after
    from runner.report.pages.publish import rendered_dir
    from runner.report.pages.screen import screen_table
    from runner.report.plan.bench_runs import bench_seconds, bench_table, measure_benches
    from runner.report.plan.order import Waiting
    from runner.report.plan.plan import Outcome, Step, duration, execute, plan, plan_table, plan_total, whole_time
    from runner.report.plan.reference_seconds import write_seconds
    from runner.report.render import Rendered, own_runs_finished, render

    results_dir = as_path(arguments.results_dir, "--results-dir")
    outcome = Outcome()
    kept: dict[str, Rendered] = {}
    report = rendered_dir(results_dir, arguments.profile) / "report.html"
    measures = bool(benches) and not arguments.tables and arguments.profile == SMALL
    if not arguments.render_only:
        print(f"the page of all tables, renewed as they are ready: {report}", flush=True)
        found = plan(specs, arguments.profile, results_dir)
        waiting = Waiting([spec.grid for spec in specs], found, arguments.profile, results_dir)
        steps = waiting.soonest_first()
        if steps:
            print(screen_table(plan_table(steps), sys.stdout))
        print(fitted(plan_total(steps), sys.stdout), flush=True)
        measuring = 0.0
        if measures:
            measuring = bench_seconds(benches, results_dir)
            print(f"after the runs these are measured at laptop size, in about {duration(measuring)}:")
            print(screen_table(bench_table(benches, results_dir), sys.stdout), flush=True)
        after = seconds_after(specs, arguments.profile, results_dir)
        print(f"then tables and figures are made, in about {duration(after)}", flush=True)
        left_out = [spec.name for spec in by_name]
        if not (arguments.tables or measures):
            left_out += [bench.name for bench in benches]
        if left_out:
            names = f"not in this plan, because they are run by name only: {', '.join(left_out)}"
            print(fitted(names, sys.stdout), flush=True)
        print(fitted(whole_time(steps, measuring + after), sys.stdout), flush=True)
        if arguments.dry_run:
            return 0

        def renew(step: Step) -> None:
            """Write the pages if the step was the last that some table waited for."""
            waiting.is_over_for(step)
            ready = [spec for spec in specs if spec.grid in waiting.ready and not spec.is_diagnosed]
            left = len(specs) - len(ready)
            if len(ready) == len(kept) or not (left or measures):  # nothing is new, or the pages are written next
                return
            new = ", ".join(spec.name for spec in ready if spec.name not in kept)
            try:
                render(ready, arguments.profile, results_dir, benches, kept=kept, waiting=left)
                print(f"    ready: {new}; {len(ready)} of {len(specs)} are in {report}", file=sys.stderr, flush=True)
            except (RunnerError, OSError) as error:
                print(f"    the page was not renewed: {explain(error)}", file=sys.stderr, flush=True)

        outcome = execute(steps, renew)
        if arguments.record_seconds:
            write_seconds(outcome.seconds, as_path(arguments.record_seconds, "--record-seconds"))
        if not outcome.stopped:
            try:
                if measures:
                    outcome.failed.extend(measure_benches(benches, results_dir))
                outcome.failed.extend(diagnose_runs(specs, arguments.profile, results_dir))
            except KeyboardInterrupt:
                outcome.stopped = True
    grids, costly = ({spec.grid for spec in some} for some in (specs, by_name))
    run_before = own_runs_finished(costly, grids, arguments.profile, results_dir)
    shown = [*specs, *(spec for spec in by_name if spec.grid in run_before)]
    for path in render(
        shown, arguments.profile, results_dir, benches, small_benches=measures, not_planned=by_name, kept=kept
    ):
        print(path)
    for title, why in outcome.failed:
        print(f"error: {title}: {why}", file=sys.stderr)
    if outcome.stopped:
        return _INTERRUPTED
    return 1 if outcome.failed else 0


def print_list(specs: Sequence[TableSpec], measured: Sequence[BenchSpec]) -> None:
    """Print all tables with their titles, and the number of runs of each grid by profile."""
    width = max(map(len, [*(spec.name for spec in specs), *(bench.name for bench in measured)]))
    for spec in specs:
        print(f"{spec.name:<{width}} {spec.title}" + (" (run by name only)" if spec.grid.by_name else ""))
    for bench in measured:
        print(f"{bench.name:<{width}} {bench.title} (measured: at laptop size, by name at full size)")
    for grid in dict.fromkeys(spec.grid for spec in specs):
        print(", ".join(spec.name for spec in specs if spec.grid == grid))
        for name in PROFILES:
            sets = ", ".join(dataset.name for dataset in grid.profile(name).datasets)
            print(f"  --profile {name:<7} {grid.num_runs(name):>3} runs on {sets}")


if __name__ == "__main__":
    sys.exit(main())
