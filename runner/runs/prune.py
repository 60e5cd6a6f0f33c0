"""Delete run folders that hold no result, or the weights that runs kept; finished runs only if they are named."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import RunLocked, RunnerError
from runner.machine.disk import size, size_text
from runner.report.numbers.records import DAMAGED, DIVERGED, NOT_RUN, UNFINISHED, RunRecord
from runner.runs.inventory import folders, selected
from runner.training.run_folder import RunFolder

WITHOUT_RESULT = (UNFINISHED, "failed", DIVERGED, DAMAGED, NOT_RUN)


@dataclass(frozen=True, kw_only=True)
class Doomed:
    """A folder that is to be deleted: that of a run, or the weights in it."""

    record: RunRecord
    path: Path
    why: str
    bytes: int


def doomed(
    results_dir: Path, names: Sequence[str], where: Sequence[str], statuses: Sequence[str], *, weights: bool
) -> list[Doomed]:
    """Return what is to be deleted, without deleting it.

    With names it is these runs, whatever they are; otherwise it is every run with one of the statuses. ``where``
    (KEY=VALUE) leaves those with the settings. ``weights``: only the kept weights of the runs, finished ones included.
    Raises RunnerError for a name that is no run of this results folder.
    """
    records = folders(results_dir, tells=bool(where))  # settings of damaged runs cannot be read
    found = selected(records, names, where)
    for name in names:
        place = Path(name).expanduser().absolute()
        if "/" in name and place.parent.resolve() != (results_dir / "runs").resolve():
            raise RunnerError(f"{name} is not in {results_dir / 'runs'}; give --results-dir")
    out = []
    for record in found:
        known = record.status
        path = record.path / "weights" if weights else record.path
        wanted = path.is_dir() if weights else bool(names) or known in statuses
        if wanted:
            why = ": ".join(filter(None, [known, record.damage]))
            out.append(Doomed(record=record, path=path, why=why, bytes=size(path)))
    return out


def prune(items: Sequence[Doomed], *, yes: bool) -> str:
    """Delete the items if ``yes``; return what was deleted or would be. Runs in progress are left."""
    lines, freed = [], 0
    for item in items:
        what = f"{item.path} ({item.why}, {size_text(item.bytes)})"
        try:
            with RunFolder(item.record.path).locked():
                if yes:
                    _delete(item)
        except (RunLocked, OSError) as error:
            lines.append(f"left: {what}: {error}")
            continue
        freed += item.bytes
        lines.append(f"{'deleted' if yes else 'would delete'}: {what}")
    if not items:
        return "nothing to delete"
    lines.append(f"{size_text(freed)} freed" if yes else f"{size_text(freed)} in all; nothing is deleted without --yes")
    return "\n".join(lines)


def _delete(item: Doomed) -> None:
    if item.path == item.record.path:
        # Without a summary it is no run, so that what a kill leaves here is not taken for one.
        (item.path / "summary.json").unlink(missing_ok=True)
    shutil.rmtree(item.path)
