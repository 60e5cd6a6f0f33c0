"""Say what a run ended with, without times: two runs of one configuration must end with the same."""

import hashlib
from pathlib import Path
from typing import Any

from runner.errors import DamagedRun
from runner.training.run_records import check_run, read_observations, read_summary

_TIMES = (
    "train_seconds",
    "stage_seconds",
    "warm_up_seconds",
    "peak_rss_mb",
    "units_per_second",
    "others_share",
    "stolen_share",
)
_PLACES = ("results_dir", "checkpoint_every_seconds")  # settings that decide nothing


def outcome(folder: Path) -> dict[str, Any]:
    """Return summary and observations of a run without times, the names in its folder, and the sha256 of its weights.

    Raises DamagedRun, or if it has no summary.
    """
    check_run(folder)
    summary = read_summary(folder)
    if summary is None:
        raise DamagedRun(folder / "summary.json", "it is missing")
    settings = {key: value for key, value in summary["config"].items() if key not in _PLACES}
    return {
        "summary": {**_timeless(summary), "config": settings},
        "observations": [_timeless(record) for record in read_observations(folder) or []],
        "names": sorted(path.name for path in folder.iterdir()),
        "weights": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("weights/*"))
        },
    }


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in _TIMES}
