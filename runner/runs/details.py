"""Tell about one run: the settings that are not the defaults, what was measured, where its time went, what made it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from runner.config import CONF, defaults_of
from runner.errors import ConfigError
from runner.machine.disk import size, size_text
from runner.options.settings import flat
from runner.report.numbers.records import RunRecord
from runner.report.numbers.sweep import exact
from runner.report.pages.layout import markdown_table
from runner.runs.inventory import started

_CHOSEN = ("dataset", "model", "optimizer", "batch_sampler", "sampler")  # the loss is the sampler's, unless it is set
_UNKNOWN = "–"


def details(record: RunRecord) -> str:
    """Return the run as text. Its files must be readable."""
    ended = " ".join(filter(None, [record.status, f"({record.error})" if record.error else ""]))
    lines = [f"{record.run_id}: {ended}", str(record.path), f"started {started(record) or 'at an unknown time'}"]
    if record.finished:
        lines.append(f"{record.headline}, {record.ending}")
    lines.append(
        f"{size_text(size(record.path))} on the disk, {size_text(size(record.path / 'weights'))} of it weights"
    )
    tables = {
        "Settings that are not the defaults": _settings(record.config),
        "Metrics": _metrics(record),
        "Stages": _stages(record.summary.get("stage_seconds", {})),
    }
    for title, frame in tables.items():
        if len(frame):
            lines += ["", f"## {title}", "", markdown_table(frame).rstrip()]
    lines += ["", "## Provenance", "", *_provenance(record)]  # no table, because commands are long
    return "\n".join(lines)


def _settings(config: Mapping[str, Any]) -> pd.DataFrame:
    """Return the options that were chosen, and the settings that differ from those of the options."""
    names = {group: str(config[group]["name"]) for group in _CHOSEN if group in config}
    known = {group: name for group, name in names.items() if (CONF / group / f"{name}.yaml").exists()}
    try:
        usual = flat(defaults_of(known))
    except ConfigError:  # such as an option of a plugin that is not there
        usual = {}
    rows = [{"setting": group, "value": name, "default": ""} for group, name in names.items()]
    chosen = {f"{group}.name" for group in names}
    for key, value in flat(config).items():
        if key not in chosen and (key not in usual or exact(usual[key]) != exact(value)):
            before = usual.get(key, _UNKNOWN)
            rows.append(
                {"setting": key, "value": exact(value), "default": _UNKNOWN if before == "???" else exact(before)}
            )
    return pd.DataFrame(rows)


def _metrics(record: RunRecord) -> pd.DataFrame:
    if not record.finished:
        return pd.DataFrame()
    yardstick = record.yardstick
    rows = [
        (yardstick.label(name), yardstick.measure(name).text(record.metric(name))) for name in record.summary["metrics"]
    ]
    return pd.DataFrame(rows, columns=["metric", "value"])


def _stages(seconds: Mapping[str, float]) -> pd.DataFrame:
    total = sum(seconds.values())
    rows = [(stage, f"{spent:,.2f}", f"{spent / total if total else 0:.0%}") for stage, spent in seconds.items()]
    return pd.DataFrame(rows, columns=["stage", "seconds", "share"])


def _provenance(record: RunRecord) -> list[str]:
    """Return what made the run, a line for each fact; earlier attempts at it are counted."""
    made = {key: value for key, value in record.provenance.items() if key not in ("run_id", "earlier_attempts")}
    if made:
        made["attempts"] = len(record.attempts)
    return [f"{key:<24}{exact(value)}" for key, value in flat(made).items()] or ["unknown"]
