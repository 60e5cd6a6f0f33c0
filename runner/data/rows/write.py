"""Write sparse rows to a prepared folder, piece by piece."""

from pathlib import Path
from typing import Self

import numpy as np

from runner.data.rows.dataset import COLUMNS, SplitCounts
from runner.data.shared.manifests import combine
from runner.data.shared.store import ColumnWriter


class RowsWriter:
    """Write CSR rows piece by piece to the files `<split>.<column>.npy`; as a context it closes the files."""

    def __init__(self, folder: Path, split: str) -> None:
        self.columns = {c: ColumnWriter(folder / f"{split}.{c}.npy", d) for c, d in COLUMNS.items()}
        self.columns["indptr"].append(np.zeros(1, np.int64))
        self.columns["label_indptr"].append(np.zeros(1, np.int64))
        self.rows = self.nonzeros = self.label_pairs = 0

    def append(
        self,
        row_sizes: np.ndarray,  # (r) features per row
        indices: np.ndarray,  # (sum of row_sizes)
        values: np.ndarray,
        label_sizes: np.ndarray,  # (r) labels per row
        labels: np.ndarray,  # (sum of label_sizes)
    ) -> None:
        """Write r rows after those written before."""
        self.columns["indptr"].append(self.nonzeros + np.cumsum(row_sizes, dtype=np.int64))
        self.columns["label_indptr"].append(self.label_pairs + np.cumsum(label_sizes, dtype=np.int64))
        self.columns["indices"].append(indices)
        self.columns["values"].append(values)
        self.columns["labels"].append(labels)
        self.rows += len(row_sizes)
        self.nonzeros += len(indices)
        self.label_pairs += len(labels)

    def finish(self) -> str:
        """Complete the files and return the sha256 of the five arrays' digests."""
        return combine(*(column.finish() for column in self.columns.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self.columns.values():
            column.file.close()

    def counts(self, *, rows_dropped: int = 0, rows_without_features: int = 0) -> SplitCounts:
        """Return the counts of what was written so far; the arguments are what only the caller knows."""
        return SplitCounts(
            rows=self.rows,
            nonzeros=self.nonzeros,
            label_pairs=self.label_pairs,
            rows_read=self.rows + rows_dropped,
            rows_dropped=rows_dropped,
            rows_without_features=rows_without_features,
        )
