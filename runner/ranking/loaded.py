"""Load a run and rank with it.

    from runner import load_run

    run = load_run("results/runs/RUN")             # its folder, its id, the end of its id, or what runner.export wrote
    run.predict(["a text", "another one"], k=3)    # a run on texts with labels: a DataFrame of classes
    run.predict(matrix, k=3)                       # a run on features: a matrix of NumPy or SciPy, a row each
    run.predict([["item", "later item"]], k=10)    # a run on a log: the items that each user took, oldest first
    run.predict(texts, k=3, threshold=0.2)         # only what is at least so probable

The columns are those of ``python -m runner.predict``; rows, users and lines count from 0.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, RunnerError, require
from runner.ranking import lines, rows, users
from runner.runs.inventory import folder_of
from runner.training.run_folder import config_of, run_with_weights

Line = tuple[Any, ...]


class LoadedRun:
    """Hold the network of a run, to rank with."""

    def __init__(self, run: str | Path, results_dir: str | Path = "results") -> None:
        self.folder = run_with_weights(folder_of(Path(run), Path(results_dir)))
        self.config = config = config_of(self.folder)
        if config.dataset.family not in ("rows", "sequences", "text"):
            raise RunnerError(
                f"{run}: {config.run_id} was trained on {config.dataset.family}, for which there are no"
                " classes to rank; give the folder of a run on rows, on sequences or on text"
            )
        if config.dataset.family == "rows" and config.sampler is None:
            raise RunnerError(
                f"{run}: model={config.model.name} has no class matrix, and this command ranks rows by"
                " one; give the folder of a run with a sampler"
            )
        from runner.machine.threads import set_threads
        from runner.training.run import load_to_rank

        set_threads(0)  # the run may come from a machine with more cores
        self.network, self.task, step = load_to_rank(config, self.folder)
        self.step = step
        if not self.folder.is_finished():
            status = (self.folder.summary() or {}).get("status")
            print(f"the run is '{status}': these are its weights after step {step:,}", file=sys.stderr)

    def ranked(self, source: Any, k: int, threshold: float = 0) -> Iterator[Line]:
        """Yield the header and the lines of a ranking. ``source``: what the modules of the family read."""
        ranking: Any = {"rows": rows, "sequences": users, "text": lines}[self.config.dataset.family]
        return iter(ranking.ranked(self.network, self.task, source, k, threshold))

    def predict(self, given: Any, k: int = 5, *, threshold: float = 0) -> Any:
        """Return the best k classes, items or words for each of what is given, as a DataFrame of pandas.

        ``given``: a list of texts, a matrix of features or a list of lists of items, as the run was trained on.
        ``threshold``: least probability of what is returned. Raises DataError (one line).
        """
        import pandas as pd

        check_choice(k, threshold)
        sources = {
            "rows": rows.rows_of_values, "sequences": users.histories_of_lists, "text": lines.lines_of_texts,
        }  # fmt: skip
        header, *found = self.ranked(sources[self.config.dataset.family](self.task, given), k, threshold)
        frame = pd.DataFrame(found, columns=list(header))
        if header[0] in ("row", "line"):
            frame[header[0]] -= 1
        return frame


def load_run(run: str | Path, results_dir: str | Path = "results") -> LoadedRun:
    """Load a run by its folder, its id or the end of its id. Raises RunnerError, ConfigError, DataError (one line)."""
    return LoadedRun(run, results_dir)


def check_choice(k: int, threshold: float, key: str = "k") -> None:
    """Raise ConfigError unless as many can be ranked and the threshold is a probability."""
    require(k >= 1, f"{key} must be at least 1")
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must lie in [0, 1], got {threshold}")
