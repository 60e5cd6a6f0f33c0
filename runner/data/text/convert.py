"""Convert texts to a prepared folder.

`train.npy`, `valid.npy` and `test.npy` hold token ids; `vocabulary.txt` holds the word of each id.
`runner/data/text/words.py` states how words become ids.

Legend: T tokens of a split.
"""

import dataclasses
import hashlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from runner.data.shared.cards import differences, origin_of
from runner.data.shared.files import find_file, hash_file
from runner.data.shared.linux_sources import LinuxSources, sources_origin
from runner.data.shared.manifests import Origin, combine
from runner.data.shared.store import READ_ANEW, load_own, write_column
from runner.data.text.card import FirstLines, TextCard, TextLayout
from runner.data.text.dataset import EOS, UNK, VOCABULARY, TextCounts, TextDataset, TextManifest
from runner.data.text.linux_code import write_words
from runner.data.text.words import TextPart, choose_vocabulary, count_words, write_tokens
from runner.errors import DataError

SPLITS = ("train", "valid", "test")


def convert(card: TextCard, layout: TextLayout, files: Mapping[str, tuple[Path, ...]], folder: Path) -> TextManifest:
    """Convert a card's published files, in one of its layouts, to a prepared folder. Raises DataError."""
    if layout.linux is not None:
        return _convert_linux(card, layout, files["linux"][0], folder)
    manifest = convert_parts(
        _parts(layout, files),
        folder,
        origin_of(card, layout, files),
        end_of_line=card.end_of_line,
        most_types=card.most_types,
        least_count=card.least_count,
        expected_types=card.expected.num_classes,
    )
    manifest = _with_notes(card, manifest)
    others = [
        note
        for path in dict.fromkeys(path for paths in files.values() for path in paths)
        if (note := _other(card, path))
    ]
    for note in others:
        print(f"{card.name}: {note}", file=sys.stderr)
    return dataclasses.replace(manifest, notes=[*manifest.notes, *others])


def _convert_linux(card: TextCard, layout: TextLayout, archive: Path, folder: Path) -> TextManifest:
    """Convert an archive of the kernel's sources; any version is a text, so its counts are only compared."""
    sources = LinuxSources(archive, (".c",))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        manifest = convert_parts(
            write_words(sources, Path(place)),
            folder,
            sources_origin(card, layout, sources),
            end_of_line=card.end_of_line,
            most_types=card.most_types,
            least_count=card.least_count,
        )
    return _with_notes(card, manifest)


def _other(card: TextCard, path: Path) -> str | None:
    """Return a note if the file is not the canonical one of its name; a compressed file has no such name."""
    wanted = {file.name: file.sha1 for file in card.canonical}.get(path.name)
    if wanted is None or (found := hash_file(path, "sha1")) == wanted:
        return None
    return f"{path.name} is not the canonical file: its sha1 is {found}, that of the published file {wanted}"


def convert_parts(
    parts: Mapping[str, TextPart],
    folder: Path,
    origin: Origin,
    *,
    end_of_line: bool,
    most_types: int | None,
    least_count: int = 1,
    expected_types: int | None = None,
) -> TextManifest:
    """Convert any three texts to a prepared folder.

    Raises DataError for a text that is empty, is not UTF-8, or has another number of types than `expected_types`.
    """
    counts = count_words(parts["train"], end_of_line=end_of_line)
    vocabulary = choose_vocabulary(counts, end_of_line=end_of_line, most_types=most_types, least_count=least_count)
    if expected_types is not None and len(vocabulary) != expected_types:
        raise DataError(
            f"{parts['train'].name}: {len(vocabulary):,} types, but {origin.name} has {expected_types:,};"
            " is this another text?"
        )
    written = {
        split: write_tokens(parts[split], vocabulary, folder / f"{split}.npy", end_of_line=end_of_line)
        for split in SPLITS
    }
    notes = [note for _, _, notes in written.values() for note in notes]
    for note in notes:
        print(f"{origin.name}: {note}", file=sys.stderr)
    tables = {split: (counts, digest) for split, (counts, digest, _) in written.items()}
    return dataclasses.replace(_finish(folder, vocabulary, tables, origin), notes=notes)


def load_own_texts(path: Path, name: str, most_types: int | None) -> TextDataset:
    """Prepare train.txt, valid.txt and test.txt of the folder `path` once and open the result.

    The files hold one sentence per line, plain or compressed. Raises DataError for missing or wrong files.
    """
    files = {}
    for split in SPLITS:
        found = find_file(path, f"{split}.txt")
        if found is None:
            raise DataError(f"{path / (split + '.txt')}: no such file (also looked for .xz, .gz, .bz2)")
        files[split] = found.resolve()

    def fill(folder: Path) -> TextManifest:
        return convert_parts(
            {split: TextPart(paths=(file,)) for split, file in files.items()},
            folder,
            Origin.own(name, "given-train-valid-test", files),
            end_of_line=True,
            most_types=most_types,
        )

    return load_own("text", TextDataset, name, fill, files, most_types, READ_ANEW, says=path)


def derive(card: TextCard, base: TextDataset, folder: Path) -> TextManifest:
    """Make a text from the first lines of each split of a prepared text, with a vocabulary of its own."""
    assert card.derived is not None
    words = [word.encode() for word in base.vocabulary]
    wanted = {"train": base.train_T, "valid": base.valid_T, "test": base.test_T}
    kept = {
        split: _first_lines(base, split, tokens_T, _lines(card.derived, split)) for split, tokens_T in wanted.items()
    }
    found = np.bincount(kept["train"], minlength=len(words))
    counts = {word: int(count) for word, count in zip(words, found, strict=True) if count}
    vocabulary = choose_vocabulary(counts, end_of_line=True, most_types=card.most_types, least_count=card.least_count)
    new_id = {word: number for number, word in enumerate(vocabulary)}
    unknown = new_id[UNK.encode()]
    new_ids = np.array([new_id.get(word, unknown) for word in words], np.int32)  # indexed by old id
    old_unknown = words.index(UNK.encode())
    written = {}
    for split, tokens_T in kept.items():
        digest = write_column(folder / f"{split}.npy", "<i4", new_ids[tokens_T])
        outside = np.count_nonzero(new_ids[tokens_T] == unknown) - np.count_nonzero(tokens_T == old_unknown)
        written[split] = (TextCounts(tokens=len(tokens_T), outside=int(outside)), digest)
    origin = Origin(name=card.name, variant=f"{base.variant}-first-lines", sources={base.name: base.checksum})
    return _with_notes(card, _finish(folder, vocabulary, written, origin))


def _parts(layout: TextLayout, files: Mapping[str, tuple[Path, ...]]) -> dict[str, TextPart]:
    if layout.data is None:
        return {split: TextPart(paths=files[split]) for split in SPLITS}
    starts, stops = (0, *layout.cuts), (*layout.cuts, None)
    return {
        split: TextPart(paths=files["data"], start=start, stop=stop)
        for split, start, stop in zip(SPLITS, starts, stops, strict=True)
    }


def _lines(derived: FirstLines, split: str) -> int:
    return {"train": derived.train_lines, "valid": derived.valid_lines, "test": derived.test_lines}[split]


def _first_lines(base: TextDataset, split: str, tokens_T: np.ndarray, lines: int) -> np.ndarray:
    ends = np.flatnonzero(tokens_T == base.vocabulary.index(EOS))
    if len(ends) < lines:
        raise DataError(f"{base.name}: {split} has {len(ends):,} lines, but {lines:,} are needed")
    return tokens_T[: ends[lines - 1] + 1]


def _finish(
    folder: Path,
    vocabulary: Mapping[bytes, int],
    written: Mapping[str, tuple[TextCounts, str]],
    origin: Origin,
) -> TextManifest:
    text = b"".join(word + b"\n" for word in vocabulary)
    (folder / VOCABULARY).write_bytes(text)
    digests = [digest for _, digest in written.values()]
    return TextManifest(
        **vars(origin),
        num_classes=len(vocabulary),
        train=written["train"][0],
        valid=written["valid"][0],
        test=written["test"][0],
        checksum=combine(hashlib.sha256(text).hexdigest(), *digests),
        notes=[],
    )


def _with_notes(card: TextCard, manifest: TextManifest) -> TextManifest:
    """Return the manifest with a note for every count that differs from the published one."""
    found = {
        "num_classes": manifest.num_classes,
        **{f"{split}_tokens": getattr(manifest, split).tokens for split in SPLITS},
    }
    return dataclasses.replace(manifest, notes=[*manifest.notes, *differences(card, found)])
