"""Convert tables of sentence pairs to a prepared folder.

For each split there are `<split>.first.txt` and `<split>.second.txt`, with one sentence per line in UTF-8, and
`<split>.labels.npy` with class ids.

Legend: R pairs of a split.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from runner.data.pairs.card import PairsCard, PairsLayout
from runner.data.pairs.dataset import PairsDataset, PairsManifest
from runner.data.pairs.read import PairColumns, PairTable, read_ids, read_pairs
from runner.data.shared.cards import differences, origin_of
from runner.data.shared.manifests import Origin, combine
from runner.data.shared.splits import split_rows
from runner.data.shared.store import load_own, write_column
from runner.errors import DataError


def convert(card: PairsCard, layout: PairsLayout, found: Mapping[str, tuple[Path, ...]], folder: Path) -> PairsManifest:
    """Convert a card's published files, in one of its layouts, to a prepared folder. Raises DataError."""
    files = {field: path for field, (path,) in found.items()}
    columns = PairColumns(first=layout.first, second=layout.second, label=layout.label, others=layout.id_columns)
    if layout.data is not None:
        train, test = _split_by_ids(read_pairs(files["data"], columns), files["test_ids"])
    else:
        train, test = read_pairs(files["train"], columns), read_pairs(files["test"], columns)
    manifest = _write(
        train,
        test,
        folder,
        origin_of(card, layout, found),
        labels=card.labels,
        class_names=card.class_names or card.labels,
    )
    counts = {"num_train": manifest.train, "num_test": manifest.test, "num_classes": manifest.num_classes}
    manifest.notes.extend(differences(card, counts))
    return manifest


def load_own_pairs(
    files: dict[str, Path], name: str, *, columns: PairColumns, test_share: float, split_seed: int
) -> PairsDataset:
    """Prepare a user's tables of pairs once and open the result; the arguments are those of `convert_own`."""
    fill = partial(convert_own, files, name=name, columns=columns, test_share=test_share, split_seed=split_seed)
    return load_own("pairs", PairsDataset, name, fill, files, columns, test_share, split_seed)


def convert_own(
    files: dict[str, Path], folder: Path, *, name: str, columns: PairColumns, test_share: float, split_seed: int
) -> PairsManifest:
    """Convert a user's tables: `train`, and `test` unless the pairs of `train` are to be split at random.

    The classes are the labels of the training pairs. Raises DataError.
    """
    path = files["train"]
    train = read_pairs(path, columns)
    notes = [f"{path}: {note}" for note in train.notes]
    if "test" in files:
        test, variant = read_pairs(files["test"], columns), "given-train-test"
        notes += [f"{test.path}: {note}" for note in test.notes]
    else:
        if len(train) < 2:
            raise DataError(f"{path}: 1 pair is too few to split; give dataset.test_path or more pairs")
        train_R, test_R = split_rows(len(train), test_share, split_seed)
        train, test = _take(train, train_R.tolist()), _take(train, test_R.tolist())
        variant = f"given-seed-{split_seed}"
    labels = _sorted_labels(set(train.labels))
    if len(labels) < 2:
        raise DataError(f"{path}: column {columns.label}: every label is {labels[0]!r}; two classes are needed")
    for note in notes:
        print(f"{name}: {note}", file=sys.stderr)
    manifest = _write(train, test, folder, Origin.own(name, variant, files), labels=labels, class_names=labels)
    return replace(manifest, notes=notes)


def _sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Return the labels in the order of their ids: by value if all are whole numbers, otherwise by their text."""
    try:
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    except ValueError:
        return tuple(sorted(labels))


def _take(table: PairTable, rows: Sequence[int]) -> PairTable:
    return PairTable(
        path=table.path,
        first=[table.first[i] for i in rows],
        second=[table.second[i] for i in rows],
        labels=[table.labels[i] for i in rows],
        others=[table.others[i] for i in rows],
        lines=[table.lines[i] for i in rows],
    )


def _split_by_ids(table: PairTable, ids_path: Path) -> tuple[PairTable, PairTable]:
    """Take the pairs whose ids a file lists as test pairs, and the others as training pairs."""
    test_ids = read_ids(ids_path, len(table.others[0]))
    missing = test_ids.keys() - set(table.others)
    if missing:
        ids = min(missing, key=test_ids.__getitem__)
        raise DataError(f"{ids_path}: line {test_ids[ids]}: {table.path} has no pair with the ids {' '.join(ids)}")
    rows: dict[bool, list[int]] = {False: [], True: []}
    for row, ids in enumerate(table.others):
        rows[ids in test_ids].append(row)
    if not rows[False]:
        raise DataError(f"{ids_path}: lists every pair of {table.path}, so none is left for training")
    return _take(table, rows[False]), _take(table, rows[True])


def _write(
    train: PairTable,
    test: PairTable,
    folder: Path,
    origin: Origin,
    *,
    labels: Sequence[str],
    class_names: Sequence[str],
) -> PairsManifest:
    digests = [_write_split(folder, split, table, labels) for split, table in (("train", train), ("test", test))]
    return PairsManifest(
        **vars(origin),
        num_classes=len(labels),
        class_names=list(class_names),
        train=len(train),
        test=len(test),
        checksum=combine(*class_names, *digests),
        notes=[],
    )


def _write_split(folder: Path, split: str, table: PairTable, labels: Sequence[str]) -> str:
    """Write the files of a split and return the sha256 of their contents. Raises DataError for an unknown label."""
    number = {label: i for i, label in enumerate(labels)}
    for line, label in zip(table.lines, table.labels, strict=True):
        if label not in number:
            shown = ", ".join(labels[:20])
            raise DataError(f"{table.path}: line {line}: label {label[:40]!r} is not one of {shown}")
    digests = []
    for side, sentences in (("first", table.first), ("second", table.second)):
        data = "".join(f"{sentence}\n" for sentence in sentences).encode()
        (folder / f"{split}.{side}.txt").write_bytes(data)
        digests.append(hashlib.sha256(data).hexdigest())
    labels_R = np.array([number[label] for label in table.labels], dtype=np.int32)
    return combine(*digests, write_column(folder / f"{split}.labels.npy", "<i4", labels_R))
