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

from runner.commands.frame import add_run, carry_out, parser_of
from runner.config import prepare_plugins
from runner.report.spec.request import COMMAND, add_arguments, request_of


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    front = parser_of(COMMAND, __doc__)
    add_run(front)
    add_arguments(front)
    return front


def main() -> int:
    """Measure and print; return the exit status (2 for a user's mistake, 130 after Ctrl-C)."""
    return carry_out(_diagnose)


def _diagnose() -> None:
    arguments = parser().parse_intermixed_args()
    request = request_of(arguments)
    from runner.diagnosis.measure import measure
    from runner.runs.inventory import folder_of

    prepare_plugins(request.overrides)
    folder = folder_of(arguments.run, arguments.results_dir)
    text, place = measure(folder, request, " ".join([COMMAND, *sys.argv[1:]]))
    print(text)
    print(place, flush=True)


if __name__ == "__main__":
    sys.exit(main())
