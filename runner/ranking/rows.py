"""Rank the classes of rows, which come as files of features, as texts or as matrices.

Legend: B rows ranked at the same time, K classes of a row, D hidden size.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.rows.batches import RowBatch
from runner.data.rows.files import form_of, read_new_rows
from runner.data.rows.labelled_texts import read_texts
from runner.data.rows.texts import Block
from runner.data.rows.vectorize import Vectorizer, block_of, read_vectorizer
from runner.data.shared.columns import kind_of
from runner.data.shared.files import STDIN
from runner.data.shared.tables import lines_of
from runner.errors import DataError

ROWS_AT_ONCE = 1024
NUMBERS_AT_ONCE = 2**24  # logits, or entries of the vectors of ranked classes
_NUMBERS = ("npz", "libsvm", "vw")  # forms of files that hold features, never texts
Line = tuple[Any, ...]


def ranked(network: Any, task: Any, blocks: Iterable[Block], k: int, threshold: float = 0) -> Iterator[Line]:
    """Yield the header and, for each row, its best classes whose probability is at least ``threshold``."""
    names = task.data.label_names()
    yield ("row", "rank", "class", *(("name",) if names else ()), "score", "probability")
    k = min(k, task.data.num_classes)
    at_once = rows_at_once(k, network)
    number = 0
    for block in blocks:
        indptr = np.concatenate([[0], np.cumsum(block.row_sizes)])
        for first in range(0, len(block.row_sizes), at_once):
            here = indptr[first : first + at_once + 1]
            batch = RowBatch(
                indptr=here - here[0],
                indices=block.indices[here[0] : here[-1]],
                values=block.values[here[0] : here[-1]],
                target_indptr=np.zeros(len(here), dtype=np.int64),
                targets=np.zeros(0, dtype=np.int32),
            )
            hidden_BD = network.encoder.encode(batch)
            top_BK = network.head.top(hidden_BD, k)
            score_BK = network.head.logits_of(hidden_BD, top_BK)
            chance_BK = network.head.probabilities_of(hidden_BD, top_BK, score_BK)
            for found in zip(top_BK.tolist(), score_BK.tolist(), chance_BK.tolist(), strict=True):
                number += 1
                for rank, (class_id, score, chance) in enumerate(zip(*found, strict=True), start=1):
                    if chance >= threshold:
                        yield (number, rank, class_id, *((names[class_id],) if names else ()), score, chance)


def rows_at_once(k: int, network: Any) -> int:
    """Return for how many rows the vectors of k classes each are held at the same time."""
    return max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // (k * network.encoder.dim)))


# ---------------------------------------------------------------- where rows come from


def vectorizer_of(task: Any) -> Vectorizer | None:
    """Return what turns texts into the rows of a run; None if it was trained on features."""
    path = task.data.vectorizer_path
    return None if path is None else read_vectorizer(path)


def rows_of_file(task: Any, file: Path, *, layout: str | None, column: str | None) -> Iterable[Block]:
    """Read the rows of a file; what holds texts is vectorised as the training texts were.

    ``column``: of the texts in a table; None: that of training. Raises DataError.
    """
    vectorizer = vectorizer_of(task)
    has_features = layout is not None or form_of(file) in _NUMBERS
    if vectorizer is None or has_features:
        names = None if vectorizer is not None else task.data.feature_names()
        return read_new_rows(file, layout or form_of(file), task.num_features, names)
    if kind_of(file) is not None:
        return vectorizer.blocks(list(read_texts(file, column or vectorizer.column, set_by="--text COLUMN")))
    if file is STDIN and sys.stdin.isatty():
        return (block_of(vectorizer.matrix([line.rstrip("\r\n")])) for line in sys.stdin)  # each as it is typed
    return vectorizer.blocks([line.rstrip("\r\n") for line in lines_of(file)])  # faults come before the first line


def rows_of_values(task: Any, given: Any) -> Iterable[Block]:
    """Return the rows of texts, or of a matrix (rows, features) of NumPy or SciPy. Raises DataError."""
    from scipy.sparse import csr_array, issparse

    if isinstance(given, str):
        raise DataError("give a list of texts, also for a single one: [text]")
    is_matrix = issparse(given) or (isinstance(given, np.ndarray) and given.ndim == 2)
    if not is_matrix:
        texts = list(given)
        vectorizer = vectorizer_of(task)
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise DataError(
                    f"entry {number} is {str(text)[:40]!r}, no text; give a list of texts, or a matrix with a row each"
                )
        if vectorizer is None:
            raise DataError(
                f"the run was trained on {task.num_features:,} features, not on texts: give a matrix (rows, features)"
            )
        return vectorizer.blocks(texts)
    rows = csr_array(given, dtype=np.float32)
    if rows.shape[1] != task.num_features:
        raise DataError(
            f"a matrix of {rows.shape[1]:,} columns, but the run was trained with {task.num_features:,} features"
        )
    if not np.isfinite(rows.data).all():
        raise DataError("the matrix holds a value that is not finite")
    rows.sum_duplicates()
    return [block_of(rows)]
