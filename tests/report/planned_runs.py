"""planned_runs.json records the runs that every grid plans: their number and a digest of their ids.

A change of a grid or of the catalogue of methods must not change this record by accident. If a change of runs is
intended, ``python tests/report/planned_runs.py`` records them anew.
"""

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs from a plain clone

from runner.report.spec.grids import PROFILES, Grid, expand, grid_names, load_grid
from runner.report.spec.yaml_files import TABLES

COMMAND = "python tests/report/planned_runs.py"
_FILE = Path(__file__).with_suffix(".json")


def digest(grid: Grid, profile: str, results_dir: Path) -> str:
    """Return text such as ``7 runs, 0123456789abcdef``, which does not depend on the order of the runs."""
    ids = sorted(run.run_id for run in expand(grid, profile, results_dir))
    return f"{len(ids)} runs, {hashlib.sha256(' '.join(ids).encode()).hexdigest()[:16]}"


def read() -> dict[str, str]:
    """Read the record, such as ``{"lns/small": "14 runs, ..."}``."""
    recorded: dict[str, str] = json.loads(_FILE.read_text())
    return recorded


def record() -> None:
    found = {
        f"{name}/{profile}": digest(load_grid(name, TABLES), profile, Path("results"))
        for name in grid_names(TABLES)
        for profile in PROFILES
    }
    _FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record()
