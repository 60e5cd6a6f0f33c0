"""Measure how far samplers are from the softmax of a run, or what samplers of examples draw from its data.

python -m runner.diagnose results/runs/RUN
python -m runner.diagnose results/runs/RUN --sampler uniform unigram sampler.num_samples=100
python -m runner.diagnose 5c0d3c2a17 --sampler all --rows 128 --draws 32               the run by the end of its id

The run may be finished or stopped at a checkpoint. Any sampler can be put on the run's last weights, whether they were
trained with it or not. The run's own sampler keeps the run's settings and the tables it ended with; other samplers take
the settings of conf/sampler and are built anew. Each sampler is measured with the run's loss, or with its customary one
if the run's loss does not go with it. sampler.KEY=VALUE changes a setting of every sampler that has it. loss=NAME,
loss.KEY=VALUE and hardware.threads=N can be set too; with --sampler all, a loss is used for the samplers it goes with.

A run of linear or logistic regression has no classes. There, samplers of training examples are measured: how large the
gradients of drawn examples are, the variance and bias of the estimate by one draw, the direction of the mean of 1 to
1,000 draws, and Lemma 1 of the LGD paper. --sampler names some of them (uniform, lgd_printed, lgd, lgd_strata,
norm_oracle), --draws says how often the draws are repeated, and batch_sampler.KEY=VALUE changes settings.

The command prints a Markdown table and, as its last line, the folder with all results: RUN/diagnostics (with --name
NAME, RUN/diagnostics-NAME). It replaces that folder.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.commands.frame import add_run, carry_out, parser_of
from runner.config import CONF, prepare_plugins
from runner.diagnosis.request import Request
from runner.errors import RunnerError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = sorted(path.stem for path in (CONF / "sampler").glob("*.yaml"))
    front = parser_of("python -m runner.diagnose", __doc__)
    add_run(front)
    front.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, e.g. sampler.num_samples=100")
    front.add_argument(
        "--sampler", nargs="+", default=[], metavar="NAME",
        help=f"default: the run's own; all: every sampler that fits; or some of {', '.join(names)}",
    )  # fmt: skip
    front.add_argument("--rows", type=int, help="number of test rows to measure samplers of classes on; default: 64")
    front.add_argument("--draws", type=int, default=16, help="draws that gradients are averaged over; default: 16")
    front.add_argument("--name", default="", help="results go to RUN/diagnostics-NAME instead of RUN/diagnostics")
    return front


def read_arguments(words: Sequence[str] | None = None) -> tuple[Path, Path, Request]:
    """Return the run as it is named, the results folder and the request; settings and names of samplers may come in any
    order."""
    arguments = parser().parse_intermixed_args(words)
    # argparse takes overrides that follow --sampler NAME for names of samplers.
    request = Request(
        samplers=tuple(word for word in arguments.sampler if "=" not in word),
        overrides=(*arguments.overrides, *(word for word in arguments.sampler if "=" in word)),
        rows=arguments.rows,
        draws=arguments.draws,
        name=arguments.name,
    )
    return arguments.run, arguments.results_dir, request


def measure(folder: Path, request: Request, command: str) -> tuple[str, Path]:
    """Measure the run's kind of samplers; return the result as Markdown, and the folder that it was written to."""
    from runner.diagnosis import examples, run
    from runner.report.diagnoses import example_tables, tables
    from runner.training.run_folder import config_of, run_with_weights

    config = config_of(run_with_weights(folder))
    if config.dataset.family in ("rows", "text") and config.sampler is None:
        raise RunnerError(
            f"{folder}: {config.run_id} samples neither classes nor examples, so nothing can be diagnosed"
        )
    if config.sampler is None:
        of_examples, place = examples.diagnose(folder, request, command)
        return example_tables.to_markdown(of_examples), place
    of_classes, place = run.diagnose(folder, request, command)
    return tables.to_markdown(of_classes), place


def main() -> int:
    """Measure and print; return the exit status (2 for a user's mistake, 130 after Ctrl-C)."""
    return carry_out(_diagnose)


def _diagnose() -> None:
    run, results_dir, request = read_arguments()
    from runner.runs.inventory import folder_of

    prepare_plugins(request.overrides)
    text, place = measure(folder_of(run, results_dir), request, " ".join(["python -m runner.diagnose", *sys.argv[1:]]))
    print(text)
    print(place, flush=True)


if __name__ == "__main__":
    sys.exit(main())
