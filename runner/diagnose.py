"""Measure how far samplers are from the softmax of a run, and what that does to gradients.

python -m runner.diagnose results/runs/RUN
python -m runner.diagnose results/runs/RUN --sampler uniform unigram sampler.num_samples=100
python -m runner.diagnose results/runs/RUN --sampler all --rows 128 --draws 32

The run may be finished or stopped at a checkpoint. Any sampler can be put on the run's last weights, whether they were
trained with it or not. The run's own sampler keeps the run's settings and the tables it ended with; other samplers take
the settings of conf/sampler and are built anew. Each sampler is measured with the run's loss, or with its customary one
if the run's loss does not go with it. sampler.KEY=VALUE changes a setting of every sampler that has it. loss=NAME,
loss.KEY=VALUE and hardware.threads=N can be set too; with --sampler all, a loss is used for the samplers it goes with.

The command prints a Markdown table and, as its last line, the folder with all results: RUN/diagnostics (with --name
NAME, RUN/diagnostics-NAME). It replaces that folder.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.config import CONF, explain, prepare_plugins
from runner.diagnosis.request import Request
from runner.errors import RunnerError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = sorted(path.stem for path in (CONF / "sampler").glob("*.yaml"))
    front = argparse.ArgumentParser(
        prog="python -m runner.diagnose", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    front.add_argument("run_folder", type=Path, metavar="RUN_FOLDER", help="folder of a run")
    front.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, e.g. sampler.num_samples=100")
    front.add_argument(
        "--sampler", nargs="+", default=[], metavar="NAME",
        help=f"default: the run's own; all: every sampler that fits; or some of {', '.join(names)}",
    )  # fmt: skip
    front.add_argument("--rows", type=int, default=64, help="number of test rows to measure on; default: 64")
    front.add_argument("--draws", type=int, default=16, help="draws that gradients are averaged over; default: 16")
    front.add_argument("--name", default="", help="results go to RUN/diagnostics-NAME instead of RUN/diagnostics")
    return front


def read_arguments(words: Sequence[str] | None = None) -> tuple[Path, Request]:
    """Return the run folder and the request; settings and names of samplers may come in any order."""
    arguments = parser().parse_intermixed_args(words)
    # argparse takes overrides that follow --sampler NAME for names of samplers.
    request = Request(
        samplers=tuple(word for word in arguments.sampler if "=" not in word),
        overrides=(*arguments.overrides, *(word for word in arguments.sampler if "=" in word)),
        rows=arguments.rows,
        draws=arguments.draws,
        name=arguments.name,
    )
    return arguments.run_folder, request


def main() -> int:
    try:
        folder, request = read_arguments()
        prepare_plugins(request.overrides)
        from runner.diagnosis.run import diagnose
        from runner.diagnosis.tables import to_markdown

        done, place = diagnose(folder, request, " ".join(["python -m runner.diagnose", *sys.argv[1:]]))
        print(to_markdown(done))
        print(place, flush=True)
    except KeyboardInterrupt:
        return 130
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
