"""Tell whether a run folder holds the run that a configuration means now.

Their ids are equal. But the id is made of what differs from the defaults, and a default may have changed since. So may
the sources of a plugin, which the id names without their content.
"""

import json
from collections.abc import Mapping
from typing import Any

from runner import NUMBERS
from runner.options.settings import RunConfig, flat
from runner.registry import file_of, sources_of

DATA_CHANGED = "the data changed since"
_AGAIN = "force=true starts it again"


def difference(config: RunConfig, summary: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """Return in one line what has changed since the run was made, and the way out; empty if nothing has.

    An option that is newer than the run is no change: its default stands for what the run did. Nor is a plugin or a
    device of which the run, made by an earlier version, stored nothing.
    """
    run = summary["run_id"]
    return (
        _of_settings(config, summary["config"], run)
        or changed_plugin(config, provenance, run)
        or _of_numbers(provenance, run)
        or _of_device(config, summary.get("device", {}), run)
    )


def _of_settings(config: RunConfig, stored: Mapping[str, Any], run: str) -> str:
    now = flat(json.loads(json.dumps(config.as_dict())))
    for key, then in flat(stored).items():
        if key == "plugins" or key.partition(".")[0] in config.unused:
            continue  # the id has the names of plugins, and their files may lie elsewhere
        if key not in now:
            return f"{run} was made with {key}={_text(then)}, which is no setting any more; {_AGAIN}"
        if then != now[key]:
            return (
                f"{key} was {_text(then)} when {run} was made, and its default is {_text(now[key])} now;"
                f" set {key}={_text(then)}, or {_AGAIN}"
            )
    return ""


def changed_plugin(config: RunConfig, provenance: Mapping[str, Any], run: str) -> str:
    """Return in one line which plugin's sources have changed since the run was made; empty if none have."""
    before = provenance.get("plugins", {})
    for name, digest in sources_of(config).items():
        if before.get(name, digest) != digest:
            return f"plugin {file_of(name) or name} changed since {run} was made; {_AGAIN}"
    return ""


def _of_numbers(provenance: Mapping[str, Any], run: str) -> str:
    then = provenance.get("numbers", 1)
    if then == NUMBERS:
        return ""
    return f"{run} was made when the same settings gave other numbers (version {then}, now {NUMBERS}); {_AGAIN}"


def _of_device(config: RunConfig, device: Mapping[str, Any], run: str) -> str:
    kind = device.get("kind", config.hardware.name)
    return "" if kind == config.hardware.name else f"{run} was made on {kind}, not on {config.hardware.name}; {_AGAIN}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
