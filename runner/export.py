"""Pack a finished run for another machine: its weights, and what predicting needs besides.

python -m runner.export results/runs/RUN DIR
python -m runner.predict DIR new_texts.csv        DIR is a run folder to predict with, wherever it lies
python -c "from runner import load_run; print(load_run('DIR').predict(['a text'], k=3))"

DIR is made, and holds weights.safetensors (layers by name, which any program reads that knows safetensors; the extra
export installs it), prediction/ (names and vocabulary), and the run's config.yaml, summary.json, provenance.json and
metrics.jsonl. Tables of a sampler and all that only further training needs stay behind.
"""

import argparse
import shutil
import sys
from pathlib import Path

from runner.commands.frame import add_run, carry_out, parser_of
from runner.errors import RunnerError, require
from runner.options.conversion import as_path

_RECORDS = ("config.yaml", "summary.json", "provenance.json", "metrics.jsonl")


def main() -> int:
    """Write the folder; return the exit status (2 for a user's mistake)."""
    parser = parser_of("python -m runner.export", __doc__)
    add_run(parser)
    parser.add_argument("to", type=Path, metavar="DIR", help="folder to make")
    arguments = parser.parse_args()
    return carry_out(lambda: export(arguments))


def export(arguments: argparse.Namespace) -> None:
    """Write the folder, whole or not at all, and print its path. Raises ConfigError or RunnerError (one line)."""
    target = as_path(arguments.to, "DIR")
    require(target.parent.is_dir(), f"DIR: there is no folder {target.parent}; make it first")
    require(
        not target.exists() or (target.is_dir() and not any(target.iterdir())),
        f"DIR: {target} is there already; name a new folder",
    )
    from runner.ranking.loaded import LoadedRun
    from runner.training.prediction import FOLDER, save_prediction
    from runner.training.safetensors import save_safetensors
    from runner.training.stored_arrays import replacement

    run = LoadedRun(arguments.run, arguments.results_dir)
    if not run.folder.is_finished():
        raise RunnerError(f"{run.folder.path}: only a finished run is packed; run its command again")
    if not run.task.can_rank_without_data:
        raise RunnerError(
            f"{run.folder.path}: its output layer, {run.config.method_name}, ranks by its training data only"
        )
    arrays = {n: a for n, a in run.network.final_weights().items() if not n.startswith("sampler.")}
    with replacement(target) as folder:
        for name in _RECORDS:
            shutil.copyfile(run.folder.path / name, folder / name)
        if run.task.ranks_only:
            shutil.copytree(run.folder.path / FOLDER, folder / FOLDER)
        else:  # a run of an earlier version
            save_prediction(folder, run.task)
        save_safetensors(folder, run_id=run.folder.run_id, step=run.step, arrays=arrays)
    print(target)


if __name__ == "__main__":
    sys.exit(main())
