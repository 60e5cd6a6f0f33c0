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
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from runner.data.dense import DenseRows, RegressionDataset
from runner.data.manifests import (
    COLUMNS,
    FAMILIES,
    FORMAT_VERSION,
    ITEM_NAMES,
    LABEL_NAMES,
    VOCABULARY,
    Manifest,
    PairsManifest,
    RegressionManifest,
    RowsManifest,
    SequencesManifest,
    SplitCounts,
    TextManifest,
    combine,
)
from runner.data.pairs import Pairs, PairsDataset
from runner.data.places import damaged
from runner.data.rows import LabelledRows, XmcDataset
from runner.data.sequences import SequencesDataset, split_events
from runner.data.text import TextDataset
from runner.data.verify import (
    MANIFEST,
    check_names,
    check_offsets,
    map_array,
    map_ids,
    map_numbers,
    read_lines,
    remember,
    verified,
)
from runner.errors import ConfigError, DataError, DataNotPrepared
from runner.machine.disk import sync, writing
from runner.options.conversion import convert

Dataset = XmcDataset | TextDataset | RegressionDataset | PairsDataset | SequencesDataset


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
        with writing(self.path):
            self.file.write(data.data)
        self.length += len(data)

    def finish(self) -> str:
        """Complete the file and return the sha256 of its entries. Raises DataError if its header cannot be written."""
        with writing(self.path):
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


def fill_folder(final: Path, fill: Callable[[Path], Manifest], *, force: bool = False) -> Manifest:
    """Run `fill` on a temporary folder and move that folder to `final`; return the manifest.

    A finished `final` is reused unless `force` is set. An error of `fill` is raised again, and nothing is left behind;
    an OSError names the folder or a file in it.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    old = final.parent / f".{final.name}.old.tmp"
    with writing(final, keeps_names=True), _locked(final):
        if old.exists() and not final.exists():  # a forced preparation was killed between its two renames
            old.rename(final)
        for stale in final.parent.glob(f".{final.name}.*.tmp"):  # left by a killed preparation
            shutil.rmtree(stale)
        if not force and (done := read_manifest(final)) is not None:
            return done
        temporary = final.parent / f".{final.name}.{os.getpid()}.tmp"
        temporary.mkdir()
        try:
            manifest = fill(temporary)
            for path in sorted(temporary.iterdir()):
                sync(path)
            (temporary / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n")
            remember(temporary)
            sync(temporary / MANIFEST)
            sync(temporary)
            _take_name(temporary, final, old)
            sync(final.parent)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return manifest


def _take_name(temporary: Path, final: Path, old: Path) -> None:
    """Give the temporary folder its final name; a folder that had it is called ``old`` then."""
    if final.exists():
        final.rename(old)
    try:
        temporary.rename(final)
    except OSError:
        if old.exists():
            old.rename(final)
        raise


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a finished preparation, or None if there is none in the current format.

    Raises DataError if the manifest is damaged.
    """
    path = folder / MANIFEST
    try:
        raw: Any = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, f"it is not a manifest ({str(error) or type(error).__name__})") from None
    if not isinstance(raw, dict):
        raise damaged(path, "it is not a manifest, which is a JSON object")
    if raw.get("format_version") != FORMAT_VERSION:
        return None
    family = raw.get("family", "rows")
    kind = FAMILIES.get(family) if isinstance(family, str) else None
    if kind is None:
        raise damaged(path, f"family {family!r} is unknown")
    missing = {field.name for field in fields(kind)} ^ raw.keys()
    if missing:
        raise damaged(path, f"keys {sorted(missing)} are missing or unknown")
    try:
        return convert(kind, raw, "")
    except ConfigError as error:
        raise damaged(path, str(error)) from None


# ---- opening ----


def load_dataset(folder: Path, *, how_to_get: str = "") -> Dataset:
    """Open a prepared folder.

    Raises DataNotPrepared, with the message `how_to_get`, if there is no manifest; DataError if a file is not as the
    manifest says.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataNotPrepared(how_to_get or f"{folder}: not prepared")
    with verified(folder, manifest):
        return _open(folder, manifest)


def _open(folder: Path, manifest: Manifest) -> Dataset:
    """Map the arrays of a folder and check what a look at each entry tells. Raises DataError."""
    if isinstance(manifest, RowsManifest):
        return _open_rows(folder, manifest)
    if isinstance(manifest, TextManifest):
        return _open_text(folder, manifest)
    if isinstance(manifest, RegressionManifest):
        return _open_regression(folder, manifest)
    if isinstance(manifest, PairsManifest):
        return _open_pairs(folder, manifest)
    assert isinstance(manifest, SequencesManifest)
    return _open_sequences(folder, manifest)


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
        train=_load_rows(folder, "train", manifest.train, manifest),
        test=_load_rows(folder, "test", manifest.test, manifest),
        num_features=manifest.num_features,
        num_classes=manifest.num_classes,
        propensity_a=manifest.propensity_a,
        propensity_b=manifest.propensity_b,
        checksum=manifest.checksum,
        variant=manifest.variant,
        label_names_path=names if names.exists() else None,
    )


def _open_text(folder: Path, manifest: TextManifest) -> TextDataset:
    check_names(folder / VOCABULARY, manifest.num_classes)
    return TextDataset(
        name=manifest.name,
        train_T=map_ids(folder / "train.npy", manifest.train.tokens, below=manifest.num_classes),
        valid_T=map_ids(folder / "valid.npy", manifest.valid.tokens, below=manifest.num_classes),
        test_T=map_ids(folder / "test.npy", manifest.test.tokens, below=manifest.num_classes),
        num_classes=manifest.num_classes,
        vocabulary_path=folder / VOCABULARY,
        checksum=manifest.checksum,
        variant=manifest.variant,
    )


def _open_regression(folder: Path, manifest: RegressionManifest) -> RegressionDataset:
    def rows(split: str, count: int) -> DenseRows:
        return DenseRows(
            features_RF=map_numbers(folder / f"{split}.features.npy", "<f8", count, manifest.num_features),
            response_R=map_numbers(folder / f"{split}.response.npy", "<f8", count),
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
            first=read_lines(folder / f"{name}.first.txt", count),
            second=read_lines(folder / f"{name}.second.txt", count),
            labels_R=map_ids(folder / f"{name}.labels.npy", count, below=len(manifest.class_names)),
        )

    if manifest.num_classes != len(manifest.class_names):
        raise damaged(folder / MANIFEST, f"{manifest.num_classes} classes have {len(manifest.class_names)} names")
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
    indptr_U1 = map_array(folder / "indptr.npy", "<i8", manifest.num_users + 1)
    check_offsets(folder / "indptr.npy", indptr_U1, last=manifest.num_events)
    check_names(folder / ITEM_NAMES, manifest.num_classes)
    train_end_U, valid_end_U = split_events(indptr_U1, "ratio")
    return SequencesDataset(
        name=manifest.name,
        items_E=map_ids(folder / "items.npy", manifest.num_events, below=manifest.num_classes),
        indptr_U1=indptr_U1,
        train_end_U=train_end_U,
        valid_end_U=valid_end_U,
        num_classes=manifest.num_classes,
        items_path=folder / ITEM_NAMES,
        checksum=manifest.checksum,
        variant=manifest.variant,
    )


def _load_rows(folder: Path, split: str, counts: SplitCounts, manifest: RowsManifest) -> LabelledRows:
    def path(column: str) -> Path:
        return folder / f"{split}.{column}.npy"

    indptr, label_indptr = (map_array(path(c), COLUMNS[c], counts.rows + 1) for c in ("indptr", "label_indptr"))
    check_offsets(path("indptr"), indptr, last=counts.nonzeros)
    check_offsets(path("label_indptr"), label_indptr, last=counts.label_pairs)
    return LabelledRows(
        indptr=indptr,
        indices=map_ids(path("indices"), counts.nonzeros, below=manifest.num_features),
        values=map_numbers(path("values"), COLUMNS["values"], counts.nonzeros),
        label_indptr=label_indptr,
        labels=map_ids(path("labels"), counts.label_pairs, below=manifest.num_classes),
        rows_dropped=counts.rows_dropped,
    )


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
