"""Turn texts into sparse rows, by scikit-learn: TF-IDF of the terms of the training texts, or hashed terms.

TF-IDF counts the words of two or more letters, in lower case, and runs of up to ``ngrams`` of them. A count is
multiplied by ln((1 + n) / (1 + n_t)) + 1, for n training texts of which n_t have the term, and each row has length 1.
Hashing needs no vocabulary: terms get the number of their hash, signs included, and rows have length 1, too.

What new texts need is one JSON file, so that a run turns them into the same rows on any machine.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from runner.data.rows.texts import Block
from runner.data.shared.places import damaged
from runner.data.shared.verify import content_of
from runner.errors import DataError

Kind = Literal["tfidf", "hashing"]
HASHED = 2**18  # features of hashing, if no number is given
_TEXTS_AT_ONCE = 1 << 12


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Say how texts become rows. ``most_features``: None is no limit, for hashing ``HASHED``."""

    kind: Kind = "tfidf"
    ngrams: int = 1
    min_rows: int = 1
    most_features: int | None = None


@dataclass(frozen=True, kw_only=True)
class Vectorizer:
    """Turn texts into rows. ``terms`` and ``idf`` have an entry for each feature; for hashing they are empty."""

    kind: Kind
    ngrams: int
    num_features: int
    terms: tuple[str, ...] = ()
    idf: tuple[float, ...] = ()
    column: str = ""  # of the training table, in which the texts stood

    def blocks(self, texts: Iterable[str]) -> Iterable[Block]:
        """Yield the rows of texts, in their order, without labels."""
        counter = self._counter()
        idf_F = np.array(self.idf, dtype=np.float32)
        iterator = iter(texts)
        while piece := [text for _, text in zip(range(_TEXTS_AT_ONCE), iterator, strict=False)]:
            yield block_of(self._rows(counter, idf_F, piece))

    def matrix(self, texts: Sequence[str]) -> Any:
        """Return the rows of texts as a matrix of SciPy in CSR form, (rows, features) float32."""
        return self._rows(self._counter(), np.array(self.idf, dtype=np.float32), texts)

    def _counter(self) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

        if self.kind == "hashing":
            return HashingVectorizer(n_features=self.num_features, ngram_range=(1, self.ngrams), dtype=np.float32)
        vocabulary = {term: number for number, term in enumerate(self.terms)}
        return CountVectorizer(ngram_range=(1, self.ngrams), dtype=np.float32, vocabulary=vocabulary)

    def _rows(self, counter: Any, idf_F: np.ndarray, texts: Sequence[str]) -> Any:
        from sklearn.preprocessing import normalize

        rows = counter.transform(texts).tocsr()
        if self.kind == "tfidf":
            rows.data *= idf_F[rows.indices]
            rows = normalize(rows, copy=False)
        rows.sort_indices()
        return rows

    def written(self) -> str:
        """Return the content of the file."""
        return json.dumps({"format": 1, **vars(self)}, ensure_ascii=False) + "\n"


def fitted(texts: Sequence[str], options: TextOptions, *, column: str) -> Vectorizer:
    """Return the vectorizer of training texts. Raises DataError if no term is left."""
    if options.kind == "hashing":
        features = options.most_features or HASHED
        return Vectorizer(kind="hashing", ngrams=options.ngrams, num_features=features, column=column)
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        ngram_range=(1, options.ngrams), min_df=options.min_rows, max_features=options.most_features, dtype=np.float32
    )
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # scikit-learn's ways of saying that no term is left
        fewer = f" that {options.min_rows} rows have" if options.min_rows > 1 else ""
        raise DataError(
            f"column {column}: the training texts have no word of two letters or more{fewer}; choose another column"
            + (" or a smaller dataset.min_rows" if fewer else "")
        ) from None
    terms = counter.get_feature_names_out().tolist()
    rows_F = np.bincount(counts.indices, minlength=len(terms))
    idf_F = np.log((1 + len(texts)) / (1 + rows_F)) + 1
    idf = tuple(float(f"{value:.9g}") for value in idf_F.tolist())
    return Vectorizer(
        kind="tfidf", ngrams=options.ngrams, num_features=len(terms), terms=tuple(terms), idf=idf, column=column
    )


def read_vectorizer(path: Path) -> Vectorizer:
    """Read the file of a vectorizer. Raises DataError if it is damaged."""
    try:
        found = json.loads(content_of(path))
        if found.pop("format") != 1:
            raise damaged(path, "it is of a later version of the runner")
        vectorizer = Vectorizer(**{**found, "terms": tuple(found["terms"]), "idf": tuple(found["idf"])})
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise damaged(path, f"it cannot be read ({error})") from None
    sizes = {len(vectorizer.terms), len(vectorizer.idf)}
    if sizes != ({vectorizer.num_features} if vectorizer.kind == "tfidf" else {0}):
        raise damaged(path, f"it does not have {vectorizer.num_features:,} terms")
    return vectorizer


def block_of(rows: Any) -> Block:
    """Return the rows of a matrix in CSR form as a block without labels."""
    return Block(
        row_sizes=np.diff(rows.indptr).astype(np.int64),
        indices=rows.indices.astype(np.int32),
        values=rows.data.astype(np.float32),
        label_sizes=np.zeros(rows.shape[0], dtype=np.int64),
        labels=np.zeros(0, dtype=np.int32),
    )
