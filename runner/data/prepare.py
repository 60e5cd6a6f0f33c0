"""Prepare data sets: find or download the files, verify them, convert them, and write the manifest."""

import dataclasses
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from runner.data import convert_pairs, convert_rows, convert_sequences, convert_table, convert_text, places
from runner.data.card import (
    Card,
    PairsCard,
    RegressionCard,
    RowsCard,
    SequencesCard,
    Source,
    SourceFile,
    TextCard,
    load_card,
)
from runner.data.dense import RegressionDataset
from runner.data.download import checksum_problem, download
from runner.data.events import Filters
from runner.data.extract import extract, is_archive
from runner.data.layouts import Layout, PairsLayout, RowsLayout, SequencesLayout, TableLayout, TextLayout
from runner.data.manifests import Manifest
from runner.data.pairs import PairsDataset
from runner.data.read_events import LogColumns
from runner.data.read_pairs import PairColumns
from runner.data.readers import find_file, find_files
from runner.data.row_files import find_own_rows
from runner.data.rows import XmcDataset
from runner.data.sequences import SequencesDataset
from runner.data.store import (
    Dataset,
    combine,
    fill_folder,
    load_dataset,
    load_pairs,
    load_regression,
    load_rows,
    load_sequences,
    load_text,
    read_manifest,
)
from runner.data.text import TextDataset
from runner.data.words import TextPart
from runner.errors import DataError, DataNotPrepared


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Hold a layout and its files, all of which were found."""

    layout: Layout
    files: dict[str, tuple[Path, ...]]  # the files of each field of the layout


def prepare_card(name: str, *, given: Path | None = None, force: bool = False) -> Manifest:
    """Prepare a card's set from its embedded files, from the folder `given`, or by download; return its manifest.

    Nothing is done if the set is prepared already, unless `force` is set. Raises ConfigError for an unknown name,
    DataError for wrong or missing files, DataNotPrepared if the set that it is derived from is not prepared.
    """
    card = load_card(name)
    if given is not None and not given.is_dir():
        raise DataError(f"{given}: no such folder")
    return fill_folder(places.prepared_dir(name), lambda folder: _fill_from_card(card, folder, given), force=force)


def load_card_dataset(name: str) -> Dataset:
    """Open a card's prepared set; an embedded one is prepared on first use.

    Raises DataNotPrepared if another set is not prepared, DataError if its files are damaged.
    """
    card = load_card(name)
    folder = places.prepared_dir(name)
    if card.embedded and read_manifest(folder) is None:
        print(f"preparing {name} (once)", file=sys.stderr)
        prepare_card(name)
    return load_dataset(folder, how_to_get=how_to_get(card))


def how_to_get(card: Card) -> str:
    """Return the sentence that says with which command to prepare a set."""
    command = f"{places.PREPARE} {card.name}"
    if card.base is not None:
        return f"{card.name} is not prepared: run `{command}` after preparing {card.base}"
    return f"{card.name} is not prepared: run `{command}`, or `{command} --from DIR` with files you have"


def load_files_dataset(path: Path, name: str) -> XmcDataset:
    """Prepare the training and test rows of a folder, in any of the forms of `row_files`, once and open the result.

    Raises DataError for missing or wrong files, and for files of several forms.
    """
    rows = find_own_rows(path)

    def fill(folder: Path) -> Manifest:
        print(f"preparing {path} (once)", file=sys.stderr)
        return convert_rows.convert_own(rows, folder, name=name)

    folder = places.prepared_dir("xmc", _fingerprint(rows.files))
    fill_folder(folder, fill)
    return dataclasses.replace(load_rows(folder), name=name)


def load_text_files_dataset(path: Path, name: str, most_types: int | None) -> TextDataset:
    """Prepare train.txt, valid.txt and test.txt of the folder `path` once and open the result.

    The files hold one sentence per line, plain or compressed. Raises DataError for missing or wrong files.
    """
    files = _own_texts(path)

    def fill(folder: Path) -> Manifest:
        print(f"preparing {path} (once)", file=sys.stderr)
        return convert_text.convert_parts(
            {split: TextPart(paths=(file,)) for split, file in files.items()},
            folder,
            name=name,
            variant="given-train-valid-test",
            end_of_line=True,
            most_types=most_types,
            sources={str(file): "" for file in files.values()},
        )

    folder = places.prepared_dir("text", _fingerprint(files, most_types))
    fill_folder(folder, fill)
    return dataclasses.replace(load_text(folder), name=name)


def load_table_dataset(
    files: dict[str, Path], name: str, *, target: str | int, test_share: float, split_seed: int
) -> RegressionDataset:
    """Prepare tables of numbers once and open the result.

    `files`: `train`, and `test` if the test rows are in a file of their own. Raises DataError for wrong files,
    ConfigError for an unknown target.
    """
    split = {"target": target, "test_share": test_share, "split_seed": split_seed}

    def fill(folder: Path) -> Manifest:
        print(f"preparing {files['train']} (once)", file=sys.stderr)
        return convert_table.convert_own(
            files, folder, name=name, target=target, test_share=test_share, split_seed=split_seed
        )

    folder = places.prepared_dir("table", _fingerprint(files, json.dumps(split)))
    fill_folder(folder, fill)
    return dataclasses.replace(load_regression(folder), name=name)


def load_pairs_file_dataset(
    files: dict[str, Path], name: str, *, columns: PairColumns, test_share: float, split_seed: int
) -> PairsDataset:
    """Prepare tables of sentence pairs (TSV or CSV with a header, plain or compressed) once and open the result.

    `files`: `train`, and `test` if the test pairs are in a file of their own. Raises DataError for wrong files.
    """

    def fill(folder: Path) -> Manifest:
        print(f"preparing {files['train']} (once)", file=sys.stderr)
        return convert_pairs.convert_own(
            files, folder, name=name, columns=columns, test_share=test_share, split_seed=split_seed
        )

    folder = places.prepared_dir("pairs", _fingerprint(files, columns, test_share, split_seed))
    fill_folder(folder, fill)
    return dataclasses.replace(load_pairs(folder), name=name)


def load_interactions_dataset(path: Path, name: str, *, columns: LogColumns, filters: Filters) -> SequencesDataset:
    """Prepare a log of events (CSV or TSV with a header, plain or compressed) once and open the result.

    Raises DataError for a wrong file, and if the filters leave no event.
    """

    def fill(folder: Path) -> Manifest:
        print(f"preparing {path} (once)", file=sys.stderr)
        return convert_sequences.convert_own(path, folder, name=name, columns=columns, filters=filters)

    folder = places.prepared_dir("interactions", _fingerprint({"data": path}, columns, filters))
    fill_folder(folder, fill)
    return dataclasses.replace(load_sequences(folder), name=name)


def _own_texts(path: Path) -> dict[str, Path]:
    files = {}
    for split in convert_text.SPLITS:
        found = find_file(path, f"{split}.txt")
        if found is None:
            raise DataError(f"{path / (split + '.txt')}: no such file (also looked for .xz, .gz, .bz2)")
        files[split] = found.resolve()
    return files


def _fingerprint(files: dict[str, Path], *settings: object) -> str:
    """Return the key of a cache folder, from path, size and time of the files: changed files are prepared again."""
    stats = {split: file.stat() for split, file in files.items()}
    return combine(*(f"{files[s]} {stats[s].st_size} {stats[s].st_mtime_ns}" for s in files), *settings)[:16]


# ---- from a card ----


def _fill_from_card(card: Card, folder: Path, given: Path | None) -> Manifest:
    if card.base is not None:
        return _fill_derived(card, card.base, folder)
    unpacked = folder / "unpacked"
    try:
        if card.embedded:
            found = _find_embedded(card)
        elif given is not None:
            found = _find_given(card, given, unpacked)
        else:
            found = _find_downloaded(card, unpacked)
        print(f"{card.name}: converting the variant {found.layout.name}", file=sys.stderr)
        if isinstance(card, TextCard):
            return convert_text.convert(card, cast(TextLayout, found.layout), found.files, folder)
        if isinstance(card, RegressionCard):
            return convert_table.convert(card, cast(TableLayout, found.layout), found.files, folder)
        if isinstance(card, PairsCard):
            return convert_pairs.convert(card, cast(PairsLayout, found.layout), found.files, folder)
        if isinstance(card, SequencesCard):
            return convert_sequences.convert(card, cast(SequencesLayout, found.layout), found.files, folder)
        return convert_rows.convert(cast(RowsCard, card), cast(RowsLayout, found.layout), found.files, folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _fill_derived(card: Card, base_name: str, folder: Path) -> Manifest:
    try:
        base = load_card_dataset(base_name)
    except DataNotPrepared:
        how = how_to_get(load_card(base_name))
        raise DataNotPrepared(f"{card.name} is derived from {base_name}: {how}") from None
    if isinstance(card, TextCard):
        return convert_text.derive(card, cast(TextDataset, base), folder)
    return convert_rows.derive(cast(RowsCard, card), cast(XmcDataset, base), folder)


def _find_embedded(card: Card) -> _Found:
    folder = places.CARDS_ROOT / card.name
    for file in card.embedded:
        path = folder / file.name
        if not path.is_file():
            raise DataError(f"{path}: missing, though it comes with the program")
        if (problem := checksum_problem(path, file)) is not None:
            raise DataError(f"{path}: {problem}")
    found = _find_layout(card, [folder])
    if found is None:
        raise DataError(f"{folder}: the card's layouts name none of its embedded files")
    return found


def _find_given(card: Card, given: Path, unpacked: Path) -> _Found:
    """Find a layout in the folder `given`/<name> if it exists, else in `given`.

    Unpacked files are taken before archives, which are unpacked into `unpacked`.
    """
    own = given / card.name
    folders = [own, *(p for p in sorted(own.rglob("*")) if p.is_dir())] if own.is_dir() else [given]
    published = _published(card)
    if (found := _find_layout(card, folders)) is None:
        basenames = {url.rsplit("/", 1)[-1] for file in published.values() for url in file.urls}
        for archive in (p for f in folders for p in sorted(f.iterdir()) if p.is_file() and is_archive(p)):
            if not own.is_dir() and archive.name not in published and archive.name not in basenames:
                continue  # an archive of another set
            _verify_given(archive, published)
            print(f"{card.name}: unpacking {archive}", file=sys.stderr)
            extract(archive, unpacked)
            if (found := _find_layout(card, _tree(unpacked))) is not None:
                return _verified(card, found)
            shutil.rmtree(unpacked)
        wanted = " or ".join(layout.in_words() for layout in card.all_layouts)
        raise DataError(f"{given}: holds no files of {card.name}; wanted {wanted}, plain, compressed or in an archive")
    return _verified(card, found)


def _published(card: Card) -> dict[str, SourceFile]:
    return {file.name: file for source in card.sources for file in source.files}


def _verified(card: Card, found: _Found) -> _Found:
    """Check every file whose name has a published checksum, wherever the file comes from."""
    for paths in found.files.values():
        for path in paths:
            _verify_given(path, _published(card))
    return found


def _verify_given(path: Path, published: dict[str, SourceFile]) -> None:
    if path.name in published and (problem := checksum_problem(path, published[path.name])) is not None:
        raise DataError(f"{path}: {problem}")


def _find_downloaded(card: Card, unpacked: Path) -> _Found:
    """Fetch the first source that works; sources whose files were downloaded before are tried first."""
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
        (layout,) = (layout for layout in card.all_layouts if layout.name == source.layout)
        guess = ", whose names are guessed" if layout.guessed else ""
        raise DataError(f"{raw}: the downloaded files do not hold {layout.in_words()} (layout {layout.name}{guess})")
    return _verified(card, found)


def _tree(folder: Path) -> list[Path]:
    return [folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())]


def _find_layout(card: Card, folders: list[Path], only: str | None = None) -> _Found | None:
    """Return the first layout of which one of the folders holds all files, by full or by base name."""
    for layout in card.all_layouts:
        if only is not None and layout.name != only:
            continue
        for folder in folders:
            files = {}
            for field, name in layout.file_names().items():
                count = layout.how_many(field)
                files[field] = find_files(folder, name, count) or find_files(folder, Path(name).name, count)
            if not all(files.values()):
                continue
            for field, name in layout.optional_names().items():
                if (path := find_file(folder, name)) is not None:
                    files[field] = (path,)
            return _Found(layout=layout, files=files)
    return None


__all__ = [
    "how_to_get",
    "load_card_dataset",
    "load_files_dataset",
    "load_interactions_dataset",
    "load_pairs_file_dataset",
    "load_table_dataset",
    "load_text_files_dataset",
    "prepare_card",
]
