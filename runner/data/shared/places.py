"""Say where cards and data are: cards come with the program, raw and prepared data may be elsewhere."""

import os
from pathlib import Path

from runner.errors import DataError
from runner.home import FILES, IS_CHECKOUT, written

CARDS_ROOT = FILES / "datasets"
PREPARE = "python scripts/prepare_dataset.py" if IS_CHECKOUT else "python -m runner.prepare"  # as messages name it
_OF_CARDS = "prepared"  # sets of one's own, bundled and generated ones are prepared under other keys


def data_root() -> Path:
    """Return the folder above every `<name>/raw` and `<name>/processed`: DATASETS_DIR, or by default `datasets`."""
    return Path(os.environ.get("DATASETS_DIR") or written("datasets"))


def raw_dir(name: str) -> Path:
    """Return the folder of a set's downloaded files."""
    return data_root() / name / "raw"


def prepared_dir(name: str, key: str = _OF_CARDS) -> Path:
    """Return the folder of a finished preparation.

    Its lock and temporary folders are beside it, in the same git-ignored folder.
    """
    return data_root() / name / "processed" / key


def damaged(path: Path, why: str) -> DataError:
    """Return the error for a damaged file of a prepared folder; it says how that folder is made again."""
    folder = path.parent
    if folder.name == _OF_CARDS:
        remedy = f"`{PREPARE} {folder.parents[1].name} --force` prepares the set again"
    else:
        remedy = f"delete the folder {folder}, and the same command prepares it again"
    return DataError(f"{path} is damaged: {why}; {remedy}")
