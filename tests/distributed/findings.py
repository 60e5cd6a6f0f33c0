"""Bring together what the ranks of a test found."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.machine.group import Group
from runner.output.ranks import Ranks


def write_all(found: Mapping[str, Any], group: Group, across: Ranks, out: Path) -> None:
    """Let rank 0 write what all ranks found, by case, and part."""
    group.store.set(f"found/{across.place}", json.dumps(found))
    across.wait()
    if across.leads:
        of_all: dict[str, Any] = {}
        for rank in range(across.size):
            of_all |= json.loads(group.store.get(f"found/{rank}"))
        out.write_text(json.dumps(of_all, indent=1))
    across.end()
