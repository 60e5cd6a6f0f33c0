"""What tests of hostile input share: the settings of a tiny language model's runs, and what a folder holds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.config import compose_one_of_many
from runner.options.settings import RunConfig

RATE = 0.02  # of the runs to damage
SMALL = [
    "model=lstm", "model.hidden=16", "model.embedding=16", "batch_size=4", "windows.length=8", 
    "evaluation.every_epochs=0.5", "hardware.threads=1", "sampler=uniform", "sampler.num_samples=10", "epochs=2",
]  # fmt: skip


@dataclass(frozen=True)
class Runs:
    """Run folders of language models with the same settings but for the learning rate.

    ``finished``, ``other``: two of them, in one results folder with a third one.
    ``stopped``: a run that was interrupted twice, ``earlier`` is its folder after the first time.
    """

    finished: Path
    other: Path
    stopped: Path
    earlier: Path
    data: Path


def settings(data: Path, results: Path, rate: float, *more: str) -> RunConfig:
    overrides = [f"dataset.path={data}", f"results_dir={results}", f"optimizer.lr={rate}", *SMALL, *more]
    return compose_one_of_many(("dataset=text", *overrides))


Call = Callable[[Path], tuple[int, str]]


def content(folder: Path) -> dict[str, bytes | None]:
    """Return the bytes of every file below a folder, None for folders; the lock is no content."""
    files = (file for file in sorted(folder.rglob("*")) if file.name != ".lock")
    return {str(file.relative_to(folder)): None if file.is_dir() else file.read_bytes() for file in files}
