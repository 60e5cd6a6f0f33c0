"""Say where cards and data are: cards are in the repository, raw and prepared data may be elsewhere."""

import os
from pathlib import Path

from runner import REPOSITORY

CARDS_ROOT = REPOSITORY / "datasets"


def data_root() -> Path:
    """Return the folder above every `<name>/raw` and `<name>/processed`: DATASETS_DIR, or by default `datasets`."""
    return Path(os.environ.get("DATASETS_DIR") or CARDS_ROOT)


def raw_dir(name: str) -> Path:
    """Return the folder of a set's downloaded files."""
    return data_root() / name / "raw"


def prepared_dir(name: str, key: str = "prepared") -> Path:
    """Return the folder of a finished preparation.

    Its lock and temporary folders are beside it, in the same git-ignored folder.
    """
    return data_root() / name / "processed" / key
