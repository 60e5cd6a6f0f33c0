"""From published files to prepared folders: find or fetch, verify, convert, write the manifest."""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner.data import places
from runner.data.card import Card, Layout, Source, load_card
from runner.data.download import checksum_problem, download, hash_file
from runner.data.extract import extract, is_archive
from runner.data.readers import (
    Block,
    FileCounts,
    TextFormat,
    find_file,
    read_names,
    read_rows,
    read_split_lines,
)
from runner.data.rows import XmcDataset
from runner.data.store import (
    LABEL_NAMES,
    Manifest,
    RowsWriter,
    SplitCounts,
    combine,
    fill_folder,
    load_dataset,
    read_manifest,
)
from runner.data.uniform import write_uniform
from runner.errors import DataError, DataNotPrepared

XC_TEXT = TextFormat(layout="xmc")


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A layout whose files are at hand."""

    layout: Layout
    files: dict[str, Path]  # field of Layout -> file


@dataclass(frozen=True, kw_only=True)
class _Table:
    """One split, written."""

    counts: SplitCounts
    digest: str
    num_features: int
    num_classes: int


def prepare_card(name: str, *, given: Path | None = None, force: bool = False) -> Manifest:
    """Prepare a card's set from `given` (a mirror folder), from its embedded files, or by download.

    Returns at once when it is prepared already, unless forced. Raises ConfigError, DataError,
    DataNotPrepared.
    """
    card = load_card(name)
    if given is not None and not given.is_dir():
        raise DataError(f"{given}: no such folder")
    return fill_folder(places.prepared_dir(name), lambda folder: _fill_from_card(card, folder, given), force=force)


def load_card_dataset(name: str) -> XmcDataset:
    """Open a card's prepared set; an embedded one is prepared on first use, others raise DataNotPrepared."""
    card = load_card(name)
    folder = places.prepared_dir(name)
    if card.embedded and read_manifest(folder) is None:
        print(f"preparing {name} (once)", file=sys.stderr)
        prepare_card(name)
    return load_dataset(folder, how_to_get=how_to_get(card))


def how_to_get(card: Card) -> str:
    command = f"python scripts/prepare_dataset.py {card.name}"
    if card.derived is not None:
        return f"{card.name} is not prepared: run `{command}` after preparing {card.derived.base}"
    return f"{card.name} is not prepared: run `{command}`, or `{command} --from DIR` with files you have"


def load_files_dataset(path: Path, name: str) -> XmcDataset:
    """Prepare DIR/train.txt and DIR/test.txt (XC text, plain or compressed) once and open the result.

    The cache key holds path, size and time of both files, so changed files are prepared anew.
    """
    files = {}
    for split in ("train", "test"):
        found = find_file(path, f"{split}.txt")
        if found is None:
            raise DataError(f"{path / (split + '.txt')}: no such file (also looked for .xz, .gz, .bz2)")
        files[split] = found.resolve()
    stats = {split: file.stat() for split, file in files.items()}
    key = combine(*(f"{files[s]} {stats[s].st_size} {stats[s].st_mtime_ns}" for s in files))[:16]

    def fill(folder: Path) -> Manifest:
        print(f"preparing {path} (once)", file=sys.stderr)
        train, test = (_write_split(folder, split, files[split], XC_TEXT) for split in files)
        _same_dimensions(files["train"], train, files["test"], test)
        return _manifest(
            name=name,
            variant="given-train-test",
            train=train,
            test=test,
            propensities=(0.55, 1.5),
            sources={str(file): "" for file in files.values()},
        )

    folder = places.prepared_dir("xmc", key)
    fill_folder(folder, fill)
    return dataclasses.replace(load_dataset(folder), name=name)


# ---- from a card ----


def _fill_from_card(card: Card, folder: Path, given: Path | None) -> Manifest:
    if card.derived is not None:
        return _fill_derived(card, folder)
    unpacked = folder / "unpacked"
    try:
        if card.embedded:
            found = _find_embedded(card)
        elif given is not None:
            found = _find_given(card, given, unpacked)
        else:
            found = _find_downloaded(card, unpacked)
        print(f"{card.name}: converting the variant {found.layout.name}", file=sys.stderr)
        return _convert(card, found, folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _find_embedded(card: Card) -> _Found:
    folder = places.CARDS_ROOT / card.name
    for file in card.embedded:
        path = folder / file.name
        if not path.is_file():
            raise DataError(f"{path}: missing from the repository")
        if (problem := checksum_problem(path, file)) is not None:
            raise DataError(f"{path}: {problem}")
    found = _find_layout(card, [folder])
    if found is None:
        raise DataError(f"{folder}: the card's layouts name none of its embedded files")
    return found


def _find_given(card: Card, given: Path, unpacked: Path) -> _Found:
    """Look in DIR/<name> if it exists, else in DIR; unpacked files first, archives second."""
    own = given / card.name
    folders = [own, *(p for p in sorted(own.rglob("*")) if p.is_dir())] if own.is_dir() else [given]
    published = {file.name: file for source in card.sources for file in source.files}
    if (found := _find_layout(card, folders)) is None:
        basenames = {url.rsplit("/", 1)[-1] for file in published.values() for url in file.urls}
        for archive in (p for f in folders for p in sorted(f.iterdir()) if p.is_file() and is_archive(p)):
            if not own.is_dir() and archive.name not in published and archive.name not in basenames:
                continue  # another set's archive
            _verify_given(archive, published)
            print(f"{card.name}: unpacking {archive}", file=sys.stderr)
            extract(archive, unpacked)
            if (found := _find_layout(card, _tree(unpacked))) is not None:
                return found
            shutil.rmtree(unpacked)
        wanted = " or ".join(
            " and ".join(_file_names(layout).values()) for layout in card.layouts
        )  # one line, so no list of every compression
        raise DataError(f"{given}: holds no files of {card.name}; wanted {wanted}, plain, compressed or in an archive")
    for path in found.files.values():
        _verify_given(path, published)
    return found


def _verify_given(path: Path, published: dict) -> None:
    if path.name in published and (problem := checksum_problem(path, published[path.name])) is not None:
        raise DataError(f"{path}: {problem}")


def _find_downloaded(card: Card, unpacked: Path) -> _Found:
    failures = []
    raw = places.raw_dir(card.name)
    at_hand = [all((raw / file.name).exists() for file in source.files) for source in card.sources]
    for source, _ in sorted(zip(card.sources, at_hand, strict=True), key=lambda pair: not pair[1]):
        try:
            return _fetch_source(card, source, unpacked)
        except DataError as error:
            failures.append(str(error))
            shutil.rmtree(unpacked, ignore_errors=True)
    hand = f" By hand: {card.by_hand}" if card.by_hand else ""
    raise DataError(f"{card.name}: {' | '.join(failures) or 'no source is known'}.{hand}")


def _fetch_source(card: Card, source: Source, unpacked: Path) -> _Found:
    raw = places.raw_dir(card.name)
    folders = [raw]
    for file in source.files:
        path = download(file, raw)
        if is_archive(path):
            extract(path, unpacked / path.name)
            folders += _tree(unpacked / path.name)
    found = _find_layout(card, folders, only=source.layout)
    if found is None:
        raise DataError(f"{raw}: the downloaded files do not hold the layout {source.layout}")
    return found


def _tree(folder: Path) -> list[Path]:
    return [folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())]


def _file_names(layout: Layout) -> dict[str, str]:
    names = {f: getattr(layout, f) for f in ("train", "test", "data", "train_split", "test_split")}
    return {field: name for field, name in names.items() if name is not None}


def _find_layout(card: Card, folders: list[Path], only: str | None = None) -> _Found | None:
    """The first layout all of whose files lie in one of the folders, by full or by base name."""
    for layout in card.layouts:
        if only is not None and layout.name != only:
            continue
        for folder in folders:
            files = {}
            for field, name in _file_names(layout).items():
                path = find_file(folder, name) or find_file(folder, Path(name).name)
                if path is not None:
                    files[field] = path
            if len(files) < len(_file_names(layout)):
                continue
            names = find_file(folder, layout.label_names) if layout.label_names else None
            if names is not None:
                files["label_names"] = names
            return _Found(layout=layout, files=files)
    return None


# ---- conversion ----


def _convert(card: Card, found: _Found, folder: Path) -> Manifest:
    layout, files = found.layout, found.files
    text = TextFormat(layout=layout.format, feature_start=layout.feature_start, label_start=layout.label_start)
    if layout.data is not None:
        train, test = _write_by_split_files(folder, files, text, layout.split_column)
    else:
        train = _write_split(folder, "train", files["train"], text)
        test = _write_split(folder, "test", files["test"], text)
    expected = card.expected
    if layout.format == "xmc":
        if layout.data is None:
            _same_dimensions(files["train"], train, files["test"], test)
        if train.num_classes != expected.num_classes:
            path = files.get("train", files.get("data"))
            raise DataError(
                f"{path}: line 1: {train.num_classes} labels, but {card.name} has {expected.num_classes}; another set?"
            )
    else:  # without a header the largest index seen is only a lower bound
        features = max(train.num_features, test.num_features, expected.num_features)
        classes = max(train.num_classes, test.num_classes, expected.num_classes)
        train = dataclasses.replace(train, num_features=features, num_classes=classes)
    if "label_names" in files:
        names = read_names(files["label_names"], train.num_classes)
        (folder / LABEL_NAMES).write_text("".join(name + "\n" for name in names), encoding="utf-8")
    return _manifest(
        name=card.name,
        variant=layout.name,
        train=train,
        test=test,
        propensities=(card.propensity_a, card.propensity_b),
        sources={path.name: hash_file(path) for path in files.values()},
        notes=_differences(card, train, test),
    )


def _differences(card: Card, train: _Table, test: _Table) -> list[str]:
    found = {
        "num_features": train.num_features,
        "num_classes": train.num_classes,
        "num_train": train.counts.rows_read,
        "num_test": test.counts.rows_read,
    }
    notes = [
        f"{key} is {value}, the card expects {getattr(card.expected, key)}"
        for key, value in found.items()
        if value != getattr(card.expected, key)
    ]
    for note in notes:
        print(f"{card.name}: {note}", file=sys.stderr)
    return notes


def _write_split(folder: Path, split: str, path: Path, text: TextFormat) -> _Table:
    with RowsWriter(folder, split) as writer, _progress(path) as progress:

        def sink(block: Block) -> None:
            writer.append(block.row_sizes, block.indices, block.values, block.label_sizes, block.labels)

        counts = read_rows(path, text, sink, progress=progress)
        return _table(path, writer, counts)


def _table(path: Path, writer: RowsWriter, counts: FileCounts) -> _Table:
    if writer.rows == 0:
        raise DataError(f"{path}: no row has a label")
    return _Table(
        counts=writer.counts(
            rows_dropped=counts.rows_without_labels, rows_without_features=counts.rows_without_features
        ),
        digest=writer.finish(),
        num_features=counts.num_features,
        num_classes=counts.num_classes,
    )


def _write_by_split_files(folder: Path, files: dict[str, Path], text: TextFormat, column: int) -> tuple[_Table, _Table]:
    """The older layout of small sets: all rows in one file, held in memory; rows in split-file order."""
    blocks: list[Block] = []
    counts = read_rows(files["data"], text, blocks.append, keep_unlabelled=True)
    sizes = np.concatenate([b.row_sizes for b in blocks])
    label_sizes = np.concatenate([b.label_sizes for b in blocks])
    indices, values = np.concatenate([b.indices for b in blocks]), np.concatenate([b.values for b in blocks])
    labels = np.concatenate([b.labels for b in blocks])
    chosen = {s: read_split_lines(files[f"{s}_split"], column, len(sizes)) for s in ("train", "test")}
    if len(common := np.intersect1d(chosen["train"], chosen["test"])):
        raise DataError(f"{files['test_split']}: line number {common[0] + 1} is in the training split too")
    tables = []
    for split, rows in chosen.items():
        kept = rows[label_sizes[rows] > 0]
        take, take_labels = _spans(sizes, kept), _spans(label_sizes, kept)
        these = dataclasses.replace(
            counts,
            rows_read=len(rows),
            rows_without_labels=len(rows) - len(kept),
            rows_without_features=int(np.count_nonzero(sizes[kept] == 0)),
        )
        with RowsWriter(folder, split) as writer:
            writer.append(sizes[kept], indices[take], values[take], label_sizes[kept], labels[take_labels])
            tables.append(_table(files[f"{split}_split"], writer, these))
    return tables[0], tables[1]


def _spans(sizes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions of the entries of `rows`, row after row, in an array with `sizes[r]` entries for row r."""
    starts = np.cumsum(sizes) - sizes
    within = np.arange(sizes[rows].sum()) - np.repeat(np.cumsum(sizes[rows]) - sizes[rows], sizes[rows])
    return np.repeat(starts[rows], sizes[rows]) + within


def _same_dimensions(train_path: Path, train: _Table, test_path: Path, test: _Table) -> None:
    if (train.num_features, train.num_classes) != (test.num_features, test.num_classes):
        raise DataError(
            f"{test_path}: line 1: {test.num_features} features and {test.num_classes} labels,"
            f" but {train_path} has {train.num_features} and {train.num_classes}"
        )


def _manifest(
    *,
    name: str,
    variant: str,
    train: _Table,
    test: _Table,
    propensities: tuple[float, float],
    sources: dict[str, str],
    notes: list[str] | None = None,
) -> Manifest:
    return Manifest(
        name=name,
        variant=variant,
        num_features=train.num_features,
        num_classes=train.num_classes,
        propensity_a=propensities[0],
        propensity_b=propensities[1],
        train=train.counts,
        test=test.counts,
        checksum=combine(train.num_features, train.num_classes, train.digest, test.digest),
        sources=sources,
        notes=notes or [],
    )


def _fill_derived(card: Card, folder: Path) -> Manifest:
    assert card.derived is not None
    base_card = load_card(card.derived.base)
    try:
        base = load_card_dataset(base_card.name)
    except DataNotPrepared:
        raise DataNotPrepared(f"{card.name} is derived from {base_card.name}: {how_to_get(base_card)}") from None
    train, test, digests, chosen = write_uniform(base, folder, card.derived.num_classes, card.derived.seed)
    if (names := base.label_names()) is not None:
        (folder / LABEL_NAMES).write_text("".join(names[i] + "\n" for i in chosen), encoding="utf-8")
    tables = [
        _Table(counts=counts, digest=digest, num_features=base.num_features, num_classes=card.derived.num_classes)
        for counts, digest in zip((train, test), digests, strict=True)
    ]
    kept = {"num_train": train.rows, "num_test": test.rows}
    return _manifest(
        name=card.name,
        variant=f"{base.variant}-seed-{card.derived.seed}",
        train=tables[0],
        test=tables[1],
        propensities=(card.propensity_a, card.propensity_b),
        sources={base.name: base.checksum},
        notes=[
            f"{key} is {value}, the paper reports {getattr(card.expected, key)}"
            for key, value in kept.items()
            if value != getattr(card.expected, key)
        ],
    )


@contextlib.contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of a file; silent where stderr is no terminal."""
    from tqdm import tqdm

    size = path.stat().st_size if path.exists() else 0
    with tqdm(total=size, unit="B", unit_scale=True, desc=path.name, file=sys.stderr, disable=None) as bar:

        def show(consumed: int) -> None:
            bar.update(consumed - bar.n)

        yield show


__all__ = ["how_to_get", "load_card_dataset", "load_files_dataset", "prepare_card"]
