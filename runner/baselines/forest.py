"""Rank classes by a forest of label trees that the library omikuji grows from all training rows at once.

omikuji reads its training rows from a text file and keeps its trees in a folder of files. A checkpoint holds the bytes
of these files. The library draws from generators of its own, which take no seed: two forests of the same rows differ.

Legend: R rows, K ranks, X bytes of a file.
"""

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.baselines.base import Fitted
from runner.errors import NotInstalled, RunnerError

if TYPE_CHECKING:
    from runner.data import LabelledRows
    from runner.data.rows.batches import RowBatch

LIBRARY, EXTRA = "omikuji", "baselines"
_PREFIX = "forest."
_FILE = re.compile(r"[a-z]+[0-9]*\.[a-z]+")  # settings.json, tree0.cbor
_LARGEST_SPARSE = 0.05  # classifiers with a larger share of weights are made dense, as omikuji's readme does
NOTHING = -1  # in place of a class, where the beam met fewer classes than were asked for


def check_installed() -> None:
    """Raise NotInstalled if the library is not installed."""
    if importlib.util.find_spec(LIBRARY) is None:
        message = f"model={LIBRARY} needs the library {LIBRARY}: pip install '.[{EXTRA}]'"
        raise NotInstalled(LIBRARY, EXTRA, message)


class Forest(Fitted):
    """Keep a forest, which is empty until it is fitted.

    ``settings``: the library's, by its names. ``beam_size``: number of nodes of a layer that a prediction follows.
    ``threads``: those of growing and of predicting.
    """

    def __init__(self, settings: Mapping[str, Any], *, beam_size: int, threads: int) -> None:
        self.settings, self.beam_size, self.threads = settings, beam_size, threads
        self._files: dict[str, np.ndarray] = {}
        self._model: Any = None
        self._is_ready = False

    def prepare(self, task: Any) -> None:
        """Write the training rows to a file, which is no part of training."""
        folder = tempfile.mkdtemp(prefix="runner-omikuji-")
        self._clean = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._path = Path(folder) / "train.txt"
        data = task.data
        rows_R = np.arange(data.train.num_rows) if task.train_R is None else task.train_R
        write_rows(self._path, data.train, rows_R, num_features=data.num_features, num_classes=data.num_classes)

    def fit(self, task: Any) -> None:
        """Grow the trees. The seconds are the library's own, its reading of the file included."""
        library = _library()
        settings = library.Model.default_hyper_param()
        for name, value in self.settings.items():
            setattr(settings, name, value)
        with _quiet():
            self._model = library.Model.train_on_data(str(self._path), settings, self.threads)
        self._files, self._is_ready = {}, False
        self._clean()

    def top(self, batch: "RowBatch", k: int) -> np.ndarray:
        """Return the k best classes of each row, (R, k) int32, best first; ``NOTHING`` where the beam met fewer."""
        if self._model is None:
            raise RunnerError("the label trees are not grown yet")
        self._make_dense()
        top_RK = np.full((batch.num_rows, k), NOTHING, dtype=np.int32)
        for row, (begin, end) in enumerate(zip(batch.indptr[:-1], batch.indptr[1:], strict=True)):
            features = _features(batch.indices[begin:end], batch.values[begin:end])
            found = self._model.predict(features.items(), self.beam_size, k)
            top_RK[row, : len(found)] = [label for label, _ in found]
        return top_RK

    def _make_dense(self) -> None:
        """Make classifiers with many weights dense, once: predicting is faster then, and scores are the same."""
        if self._is_ready:
            return
        self._is_ready = True
        self.state_dict()  # dense classifiers would take more room in a checkpoint
        with _quiet():
            self._model.init_prediction_thread_pool(self.threads)
            self._model.densify_weights(_LARGEST_SPARSE, self.threads)

    def about(self) -> dict[str, Any]:
        """Return the library's version."""
        return {"library": f"omikuji {_library().__version__}"}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the bytes of the forest's files, (X,) uint8 each, under ``forest.``; nothing before it is grown."""
        if self._model is not None and not self._files:
            with tempfile.TemporaryDirectory() as folder, _quiet():
                self._model.save(folder)
                self._files = {path.name: np.fromfile(path, dtype=np.uint8) for path in sorted(Path(folder).iterdir())}
        return {f"{_PREFIX}{name}": content_X for name, content_X in self._files.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        files = {name.removeprefix(_PREFIX): content_X for name, content_X in state.items()}
        if not files:
            return
        library = _library()
        with tempfile.TemporaryDirectory() as folder:
            for name, content_X in files.items():
                if not _FILE.fullmatch(name):
                    raise ValueError(f"{name} is no file of a forest")
                content_X.tofile(Path(folder) / name)
            with _quiet():
                self._model = library.Model.load(folder)
        self._files, self._is_ready = files, False


def _library() -> Any:
    check_installed()
    import omikuji

    return omikuji


def write_rows(path: Path, data: "LabelledRows", rows_R: np.ndarray, *, num_features: int, num_classes: int) -> None:
    """Write rows in the format of the extreme-classification repository, which omikuji reads."""
    with path.open("w", encoding="ascii") as file:
        file.write(f"{len(rows_R)} {num_features} {num_classes}\n")
        for row in rows_R.tolist():
            labels = data.labels[data.label_indptr[row] : data.label_indptr[row + 1]].tolist()
            here = slice(data.indptr[row], data.indptr[row + 1])
            # A row without features ends after its labels: omikuji refuses a blank at the end of a line.
            features = _features(data.indices[here], data.values[here]).items()
            written = "".join(f" {feature}:{value:.9g}" for feature, value in features)
            file.write(f"{','.join(map(str, labels))}{written}\n")


def _features(indices: np.ndarray, values: np.ndarray) -> dict[int, float]:
    """Return a row's features. Values of a repeated feature are added, as networks do; omikuji refuses repetitions."""
    features: dict[int, float] = {}
    for feature, value in zip(indices.tolist(), values.tolist(), strict=True):
        features[feature] = features.get(feature, 0.0) + value
    return features


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from printing: its log would come between our lines, and its bars take thousands of them."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with open(os.devnull, "w") as nowhere:
            for number in (1, 2):
                os.dup2(nowhere.fileno(), number)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
