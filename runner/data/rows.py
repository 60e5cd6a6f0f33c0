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
