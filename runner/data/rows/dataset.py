"""Define prepared data of rows: two memory-mapped CSR tables and a few numbers.

Legend: R rows of a split, nnz stored feature values, P stored (row, label) pairs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from runner.data.shared.card import Size
from runner.data.shared.manifests import Dataset, Int32s, Manifest, combine
from runner.data.shared.places import damaged
from runner.data.shared.verify import check_offsets, content_of, map_array, map_ids, map_numbers, read_names

COLUMNS = {"indptr": "<i8", "indices": "<i4", "values": "<f4", "label_indptr": "<i8", "labels": "<i4"}
LABEL_NAMES = "labels.txt"
FEATURE_NAMES = "features.json"
VECTORIZER = "vectorizer.json"  # what turns texts into rows (runner.data.rows.vectorize)

Int64s = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """Hold sparse feature rows with their label sets. Arrays read from disk are memory-mapped and read-only.

    Within a row, feature indices and labels are ascending and unique; every row has at least one label. Rows keep the
    order of the file. Some files are sorted by label, so training must shuffle.
    """

    indptr: Int64s  # (R+1) the features of row r are indices[indptr[r]:indptr[r+1]]
    indices: Int32s  # (nnz)
    values: Float32s  # (nnz)
    label_indptr: Int64s  # (R+1)
    labels: Int32s  # (P)
    rows_dropped: int = 0  # rows of the file (or of the set it is derived from) without a label, not among the R

    @property
    def num_rows(self) -> int:
        """Return the number of rows, R."""
        return len(self.indptr) - 1


@dataclass(frozen=True, kw_only=True)
class XmcDataset(Dataset):
    """Hold a prepared data set of extreme classification."""

    NAMES: ClassVar[Mapping[str, str]] = {
        "label_names_path": LABEL_NAMES, "feature_names_path": FEATURE_NAMES, "vectorizer_path": VECTORIZER,
    }  # fmt: skip

    train: LabelledRows
    test: LabelledRows
    num_features: int
    num_classes: int
    propensity_a: float
    propensity_b: float
    label_names_path: Path | None = None
    feature_names_path: Path | None = None
    vectorizer_path: Path | None = None

    @classmethod
    def without_examples(cls, *, num_features: int, num_classes: int, **known: Any) -> Self:
        """Return data that have names and sizes but no rows."""
        start, none = np.zeros(1, np.int64), np.zeros(0, np.int32)
        rows = LabelledRows(indptr=start, indices=none, values=np.zeros(0, np.float32), label_indptr=start, labels=none)
        return cls(
            train=rows, test=rows, num_features=num_features, num_classes=num_classes, propensity_a=0.55,
            propensity_b=1.5, **known,
        )  # fmt: skip

    @property
    def left_out(self) -> str | None:
        """Return which rows of its files are left out, in words; None if there are none."""
        return rows_left_out(
            train=(self.train.rows_dropped, self.train.num_rows + self.train.rows_dropped),
            test=(self.test.rows_dropped, self.test.num_rows + self.test.rows_dropped),
        )

    def label_names(self) -> list[str] | None:
        """Read the names of the classes in the order of their ids; None if the set has none.

        Raises DataError if the number of names is wrong.
        """
        return None if self.label_names_path is None else list(read_names(self.label_names_path, self.num_classes))

    def feature_names(self) -> tuple[str, ...] | None:
        """Read the names of the features in their order; None if the set has none. Raises DataError if damaged."""
        if self.feature_names_path is None:
            return None
        try:
            names = json.loads(content_of(self.feature_names_path))
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(self.feature_names_path, f"it cannot be read ({error})") from None
        if not isinstance(names, list) or len(names) != self.num_features:
            raise damaged(self.feature_names_path, f"it does not name {self.num_features:,} features")
        return tuple(map(str, names))


def rows_left_out(*, train: tuple[int, int], test: tuple[int, int]) -> str | None:
    """Say how many rows were left out for want of a label, of how many (both for each split); None if none were."""
    parts = [
        f"{dropped:,} of {read:,} {split} rows"
        for split, (dropped, read) in (("training", train), ("test", test))
        if dropped
    ]
    # "In this set", because the rows of a derived set may have labels in the other one.
    return f"rows without a label in this set are left out: {' and '.join(parts)}" if parts else None


@dataclass(frozen=True, kw_only=True)
class SplitCounts:
    """Hold the counts of one split of sparse rows, and how many rows were dropped when it was read."""

    rows: int
    nonzeros: int
    label_pairs: int
    rows_read: int  # rows in the file: rows + rows_dropped
    rows_dropped: int  # rows without any label
    rows_without_features: int  # rows that are kept with an empty feature row


@dataclass(frozen=True, kw_only=True)
class RowsManifest(Manifest):
    """Describe a prepared set of sparse rows."""

    num_features: int
    num_classes: int
    propensity_a: float
    propensity_b: float
    train: SplitCounts
    test: SplitCounts

    @property
    def size(self) -> Size:
        return Size(
            unit="rows",
            train=self.train.rows,
            test=self.test.rows,
            features=self.num_features,
            classes=self.num_classes,
        )

    def in_words(self) -> str:
        return (
            f"{self.train.rows:,} / {self.test.rows:,} rows, {self.num_features:,} features,"
            f" {self.num_classes:,} classes"
        )

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        splits = (combine(*(digests[f"{split}.{column}.npy"] for column in COLUMNS)) for split in ("train", "test"))
        return combine(self.num_features, self.num_classes, *splits)

    def open(self, folder: Path) -> XmcDataset:
        names, features, vectorizer = (folder / name for name in (LABEL_NAMES, FEATURE_NAMES, VECTORIZER))
        return XmcDataset(
            name=self.name,
            train=_load_rows(folder, "train", self.train, self),
            test=_load_rows(folder, "test", self.test, self),
            num_features=self.num_features,
            num_classes=self.num_classes,
            propensity_a=self.propensity_a,
            propensity_b=self.propensity_b,
            checksum=self.checksum,
            variant=self.variant,
            label_names_path=names if names.exists() else None,
            feature_names_path=features if features.exists() else None,
            vectorizer_path=vectorizer if vectorizer.exists() else None,
        )


def _load_rows(folder: Path, split: str, counts: SplitCounts, manifest: RowsManifest) -> LabelledRows:
    def path(column: str) -> Path:
        return folder / f"{split}.{column}.npy"

    indptr, label_indptr = (map_array(path(c), COLUMNS[c], counts.rows + 1) for c in ("indptr", "label_indptr"))
    check_offsets(path("indptr"), indptr, last=counts.nonzeros)
    check_offsets(path("label_indptr"), label_indptr, last=counts.label_pairs)
    return LabelledRows(
        indptr=indptr,
        indices=map_ids(path("indices"), counts.nonzeros, below=manifest.num_features),
        values=map_numbers(path("values"), COLUMNS["values"], counts.nonzeros),
        label_indptr=label_indptr,
        labels=map_ids(path("labels"), counts.label_pairs, below=manifest.num_classes),
        rows_dropped=counts.rows_dropped,
    )
