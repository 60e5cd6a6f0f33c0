"""Where cards and data lie: cards belong to the repository, raw and prepared data may lie elsewhere."""

import os
from pathlib import Path

from runner import REPOSITORY

CARDS_ROOT = REPOSITORY / "datasets"


def data_root() -> Path:
    """Folder above every `<name>/raw` and `<name>/processed`: DATASETS_DIR if set, else the cards' folder."""
    return Path(os.environ.get("DATASETS_DIR") or CARDS_ROOT)


def raw_dir(name: str) -> Path:
    return data_root() / name / "raw"


def prepared_dir(name: str, key: str = "prepared") -> Path:
    """One finished preparation; its temporary siblings and lock lie in the same git-ignored folder."""
    return data_root() / name / "processed" / key
