"""Prepare data sets: find or download the files, verify them, convert them, and write the manifest."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from runner.data.shared import places
from runner.data.shared.card import Card, Layout, Source, SourceFile
from runner.data.shared.cards import load_card
from runner.data.shared.download import checksum_problem, download
from runner.data.shared.extract import extract, is_archive
from runner.data.shared.family import family_of
from runner.data.shared.files import find_file, find_files
from runner.data.shared.manifests import Dataset, Manifest
from runner.data.shared.store import fill_folder, load_dataset, read_manifest
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
        return family_of(card.family).convert(card, found.layout, found.files, folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _fill_derived(card: Card, base_name: str, folder: Path) -> Manifest:
    try:
        base = load_card_dataset(base_name)
    except DataNotPrepared:
        how = how_to_get(load_card(base_name))
        raise DataNotPrepared(f"{card.name} is derived from {base_name}: {how}") from None
    derive = family_of(card.family).derive
    assert derive is not None, "the cards of other families name no base"
    return derive(card, base, folder)


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
            if any(archive.match(name) for layout in card.layouts for name in layout.file_names().values()):
                continue  # one of several archives that are read as they are
            _verify_given(archive, published)
            print(f"{card.name}: unpacking {archive}", file=sys.stderr)
            extract(archive, unpacked)
            if (found := _find_layout(card, _tree(unpacked))) is not None:
                return _verified(card, found)
            shutil.rmtree(unpacked)
        wanted = " or ".join(layout.in_words() for layout in card.layouts)
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
    if card.sources and not any(all((raw / file.name).exists() for file in source.files) for source in card.sources):
        hand = card.by_hand or "fetch the files below with any other program"
        said = (
            f"{card.name}: if the network fails, by hand: {hand.rstrip('.')}; `{places.PREPARE} {card.name} --from DIR`"
        )
        print(said, file=sys.stderr, flush=True)
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
    paths = [download(file, raw) for file in source.files]
    found = _find_layout(card, [raw], only=source.layout)  # also of layouts that name an archive
    if found is None:
        folders = []
        for path in filter(is_archive, paths):
            extract(path, unpacked / path.name)
            folders += _tree(unpacked / path.name)
        found = _find_layout(card, folders, only=source.layout)
    if found is None:
        (layout,) = (layout for layout in card.layouts if layout.name == source.layout)
        raise DataError(f"{raw}: the downloaded files do not hold {layout.in_words()} (layout {layout.name})")
    return _verified(card, found)


def _tree(folder: Path) -> list[Path]:
    return [folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())]


def _find_layout(card: Card, folders: list[Path], only: str | None = None) -> _Found | None:
    """Return the first layout of which one of the folders holds all files, by full or by base name."""
    for layout in card.layouts:
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
