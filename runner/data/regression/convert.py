"""Convert tables of numbers to a prepared folder: features and response of each split.

Legend: R rows of a table, r rows of a piece, F features.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from runner.data.regression.card import Missing, RegressionCard, TableLayout
from runner.data.regression.dataset import RegressionDataset, RegressionManifest
from runner.data.regression.tables import Table, read_tables
from runner.data.regression.write import write_dense
from runner.data.shared.cards import differences, origin_of
from runner.data.shared.manifests import Origin
from runner.data.shared.splits import split_groups, split_rows
from runner.data.shared.store import READ_ANEW, load_own
from runner.errors import ConfigError, DataError

ROWS_AT_ONCE = 1 << 14
_NAMES_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Name the rows and columns of a table that make a split."""

    table: Table
    rows_R: np.ndarray
    features_F: np.ndarray  # numbers of the columns, in the order of the file
    target: int
    missing: Missing | None

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield features (r, F) and response (r), a few rows at a time."""
        for start in range(0, len(self.rows_R), ROWS_AT_ONCE):
            values_rC = self.table.values_RC[self.rows_R[start : start + ROWS_AT_ONCE]]
            features_rF = values_rC[:, self.features_F]
            if self.missing is not None:
                features_rF[features_rF == self.missing.value] = self.missing.becomes
            yield features_rF, values_rC[:, self.target]


def convert(
    card: RegressionCard, layout: TableLayout, found: Mapping[str, tuple[Path, ...]], folder: Path
) -> RegressionManifest:
    """Convert a card's published files, in one of its layouts, to a prepared folder.

    Raises DataError for files that are damaged or hold another set than the card describes.
    """
    files = {field: path for field, (path,) in found.items()}
    tables = dict(zip(files, read_tables(list(files.values())), strict=True))
    first = next(iter(tables.values()))
    target, group, *drop = (
        None if wanted is None else _card_column(first, wanted)
        for wanted in (layout.target, layout.group, *layout.drop)
    )
    assert target is not None
    if layout.data is None:
        rows = {split: _all_rows(table) for split, table in tables.items()}
    else:
        rows = dict(zip(("train", "test"), _split(first, layout, group), strict=True))
    manifest = _write(
        {split: (tables.get(split, first), rows[split]) for split in ("train", "test")},
        folder,
        target=target,
        dropped=[column for column in (group, *drop) if column is not None],
        missing=layout.missing,
        origin=origin_of(card, layout, found),
    )
    found_counts = {
        "num_features": manifest.num_features,
        "num_rows": manifest.train_rows + manifest.test_rows,
        "num_train": manifest.train_rows,
        "num_test": manifest.test_rows,
    }
    manifest.notes.extend(differences(card, found_counts))
    return manifest


def load_own_tables(
    files: dict[str, Path], name: str, *, target: str | int, test_share: float, split_seed: int
) -> RegressionDataset:
    """Prepare a user's tables of numbers once and open the result; the arguments are those of `convert_own`."""
    fill = partial(convert_own, files, name=name, target=target, test_share=test_share, split_seed=split_seed)
    split = {"target": target, "test_share": test_share, "split_seed": split_seed}
    return load_own("table", RegressionDataset, name, fill, files, json.dumps(split), READ_ANEW)


def convert_own(
    files: dict[str, Path], folder: Path, *, name: str, target: str | int, test_share: float, split_seed: int
) -> RegressionManifest:
    """Convert a user's files: `train`, and `test` unless the rows of `train` are to be split at random.

    Every column except the target is a feature. Raises DataError for wrong files, ConfigError for an unknown target and
    for a share that leaves too few rows.
    """
    tables = dict(zip(files, read_tables(list(files.values())), strict=True))
    train = tables["train"]
    notes = [table.form.doubt for table in tables.values() if table.form.doubt is not None]
    for note in notes:
        print(f"{name}: {note}", file=sys.stderr)
    path, count = train.form.path, len(train.values_RC)
    if train.form.svmlight and target != -1:
        raise ConfigError(f"dataset.target: {path} is svmlight text, whose label is the target; leave it at -1")
    column = _column(train, target)
    if column is None:
        raise ConfigError(f"dataset.target: {path} has no column {target!r}; {_valid(train)}")
    if "test" in tables:
        rows = {split: _all_rows(table) for split, table in tables.items()}
    else:
        rows = dict(zip(("train", "test"), split_rows(count, test_share, split_seed), strict=True))
    if len(rows["train"]) < 2:  # one to train on and one to validate on
        raise DataError(f"{path}: {count} rows are too few: two must remain for training and validation")
    manifest = _write(
        {split: (tables.get(split, train), rows[split]) for split in ("train", "test")},
        folder,
        target=column,
        dropped=[],
        missing=None,
        origin=Origin.own(name, "given-train-test" if "test" in tables else f"given-seed-{split_seed}", files),
    )
    return replace(manifest, notes=notes)


def _write(
    parts: dict[str, tuple[Table, np.ndarray]],
    folder: Path,
    *,
    target: int,
    dropped: list[int],
    missing: Missing | None,
    origin: Origin,
) -> RegressionManifest:
    columns = parts["train"][0].values_RC.shape[1]
    features_F = np.setdiff1d(np.arange(columns), [target, *dropped])
    if not len(features_F):
        raise DataError(f"{parts['train'][0].form.path}: no column is left as a feature")
    pieces = {
        split: _Part(table=table, rows_R=rows_R, features_F=features_F, target=target, missing=missing).pieces()
        for split, (table, rows_R) in parts.items()
    }
    return write_dense(folder, pieces, num_features=len(features_F), origin=origin)


def _all_rows(table: Table) -> np.ndarray:
    return np.arange(len(table.values_RC))


def _split(table: Table, layout: TableLayout, group: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the training rows and of the test rows of a single file, by its layout's rule."""
    count, path = len(table.values_RC), table.form.path
    if layout.test_share is None:
        train, test = layout.train_rows or 0, layout.test_rows or 0
        if count != train + test:
            raise DataError(
                f"{path}: {count:,} rows, but the split takes the first {train:,} and the last {test:,}; is it cut off?"
            )
        return np.arange(train), np.arange(train, count)
    if group is not None:
        train_R, test_R = split_groups(table.values_RC[:, group], layout.test_share, layout.split_seed)
    else:
        train_R, test_R = split_rows(count, layout.test_share, layout.split_seed)
    if not len(train_R):
        raise DataError(f"{path}: {count} rows are too few to split")
    return train_R, test_R


def _column(table: Table, wanted: str | int) -> int | None:
    """Return the number of a column that is given by name, or by index from either end; None if there is none."""
    columns = table.values_RC.shape[1]
    if isinstance(wanted, int):
        return wanted % columns if -columns <= wanted < columns else None
    return table.names.index(wanted) if wanted in (table.names or ()) and table.names else None


def _card_column(table: Table, wanted: str | int) -> int:
    """Return the number of a column that the card names. Raises DataError if the file lacks it."""
    column = _column(table, wanted)
    if column is None:
        raise DataError(f"{table.form.path}: has no column {wanted!r}; is this another set? {_valid(table)}")
    return column


def _valid(table: Table) -> str:
    """Return which columns there are, for messages."""
    last = table.values_RC.shape[1] - 1
    if table.names is None:
        return f"it has no header; valid: the indices 0 to {last}, or -1 to {-last - 1} from the end"
    shown = ", ".join(table.names[:_NAMES_SHOWN])
    return f"valid: {shown}{', ...' if last >= _NAMES_SHOWN else ''}, or an index from 0 to {last}"
