"""Collect the command lines of the documents: lines of ```sh blocks, and commands within the text."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", flags=re.S | re.M)
_ANY_BLOCK = re.compile(r"^```.*?^```", flags=re.S | re.M)
_CODE = re.compile(r"`([^`]+)`")


class CommandLine(NamedTuple):
    """A command and the first page that has it."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def command_lines() -> list[CommandLine]:
    """Return every command line once, without comments."""
    found: dict[tuple[str, ...], CommandLine] = {}
    for page in PAGES:
        text = page.read_text()
        lines = [line for block in _SHELL_BLOCK.findall(text) for line in block.splitlines()]
        lines += [code for code in _CODE.findall(_ANY_BLOCK.sub("", text)) if is_command(code)]
        for line in lines:
            words = tuple(shlex.split(line, comments=True))
            if words:
                found.setdefault(words, CommandLine(page.name, words))
    return list(found.values())


def is_command(code: str) -> bool:
    """Tell whether code within the text is a command, not a name, formula or path."""
    first, *rest = code.split()
    if first in ("make", "runner") or first.rpartition("/")[2].startswith("python"):
        return bool(rest)
    return first.startswith((".venv/bin/", "scripts/"))
