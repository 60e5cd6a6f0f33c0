"""Write and open prepared folders; a folder is written whole or not at all.

A preparation fills a temporary folder beside the final one, flushes it to the disk, writes `manifest.json` last, and
renames the folder to its final name, all under a file lock. So a folder with a manifest is complete. A killed
preparation leaves only a temporary folder, which the next one removes. Two processes that prepare the same set do the
work once.

Legend: T tokens of a split of a text.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from runner.data.dense import DenseRows, RegressionDataset
from runner.data.manifests import (
    FAMILIES,
    FORMAT_VERSION,
    Manifest,
    PairsManifest,
    RegressionManifest,
    RowsManifest,
    SequencesManifest,
    SplitCounts,
    TextManifest,
)
from runner.data.pairs import Pairs, PairsDataset
from runner.data.rows import LabelledRows, XmcDataset
from runner.data.sequences import SequencesDataset, split_events
from runner.data.text import TextDataset
from runner.errors import DataError, DataNotPrepared

Dataset = XmcDataset | TextDataset | RegressionDataset | PairsDataset | SequencesDataset
COLUMNS = {"indptr": "<i8", "indices": "<i4", "values": "<f4", "label_indptr": "<i8", "labels": "<i4"}
LABEL_NAMES = "labels.txt"
VOCABULARY = "vocabulary.txt"
ITEM_NAMES = "items.txt"


# ---- writing ----


class ColumnWriter:
    """Write a .npy file whose length is known only at the end; entries are numbers, or rows of `width` numbers."""

    def __init__(self, path: Path, dtype: str, *width: int) -> None:
        self.path, self.dtype, self.length, self.width = path, np.dtype(dtype), 0, width
        self.digest = hashlib.sha256()
        self.file: BinaryIO = path.open("wb")
        self._write_header()
        self.header_size = self.file.tell()

    def _write_header(self) -> None:
        shape = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.width)}
        np.lib.format.write_array_header_1_0(self.file, shape)

    def append(self, array: np.ndarray) -> None:
        """Write the array's entries after those written before."""
        data = np.ascontiguousarray(array, dtype=self.dtype)
        self.digest.update(data.data)
        self.file.write(data.data)
        self.length += len(data)

    def finish(self) -> str:
        """Complete the file and return the sha256 of its entries. Raises DataError if its header cannot be written."""
        self.file.seek(0)
        self._write_header()
        if self.file.tell() != self.header_size:  # NumPy pads the header so that a longer shape still fits
            raise DataError(f"{self.path}: cannot write the array header in place")
        self.file.close()
        return self.digest.hexdigest()


class DenseWriter:
    """Write dense rows and their responses piece by piece; as a context it closes the files.

    Legend: r rows of a piece, F features.
    """

    def __init__(self, folder: Path, split: str, num_features: int) -> None:
        self.features = ColumnWriter(folder / f"{split}.features.npy", "<f8", num_features)
        self.response = ColumnWriter(folder / f"{split}.response.npy", "<f8")

    def append(self, features_rF: np.ndarray, response_r: np.ndarray) -> None:
        """Write r rows after those written before. Raises DataError for a number that is not finite."""
        if not (np.isfinite(features_rF).all() and np.isfinite(response_r).all()):
            raise DataError(f"{self.features.path.name}: NaN or infinite numbers cannot be stored")
        self.features.append(features_rF)
        self.response.append(response_r)

    @property
    def rows(self) -> int:
        """Return the number of rows written so far."""
        return self.response.length

    def finish(self) -> str:
        """Complete the files and return the sha256 of the digests of both arrays."""
        return combine(self.features.finish(), self.response.finish())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.features.file.close()
        self.response.file.close()


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


def combine(*parts: object) -> str:
    """Return the sha256 of the parts, each as a line of text."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def fill_folder(final: Path, fill: Callable[[Path], Manifest], *, force: bool = False) -> Manifest:
    """Run `fill` on a temporary folder and move that folder to `final`; return the manifest.

    A finished `final` is reused unless `force` is set. An error of `fill` is raised again, and nothing is left behind.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final):
        for stale in final.parent.glob(f".{final.name}.*.tmp"):  # left by a killed preparation
            shutil.rmtree(stale)
        if not force and (done := read_manifest(final)) is not None:
            return done
        temporary = final.parent / f".{final.name}.{os.getpid()}.tmp"
        temporary.mkdir()
        try:
            manifest = fill(temporary)
            for path in temporary.iterdir():
                _sync(path)
            (temporary / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1) + "\n")
            _sync(temporary / "manifest.json")
            _sync(temporary)
            if final.exists():
                old = final.parent / f".{final.name}.old.tmp"
                final.rename(old)
                temporary.rename(final)
                shutil.rmtree(old)
            else:
                temporary.rename(final)
            _sync(final.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return manifest


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a finished preparation, or None if there is none in the current format.

    Raises DataError if the manifest is damaged.
    """
    path = folder / "manifest.json"
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{path}: not a manifest ({error}); prepare the set again with --force") from None
    if not isinstance(raw, dict) or raw.get("format_version") != FORMAT_VERSION:
        return None
    kind = FAMILIES.get(raw.get("family", "rows"))
    if kind is None:
        raise DataError(f"{path}: family {raw['family']!r} is unknown; prepare the set again with --force")
    missing = {f.name for f in fields(kind)} ^ raw.keys()
    if missing:
        raise DataError(f"{path}: keys {sorted(missing)} missing or unknown; prepare the set again with --force")
    hints = typing.get_type_hints(kind)
    return kind(**{key: hints[key](**value) if is_dataclass(hints[key]) else value for key, value in raw.items()})


# ---- opening ----


def load_dataset(folder: Path, *, how_to_get: str = "") -> Dataset:
    """Open a prepared folder.

    Raises DataNotPrepared, with the message `how_to_get`, if there is no manifest; DataError if the arrays do not fit
    the manifest.
    """
    manifest = read_manifest(folder)
    if isinstance(manifest, RowsManifest):
        return _open_rows(folder, manifest)
    if isinstance(manifest, TextManifest):
        return _open_text(folder, manifest)
    if isinstance(manifest, RegressionManifest):
        return _open_regression(folder, manifest)
    if isinstance(manifest, PairsManifest):
        return _open_pairs(folder, manifest)
    if isinstance(manifest, SequencesManifest):
        return _open_sequences(folder, manifest)
    raise DataNotPrepared(how_to_get or f"{folder}: not prepared")


def load_rows(folder: Path) -> XmcDataset:
    """Open a prepared folder that is known to hold rows."""
    dataset = load_dataset(folder)
    assert isinstance(dataset, XmcDataset)
    return dataset


def load_text(folder: Path) -> TextDataset:
    """Open a prepared folder that is known to hold text."""
    dataset = load_dataset(folder)
    assert isinstance(dataset, TextDataset)
    return dataset


def load_pairs(folder: Path) -> PairsDataset:
    """Open a prepared folder that is known to hold sentence pairs."""
    dataset = load_dataset(folder)
    assert isinstance(dataset, PairsDataset)
    return dataset


def load_regression(folder: Path) -> RegressionDataset:
    """Open a prepared folder that is known to hold a table for regression."""
    dataset = load_dataset(folder)
    assert isinstance(dataset, RegressionDataset)
    return dataset


def load_sequences(folder: Path) -> SequencesDataset:
    """Open a prepared folder that is known to hold a log of events, with the split `ratio`."""
    dataset = load_dataset(folder)
    assert isinstance(dataset, SequencesDataset)
    return dataset


def _open_rows(folder: Path, manifest: RowsManifest) -> XmcDataset:
    names = folder / LABEL_NAMES
    return XmcDataset(
        name=manifest.name,
        train=_load_rows(folder, "train", manifest.train),
        test=_load_rows(folder, "test", manifest.test),
        num_features=manifest.num_features,
        num_classes=manifest.num_classes,
        propensity_a=manifest.propensity_a,
        propensity_b=manifest.propensity_b,
        checksum=manifest.checksum,
        variant=manifest.variant,
        label_names_path=names if names.exists() else None,
    )


def _open_text(folder: Path, manifest: TextManifest) -> TextDataset:
    return TextDataset(
        name=manifest.name,
        train_T=_load_array(folder / "train.npy", "<i4", manifest.train.tokens),
        valid_T=_load_array(folder / "valid.npy", "<i4", manifest.valid.tokens),
        test_T=_load_array(folder / "test.npy", "<i4", manifest.test.tokens),
        num_classes=manifest.num_classes,
        vocabulary_path=folder / VOCABULARY,
        checksum=manifest.checksum,
        variant=manifest.variant,
    )


def _open_regression(folder: Path, manifest: RegressionManifest) -> RegressionDataset:
    def rows(split: str, count: int) -> DenseRows:
        return DenseRows(
            features_RF=_load_array(folder / f"{split}.features.npy", "<f8", count, manifest.num_features),
            response_R=_load_array(folder / f"{split}.response.npy", "<f8", count),
        )

    return RegressionDataset(
        name=manifest.name,
        train=rows("train", manifest.train_rows),
        test=rows("test", manifest.test_rows),
        num_features=manifest.num_features,
        checksum=manifest.checksum,
        variant=manifest.variant,
    )


def _open_pairs(folder: Path, manifest: PairsManifest) -> PairsDataset:
    def split(name: str, count: int) -> Pairs:
        return Pairs(
            first=_load_lines(folder / f"{name}.first.txt", count),
            second=_load_lines(folder / f"{name}.second.txt", count),
            labels_R=_load_array(folder / f"{name}.labels.npy", "<i4", count),
        )

    return PairsDataset(
        name=manifest.name,
        train=split("train", manifest.train),
        test=split("test", manifest.test),
        num_classes=manifest.num_classes,
        class_names=tuple(manifest.class_names),
        checksum=manifest.checksum,
        variant=manifest.variant,
    )


def _open_sequences(folder: Path, manifest: SequencesManifest) -> SequencesDataset:
    indptr_U1 = _load_array(folder / "indptr.npy", "<i8", manifest.num_users + 1)
    train_end_U, valid_end_U = split_events(indptr_U1, "ratio")
    return SequencesDataset(
        name=manifest.name,
        items_E=_load_array(folder / "items.npy", "<i4", manifest.num_events),
        indptr_U1=indptr_U1,
        train_end_U=train_end_U,
        valid_end_U=valid_end_U,
        num_classes=manifest.num_classes,
        items_path=folder / ITEM_NAMES,
        checksum=manifest.checksum,
        variant=manifest.variant,
    )


def _load_lines(path: Path, count: int) -> tuple[str, ...]:
    """Read a file of `count` lines. Raises DataError if it is not the file that the manifest describes."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); prepare the set again with --force") from None
    if len(lines) != count:
        raise DataError(f"{path}: does not fit its manifest; prepare the set again with --force")
    return tuple(lines)


def _load_rows(folder: Path, split: str, counts: SplitCounts) -> LabelledRows:
    lengths = {
        "indptr": counts.rows + 1,
        "indices": counts.nonzeros,
        "values": counts.nonzeros,
        "label_indptr": counts.rows + 1,
        "labels": counts.label_pairs,
    }
    return LabelledRows(
        **{
            column: _load_array(folder / f"{split}.{column}.npy", dtype, lengths[column])
            for column, dtype in COLUMNS.items()
        }
    )


def _load_array(path: Path, dtype: str, *shape: int) -> np.ndarray:
    """Map an array into memory, read-only. Raises DataError if it is not the array that the manifest describes."""
    try:
        # A plain ndarray is used because np.memmap's indexing is slow and Numba treats it as another type.
        array = np.load(path, mmap_mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}); prepare the set again with --force") from None
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise DataError(f"{path}: does not fit its manifest; prepare the set again with --force")
    return array


@contextlib.contextmanager
def _locked(final: Path) -> Iterator[None]:
    """Hold the lock of a prepared folder; wait, with a message, while another process holds it."""
    with (final.parent / f".{final.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that is preparing {final}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk. Otherwise a power cut could keep the manifest and lose the data."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
