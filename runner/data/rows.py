"""Define prepared data of rows: two memory-mapped CSR tables and a few numbers.

Legend: R rows of a split, nnz stored feature values, P stored (row, label) pairs.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runner.data.places import damaged

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
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
class XmcDataset:
    """Hold a prepared data set of extreme classification."""

    name: str
    train: LabelledRows
    test: LabelledRows
    num_features: int
    num_classes: int
    propensity_a: float
    propensity_b: float
    checksum: str  # sha256 of the prepared arrays and their dimensions
    variant: str  # the published (or private) version and split of the data
    label_names_path: Path | None = None

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
        if self.label_names_path is None:
            return None
        try:
            names = self.label_names_path.read_bytes().decode().split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise damaged(self.label_names_path, f"it cannot be read ({error})") from None
        if len(names) != self.num_classes:
            raise damaged(self.label_names_path, f"{len(names)} names for {self.num_classes} classes")
        return names


def rows_left_out(*, train: tuple[int, int], test: tuple[int, int]) -> str | None:
    """Say how many rows were left out for want of a label, of how many (both for each split); None if none were."""
    parts = [
        f"{dropped:,} of {read:,} {split} rows"
        for split, (dropped, read) in (("training", train), ("test", test))
        if dropped
    ]
    # "In this set", because the rows of a derived set may have labels in the other one.
    return f"rows without a label in this set are left out: {' and '.join(parts)}" if parts else None
