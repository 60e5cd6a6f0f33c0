"""Amazon-Uniform: down-sample the frequent classes of a prepared set until every class is equally frequent.

The LNS paper (ICML 2021, section 3.5) publishes the outcome, 158,114 labels and 348,174 / 111,018 rows, but
not its rule. Ours, chosen for being exact and repeatable:

1. Classes: the `num_classes` with most training rows, ties by smaller id. They get new ids 0..n-1 in old id
   order.
2. Cap: the number of training rows of the rarest class kept. Each class keeps exactly that many of its (row,
   label) pairs, drawn without replacement, so training frequencies are all equal.
3. Test: the same with the cap scaled by test rows / training rows (rounded, at least 1); rarer classes keep
   all.
4. Rows left without a label are dropped; features stay as they are.
"""

from pathlib import Path

import numpy as np

from runner.data.rows import Int32s, LabelledRows, XmcDataset
from runner.data.store import RowsWriter, SplitCounts
from runner.errors import DataError

ROWS_AT_ONCE = 1 << 15


def choose_classes(labels: Int32s, total: int, num_classes: int) -> tuple[np.ndarray, int]:
    """(ids ascending (num_classes), cap) of rules 1 and 2 from the training labels of `total` classes."""
    counts = np.bincount(labels, minlength=total)
    order = np.argsort(-counts, kind="stable")[:num_classes]
    cap = int(counts[order[-1]]) if len(order) == num_classes else 0
    if cap == 0:
        raise DataError(f"only {np.count_nonzero(counts)} classes have training rows, {num_classes} are wanted")
    return np.sort(order), cap


def thin(labels: Int32s, new_ids: np.ndarray, cap: int, rng: np.random.Generator) -> np.ndarray:
    """(P) bool: pairs to keep, at most `cap` uniformly drawn per class; classes with new id -1 keep none."""
    candidates = np.flatnonzero(new_ids[labels] >= 0)
    candidates = candidates[rng.permutation(len(candidates))]
    kinds = labels[candidates]
    order = np.argsort(kinds, kind="stable")  # by class, in random order within a class
    starts = np.flatnonzero(np.r_[True, np.diff(kinds[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(order)])
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    keep = np.zeros(len(labels), bool)
    keep[candidates[order[place < cap]]] = True
    return keep


def write_uniform(
    base: XmcDataset, folder: Path, num_classes: int, seed: int
) -> tuple[SplitCounts, SplitCounts, list[str], Int32s]:
    """Write both splits; returns their counts, digests, and the old id of each new class (num_classes)."""
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
    """Copy the kept pairs and the rows that keep any, in bounded memory; returns how many have no feature."""
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
