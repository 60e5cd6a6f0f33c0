"""Render tables again from run folders, or tabulate the runs of a sweep.

python scripts/render_tables.py lns_table2 --profile small
python scripts/render_tables.py --sweep results --keys sampler.K sampler.L
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.config import explain
from runner.errors import RunnerError
from runner.machine.terminal import print_anything
from runner.options.conversion import as_path
from runner.report.spec.grids import PROFILES
from runner.report.spec.tables import SMALL, TABLES, bench_names, load_bench, load_table, table_names


def main() -> int:
    print_anything()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="files of conf/table (default: all)")
    parser.add_argument("--profile", default="small", metavar="|".join(PROFILES), help="default: small")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--tables-dir", type=Path, default=TABLES, metavar="DIR", help="default: conf/table")
    parser.add_argument("--sweep", type=Path, metavar="DIR", help="tabulate all runs under DIR/runs instead")
    parser.add_argument("--keys", nargs="+", metavar="KEY", help="swept settings (default: all that differ)")
    parser.add_argument("--dataset", help="with --sweep: only this data set")
    parser.add_argument("--method", help="with --sweep: only this sampler (or nce)")
    arguments = parser.parse_args()
    try:
        if arguments.sweep:
            return sweep(as_path(arguments.sweep, "--sweep"), arguments)
        from runner.report.render import render

        folder = arguments.tables_dir.absolute()
        specs = [load_table(name, folder) for name in arguments.tables or table_names(folder)]
        benches = [] if arguments.tables else [load_bench(name, folder) for name in bench_names(folder)]
        results_dir, small = as_path(arguments.results_dir, "--results-dir"), arguments.profile == SMALL
        for path in render(specs, arguments.profile, results_dir, benches, small_benches=small):
            print(path)
        return 0
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2


def sweep(results_dir: Path, arguments: argparse.Namespace) -> int:
    """Print the table of every method whose runs differ, and write it to out/sweep/<data set>-<method>.md and .csv.

    Raises RunnerError if no runs fit or none of the keys differs between them.
    """
    from runner.report.numbers.records import all_records
    from runner.report.numbers.sweep import as_text, differing_keys, families, pivots, sweep_table
    from runner.report.pages.layout import markdown_table
    from runner.training.files import write_atomically

    found = {
        family: records
        for family, records in families(all_records(results_dir)).items()
        if arguments.dataset in (None, family[0]) and arguments.method in (None, family[1])
    }
    if not found:
        raise RunnerError(f"{results_dir / 'runs'}: no runs of that data set and method")
    differing = {family: differing_keys(records) for family, records in found.items()}
    wanted = set(arguments.keys or [key for keys in differing.values() for key in keys])
    found = {family: records for family, records in found.items() if wanted & set(differing[family])}
    if not found:
        names = sorted({key for keys in differing.values() for key in keys})
        asked = ", ".join(sorted(wanted)) or "any setting"
        raise RunnerError(
            f"{results_dir / 'runs'}: no runs of one method and data set differ in {asked};"
            f" they differ in: {', '.join(names) or 'nothing'}"
        )
    folder = results_dir / "out" / "sweep"
    folder.mkdir(parents=True, exist_ok=True)
    for (dataset, method), records in found.items():
        keys = arguments.keys or differing_keys(records)
        table = sweep_table(records, keys)
        parts = [f"# {method} on {dataset}", markdown_table(as_text(table, [*keys, *differing_keys(records)]))]
        for measure, grid in pivots(table, keys, records).items():
            corner = f"{keys[0]} \\ {keys[1]}"
            text = as_text(grid.reset_index().rename(columns={keys[0]: corner}), [corner])
            parts += [f"## {measure}", markdown_table(text)]
        stem = folder / f"{dataset}-{method}"
        write_atomically(Path(f"{stem}.md"), "\n\n".join(parts) + "\n")
        write_atomically(Path(f"{stem}.csv"), table.to_csv(index=False, float_format="%.6g"))
        print("\n\n".join(parts), end="\n\n")
        print(f"{stem}.md\n{stem}.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
