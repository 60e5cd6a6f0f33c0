"""Write files that a kill cannot leave half-written, and read files that may be damaged."""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.errors import DamagedRun
from runner.machine.disk import sync, writing
from runner.options.yaml_files import NotYaml, parsed


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that a reader sees the old text or the new one, never a part; a failure leaves the old one.

    Raises OSError, which names the file, if the disk is full or fails.
    """
    with writing(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.chmod(name, 0o644)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):  # of a disk that became read-only: the first error tells more
                os.unlink(name)
            raise
        sync(path.parent)


def _read_text(path: Path) -> str | None:
    """Return the text of a file, or None if there is none. Raises DamagedRun if it is no file of UTF-8."""
    if not path.exists():
        return None
    if not path.is_file():
        raise DamagedRun(path, "it is no regular file")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise DamagedRun(path, "it is not UTF-8") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if there is no such file. Raises DamagedRun for anything else."""
    text = _read_text(path)
    return None if text is None else _json_object(path, text, "it")


def read_json_lines(path: Path) -> list[dict[str, Any]] | None:
    """Return the objects in a file of JSON lines, or None without such a file. Raises DamagedRun, with the line."""
    text = _read_text(path)
    if text is None:
        return None
    *lines, rest = text.split("\n")
    if rest:
        raise DamagedRun(path, f"line {len(lines) + 1} is not complete")
    return [_json_object(path, line, f"line {number}") for number, line in enumerate(lines, start=1)]


def _json_object(path: Path, text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedRun(path, f"{what} is not JSON" if text.strip() else f"{what} is empty") from None
    if not isinstance(value, dict):
        raise DamagedRun(path, f"{what} is not a JSON object")
    return value


def read_yaml(path: Path) -> dict[str, Any] | None:
    """Return the mapping in a YAML file, or None if there is no such file. Raises DamagedRun for anything else."""
    text = _read_text(path)
    if text is None:
        return None
    try:
        value = parsed(text, aliases=False)  # no run writes any
    except NotYaml:
        raise DamagedRun(path, "it is not YAML as runs write it") from None
    if not isinstance(value, dict):
        raise DamagedRun(path, "it is empty" if value is None else "it is not a YAML mapping")
    if not text.endswith("\n"):
        raise DamagedRun(path, "its last line is not complete")
    return value
