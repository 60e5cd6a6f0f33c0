"""Read a file of conf/ as a mapping; errors are one line that names the file."""

from pathlib import Path
from typing import Any

import yaml

from runner.errors import ConfigError
from runner.home import FILES

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml reads eight times as fast; some builds lack it


def read(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError if it is not UTF-8, not YAML or not a mapping."""
    try:
        raw = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    except UnicodeDecodeError:
        raise ConfigError(f"{place(file)}: not UTF-8; save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{place(file)}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{place(file)}: expected a mapping of keys")
    return raw


def place(file: Path) -> str:
    """Return the path as a user would write it: relative to the repository if the file lies in it."""
    return str(file.relative_to(FILES)) if file.is_relative_to(FILES) else str(file)
