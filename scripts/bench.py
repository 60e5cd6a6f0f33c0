"""Measure training steps of the output layer, or whole steps of a language model, with several methods side by side.

python scripts/bench.py output_layer                                   every method at 670,091 classes
python scripts/bench.py output_layer classes=131072,670091,6700910     how its time grows with the classes
python scripts/bench.py rows method=lsh_label sampler.K=4              the row policies of the optimizer
python scripts/bench.py refresh classes=670091                         rebuilding hash tables
python scripts/bench.py sampling classes=10000,100000,500000           how long drawing takes, and its figure
python scripts/bench.py kernels                                        RF-softmax Table 1: errors, no times
python scripts/bench.py example_steps                                  steps of regression by sampler of examples
python scripts/bench.py read_log                                       preparing a log of up to ten million events
python scripts/bench.py language_step texts=ptb                        whole steps of a language model by sampler
python scripts/bench.py ranks                                          split runs on this machine, under torchrun
python scripts/bench.py scale                                          what a model predicts for many machines

Each command writes results/bench/KIND.json, the same report as Markdown beside it, and in some cases a figure. Nothing
else should run on the machine. The papers' tables are conf/table/bench: make reproduce TABLE=NAME measures one.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

_QUIET = 0.5  # cores kept busy by others above which timings are doubtful
_LOOK_SECONDS = 0.1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from runner.bench.settings import KINDS, about

    front = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n\n".join(["Kinds and their settings:", *map(about, KINDS)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    front.add_argument("kind", choices=tuple(KINDS), metavar="KIND", help=f"one of {', '.join(KINDS)}")
    front.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="see below")
    front.add_argument("--json", type=Path, metavar="PATH", help="default: results/bench/KIND.json")
    return front


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = parser().parse_intermixed_args(argv)
    from runner.bench.settings import settings_of
    from runner.config import explain
    from runner.errors import RunnerError
    from runner.machine.terminal import print_anything

    print_anything()

    if arguments.kind != "kernels" and (busy := busy_cores()) > _QUIET:
        print(f"warning: others keep {busy:.1f} cores busy: timings will be noisy", file=sys.stderr)
    try:
        settings = settings_of(arguments.kind, arguments.settings)
        from runner.bench.report import measure

        print(measure(arguments.kind, settings, arguments.json or Path("results/bench") / f"{arguments.kind}.json"))
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the report keeps every number of classes that was measured to the end", file=sys.stderr)
        return 130
    return 0


def busy_cores() -> float:
    """Return the cores that others keep busy at this moment; the load average where the system does not say.

    The load average counts what ran in the last minute, such as the runs of a plan that ends with measurements.
    """
    from runner.machine.company import Company

    company = Company()
    time.sleep(_LOOK_SECONDS)
    cores = company.cores()
    return os.getloadavg()[0] if cores is None else cores


if __name__ == "__main__":
    sys.exit(main())
