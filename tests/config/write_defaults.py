"""Record the defaults of all options in tests/config/defaults.json: ``python tests/config/write_defaults.py``.

A run's id is made of what differs from the defaults. If a default changes, an id stands for another run, and the folder
of an earlier one, which may be older than the option, does not tell. So a default that was recorded changes only with
``runner.NUMBERS``.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runner import NUMBERS
from runner.data import KINDS
from runner.lgd import BATCH_SAMPLERS
from runner.optimizers import OPTIMIZERS
from runner.options.settings import GpuConfig, HardwareConfig, RunConfig, default_of
from runner.output.losses import LOSSES
from runner.parts import MODELS
from runner.samplers import SAMPLERS

FILE = Path(__file__).with_name("defaults.json")
GROUPS: dict[str, dict[str, Any]] = {
    "dataset": dict(KINDS), "model": dict(MODELS), "optimizer": dict(OPTIMIZERS), "sampler": dict(SAMPLERS),
    "loss": dict(LOSSES), "batch_sampler": dict(BATCH_SAMPLERS), "hardware": {"cpu": HardwareConfig, "gpu": GpuConfig},
}  # fmt: skip


def defaults_now() -> dict[str, Any]:
    """Return the default of every option that is a part of a run's id, by a key such as ``sampler=lsh_label.K``."""
    found = dict(_of(RunConfig, ""))
    for group, classes in GROUPS.items():
        for name, cls in classes.items():
            for part in dataclasses.fields(cls):
                value = default_of(part)
                if value is not dataclasses.MISSING and not part.metadata.get("place"):
                    found[f"{group}={name}.{part.name}"] = value
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def _of(section: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for part in dataclasses.fields(section):
        value = default_of(part)
        if part.metadata.get("place") or part.name in GROUPS or value is dataclasses.MISSING:
            continue
        if dataclasses.is_dataclass(value):
            yield from _of(value, f"{prefix}{part.name}.")
        else:
            yield prefix + part.name, value


def changed(recorded: dict[str, Any]) -> list[str]:
    """Return the options whose recorded default is another one now, though ``NUMBERS`` is the same."""
    now, before = defaults_now(), recorded["defaults"]
    if recorded["numbers"] != NUMBERS:
        return []
    return [f"{key}: {before[key]!r} -> {now[key]!r}" for key in before if key in now and before[key] != now[key]]


def main() -> int:
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {"numbers": NUMBERS, "defaults": {}}
    if found := changed(recorded):
        print(f"defaults changed: {'; '.join(found)}: raise NUMBERS in runner/__init__.py, or take them back")
        return 1
    FILE.write_text(json.dumps({"numbers": NUMBERS, "defaults": dict(sorted(defaults_now().items()))}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
