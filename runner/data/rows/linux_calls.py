"""Make rows of the Linux kernel's functions: the words of a function's names, and the functions that it calls.

Rows are the functions of all `.c` and `.h` files, in the order of their paths. Functions of one name in one file, such
as those in branches of `#if`, are one row. `runner/data/shared/c_functions.py` states what a function and a call is.

- Labels are the names that a function calls, of those that two functions or more call.
- The text of a row has the words of the function's path, of its name, and of all other names before and in its braces
  but those that it calls. Each name counts once. Names are cut at underscores and before capitals that begin a word,
  and words are in lower case. TF-IDF is that of `vectorize`, of words that four training rows or more have.
- One row in ten is a test row, drawn by seed 0 (`runner/data/shared/splits.py`).
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from runner.data.rows.card import RowsCard, RowsLayout
from runner.data.rows.dataset import RowsManifest
from runner.data.rows.labelled_texts import LabelledTexts, TextColumns, convert_labelled
from runner.data.rows.vectorize import TextOptions
from runner.data.shared.c_functions import functions
from runner.data.shared.cards import differences
from runner.data.shared.linux_sources import LinuxSources, sources_origin
from runner.data.shared.splits import split_rows
from runner.errors import DataError

_TEST_SHARE, _SPLIT_SEED = 0.1, 0
_LEAST_CALLS = 2  # functions that call a name that is a label
_LEAST_ROWS = 4  # training rows that have a word that is a feature
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTERS = re.compile(r"[^0-9A-Za-z]+")


def convert_calls(card: RowsCard, layout: RowsLayout, archive: Path, folder: Path) -> RowsManifest:
    """Convert an archive of the kernel's sources to a prepared folder.

    The words and the calls of all functions are held in memory. Raises DataError for a damaged archive and for one that
    does not hold the kernel.
    """
    sources = LinuxSources(archive, (".c", ".h"))
    rows = sorted(_rows(sources), key=lambda row: row[0])
    callers = Counter(name for _, _, calls in rows for name in calls)
    texts = [text for _, text, _ in rows]
    labels = [[name for name in calls if callers[name] >= _LEAST_CALLS] for _, _, calls in rows]
    if len(rows) < 2:
        raise DataError(f"{archive}: {len(rows)} functions are too few to split; is this the whole kernel?")
    train, test = (
        LabelledTexts(path=archive, texts=[texts[r] for r in rows_R], labels=[labels[r] for r in rows_R])
        for rows_R in split_rows(len(rows), _TEST_SHARE, _SPLIT_SEED)
    )
    manifest = convert_labelled(
        train,
        test,
        folder,
        sources_origin(card, layout, sources),
        columns=TextColumns(text="words", labels="calls"),
        options=TextOptions(min_rows=_LEAST_ROWS),
        notes=[],
    )
    counts = {
        "num_features": manifest.num_features,
        "num_classes": manifest.num_classes,
        "num_train": manifest.train.rows,
        "num_test": manifest.test.rows,
    }
    return replace(manifest, notes=[*manifest.notes, *differences(card, counts)])


def _rows(sources: LinuxSources) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the path, the text and the calls, in ascending order, of each function."""
    labels: dict[bytes, str] = {}  # so that all rows share one string of each name
    for path, source in sources:
        named: dict[bytes, tuple[dict[bytes, None], set[bytes]]] = {}
        for function in functions(source):
            names, calls = named.setdefault(function.name, ({}, set()))
            names.update(function.names())
            calls.update(function.calls())
        for name, (names, calls) in named.items():
            others = (other.decode() for other in names if other not in calls)
            text = " ".join((words(path.rpartition(".")[0]), words(name.decode()), *map(words, others)))
            yield path, text, tuple(labels.setdefault(call, call.decode()) for call in sorted(calls))


@lru_cache(maxsize=1 << 20)
def words(name: str) -> str:
    """Return the words of a name or path in lower case, with blanks between them."""
    return " ".join(_NO_LETTERS.sub(" ", _WORD_BEGINS.sub(" ", name)).lower().split())
