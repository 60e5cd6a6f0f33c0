"""Measure the samplers that a run may have: of classes, or of training examples.

python -m runner.diagnosis.measure FOLDER WORDS... does so for the tables of the report, without printing the result.
"""

import sys
from pathlib import Path

from runner.commands.frame import carry_out
from runner.config import prepare_plugins
from runner.errors import RunnerError
from runner.options.conversion import as_path
from runner.report.spec.request import COMMAND, Request, read_request


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


def _measure_for_a_table() -> None:
    folder, *words = sys.argv[1:]
    request = read_request(words)
    prepare_plugins(request.overrides)
    measure(as_path(Path(folder), "RUN"), request, " ".join([COMMAND, folder, *words]))


if __name__ == "__main__":
    sys.exit(carry_out(_measure_for_a_table))
