"""Read the records of a run folder: summary, provenance, settings and observations. What a run cannot have written is
damage, which is an error that names the file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.contracts import Measure
from runner.errors import ConfigError, DamagedRun
from runner.options.conversion import convert
from runner.options.settings import digest_of, flat, module_name
from runner.training.files import read_json, read_json_lines, read_yaml

FINISHED = "finished"
CLEARING = ".clearing"  # a file that is there while the results of an earlier run are deleted
_STATUSES = ("running", "interrupted", "failed", "diverged", FINISHED)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)) or value == "inf"  # JSON has no infinity


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


Kinds = Mapping[str, Callable[[Any], bool]]
_SUMMARY: Kinds = {"status": _is_text, "run_id": _is_text, "config": _is_mapping}
_OF_FINISHED: Kinds = {
    "metrics": _are_numbers,
    "epochs": _is_number,
    "train_seconds": _is_number,
    "stage_seconds": _are_numbers,
    "candidates_per_row": _is_number,
    "peak_rss_mb": _is_number,
}
_OF_MEASURES: Kinds = {"measures": _is_list, "watched": _is_text, "unit": _is_text}  # earlier versions stored none
_MAY_BE_IN_SUMMARY: Kinds = {
    "error": _is_text,
    "steps": _is_whole,
    "units_per_second": _is_number,
    "dataset": _is_mapping,
    "selection": _is_mapping,
    "diagnostics": _is_mapping,
    "chosen": _is_mapping,
    "identity": _is_mapping,  # earlier versions stored neither this nor the device
    "device": _is_mapping,
    "ranks": _is_whole,
    "others_share": _is_number,  # nor these shares of the machine
    "stolen_share": _is_number,
}
_PROVENANCE: Kinds = {
    "commit": lambda value: value is None or _is_text(value),
    "patch": lambda value: value is None or _is_text(value),
    "started": _is_text,
    "cpu": _is_text,
    "threads": _is_whole,
    "cores": _is_whole,
}
_MAY_BE_IN_PROVENANCE: Kinds = {
    "data_checksum": _is_text,
    "plugins": lambda value: _is_mapping(value) and all(map(_is_text, value.values())),
    "run_id": _is_text,
    "ranks": _is_whole,
    "earlier_attempts": lambda value: _is_list(value) and all(map(_is_mapping, value)),
}
_PLACED: Kinds = {"step": _is_whole, "epoch": _is_number}
_OBSERVATIONS: Mapping[str, Kinds] = {
    "evaluation": {**_PLACED, "train_seconds": _is_number},
    "distribution": {**_PLACED, "rank_end": _is_list, "truth": _is_list, "proposal": _is_list},
    "diagnostics": _PLACED,
}


def _check(path: Path, values: Mapping[str, Any], kinds: Kinds, *, where: str = "", may_lack: bool = False) -> None:
    """Raise DamagedRun for the first key that is missing, unless ``may_lack``, or has a value of another kind."""
    for key, is_right in kinds.items():
        if key not in values and not may_lack:
            raise DamagedRun(path, f"{where}'{key}' is missing")
        if key in values and not is_right(values[key]):
            raise DamagedRun(path, f"{where}'{key}' is of a wrong kind")


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return summary.json, or None if there is none. Raises DamagedRun."""
    path = folder / "summary.json"
    summary = read_json(path)
    if summary is None:
        return None
    _check(path, summary, _SUMMARY)
    status = summary["status"]
    if status not in _STATUSES and not status.startswith("skipped"):
        raise DamagedRun(path, f"it has the status {status!r}")
    _check(path, summary, _MAY_BE_IN_SUMMARY, may_lack=True)
    _check_id(path, summary)
    if status == FINISHED:
        _check(path, summary, _OF_FINISHED)
        if not float(summary["epochs"]) > 0:
            raise DamagedRun(path, "'epochs' is not above 0")
        if "measures" in summary:
            _check(path, summary, _OF_MEASURES)
            _check_measures(path, summary["measures"])
    return summary


def _check_measures(path: Path, measures: list[Any]) -> None:
    try:
        headlines = [convert(Measure, measure, "").headline for measure in measures]
    except (ConfigError, AttributeError):
        raise DamagedRun(path, "'measures' is of a wrong kind") from None
    if not any(headlines):
        raise DamagedRun(path, "none of its 'measures' is the headline")


def read_provenance(folder: Path) -> dict[str, Any] | None:
    """Return provenance.json, or None if there is none. Raises DamagedRun."""
    path = folder / "provenance.json"
    provenance = read_json(path)
    if provenance is not None:
        _check(path, provenance, _PROVENANCE)
        _check(path, provenance, _MAY_BE_IN_PROVENANCE, may_lack=True)
    return provenance


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Return config.yaml, or None if there is none. Raises DamagedRun if these are not the settings of the run."""
    path = folder / "config.yaml"
    settings, summary = read_yaml(path), read_summary(folder)
    if settings is None or summary is None:
        return settings
    try:
        first, last = flat(summary["config"]), flat(settings)
        is_same = all(first[key] == last[key] for key in first.keys() & last.keys())
    except RecursionError:  # YAML may hold itself
        is_same = False
    if not is_same:  # a resumed run that was killed between two files may have newer options in one of them
        raise DamagedRun(path, f"its settings are not those of {summary['run_id']}")
    return settings


def _check_id(path: Path, summary: Mapping[str, Any]) -> None:
    """Raise DamagedRun unless the run's id is made of its identity, and its identity of its settings."""
    if "identity" not in summary:
        return
    identity, settings = flat(summary["identity"]), flat(summary["config"])
    settings["plugins"] = [module_name(str(plugin)) for plugin in settings.get("plugins") or []]
    is_whole = all(key in settings and settings[key] == value for key, value in identity.items())
    if not is_whole or summary["run_id"].rpartition("-")[2] != digest_of(summary["identity"]):
        raise DamagedRun(path, f"its settings are not those of {summary['run_id']}")


def read_observations(folder: Path) -> list[dict[str, Any]] | None:
    """Return the observations of metrics.jsonl in their order, or None if there is no such file. Raises DamagedRun."""
    path = folder / "metrics.jsonl"
    observations = read_json_lines(path)
    for number, record in enumerate(observations or [], start=1):
        where = f"line {number}: "
        _check(path, record, {"kind": _is_text}, where=where)
        _check(path, record, _OBSERVATIONS.get(record["kind"], {}), where=where)
    return observations


def check_run(folder: Path, run_id: str | None = None) -> None:
    """Raise DamagedRun if the folder holds what its run, or the run of this id, cannot have left.

    A finished run has all four files. One that was killed may lack some, and may end in the middle of an observation.
    """
    summary = read_summary(folder)
    if summary is None and (folder / "metrics.jsonl").exists() and not (folder / CLEARING).exists():
        raise DamagedRun(folder / "summary.json", "it is missing")
    if summary is not None and run_id not in (None, summary["run_id"]):
        raise DamagedRun(folder / "summary.json", f"it is of another run, {summary['run_id']}")
    run_id = folder.name if summary is None else str(summary["run_id"])
    provenance = read_provenance(folder)
    if provenance is not None and provenance.get("run_id", run_id) != run_id:
        raise DamagedRun(folder / "provenance.json", f"it is of another run, {provenance['run_id']}")
    found: dict[str, Any] = {"provenance.json": provenance, "config.yaml": read_settings(folder)}
    if summary is not None and summary["status"] == FINISHED:
        found["metrics.jsonl"] = read_observations(folder)
        for name, content in found.items():
            if not content:
                raise DamagedRun(folder / name, "it is missing" if content is None else "it is empty")
        if found["config.yaml"] != summary["config"]:
            raise DamagedRun(folder / "config.yaml", "it differs from the settings in summary.json")
