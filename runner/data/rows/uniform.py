"""Make Amazon-Uniform: down-sample the frequent classes of a prepared set until all classes are equally frequent.

The LNS paper (ICML 2021, section 3.5) publishes the result, 158,114 labels and 348,174 / 111,018 rows, but not its
rule. Our rule was chosen because it is exact and repeatable:

1. Classes. The `num_classes` classes with most training rows are kept; of equally frequent ones, those with smaller
   ids. They get new ids 0..n-1 in the order of their old ids.
2. Cap. The cap is the number of training rows of the rarest class that is kept. Each class keeps exactly that many of
   its (row, label) pairs, drawn without replacement, so all training frequencies are equal.
3. Test. The same is done with the cap times test rows / training rows (rounded, at least 1); rarer classes keep all
   pairs.
4. Rows without a remaining label are dropped; features are not changed.

Legend: P (row, label) pairs of a split.
"""

from pathlib import Path

import numpy as np

from runner.data.rows.dataset import LabelledRows, SplitCounts, XmcDataset
from runner.data.rows.write import RowsWriter
from runner.data.shared.manifests import Int32s
from runner.errors import DataError

ROWS_AT_ONCE = 1 << 15


def choose_classes(labels: Int32s, total: int, num_classes: int) -> tuple[np.ndarray, int]:
    """Apply rules 1 and 2 to the training labels (P,) of `total` classes; return the kept ids, ascending, and the cap.

    Raises DataError if fewer than `num_classes` classes have training rows.
    """
    counts = np.bincount(labels, minlength=total)
    order = np.argsort(-counts, kind="stable")[:num_classes]
    cap = int(counts[order[-1]]) if len(order) == num_classes else 0
    if cap == 0:
        raise DataError(f"only {np.count_nonzero(counts)} classes have training rows, but {num_classes} are needed")
    return np.sort(order), cap


def thin(labels: Int32s, new_ids: np.ndarray, cap: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the pairs to keep, at most `cap` of each class, uniformly; return (P,) bool.

    `new_ids`: new id of each class; classes with -1 keep no pair.
    """
    candidates = np.flatnonzero(new_ids[labels] >= 0)
    candidates = candidates[rng.permutation(len(candidates))]
    kinds = labels[candidates]
    order = np.argsort(kinds, kind="stable")  # sorted by class, in random order within a class
    starts = np.flatnonzero(np.r_[True, np.diff(kinds[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(order)])
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    keep = np.zeros(len(labels), bool)
    keep[candidates[order[place < cap]]] = True
    return keep


def write_uniform(
    base: XmcDataset, folder: Path, num_classes: int, seed: int
) -> tuple[SplitCounts, SplitCounts, list[str], Int32s]:
    """Write both splits; return their counts, their sha256 digests, and the old id of each new class (num_classes)."""
    chosen, cap = choose_classes(base.train.labels, base.num_classes, num_classes)
    new_ids = np.full(base.num_classes, -1, np.int32)
    new_ids[chosen] = np.arange(num_classes, dtype=np.int32)
    test_cap = max(1, round(cap * base.test.num_rows / base.train.num_rows))
    counts, digests = [], []
    splits = (("train", base.train, cap), ("test", base.test, test_cap))
    for number, (split, rows, limit) in enumerate(splits):
        keep = thin(rows.labels, new_ids, limit, np.random.default_rng([seed, number]))
        with RowsWriter(folder, split) as writer:
            featureless = _copy(rows, keep, new_ids, writer)
            digests.append(writer.finish())
        dropped = rows.num_rows - writer.rows
        counts.append(writer.counts(rows_dropped=dropped, rows_without_features=featureless))
    return counts[0], counts[1], digests, chosen.astype(np.int32)


def _copy(rows: LabelledRows, keep: np.ndarray, new_ids: np.ndarray, writer: RowsWriter) -> int:
    """Copy the kept pairs and the rows that keep any, piece by piece; return how many such rows have no feature."""
    featureless = 0
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, rows.num_rows)
        first, last = rows.label_indptr[start], rows.label_indptr[stop]
        mask = keep[first:last]
        sums = np.r_[0, np.cumsum(mask)]
        label_sizes = np.diff(sums[rows.label_indptr[start : stop + 1] - first])
        kept = label_sizes > 0
        sizes = np.diff(rows.indptr[start : stop + 1])
        low, high = rows.indptr[start], rows.indptr[stop]
        wanted = np.repeat(kept, sizes)
        writer.append(
            sizes[kept],
            rows.indices[low:high][wanted],
            rows.values[low:high][wanted],
            label_sizes[kept],
            new_ids[rows.labels[first:last][mask]],
        )
        featureless += int(np.count_nonzero(sizes[kept] == 0))
    return featureless
