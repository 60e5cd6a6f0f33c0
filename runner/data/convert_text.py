"""Convert texts to a prepared folder.

`train.npy`, `valid.npy` and `test.npy` hold token ids; `vocabulary.txt` holds the word of each id.
`runner/data/words.py` states how words become ids.

Legend: T tokens of a split.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from runner.data.card import FirstLines, TextCard, differences
from runner.data.download import hash_file
from runner.data.layouts import TextLayout
from runner.data.manifests import TextCounts, TextManifest
from runner.data.store import VOCABULARY, ColumnWriter, combine
from runner.data.text import EOS, UNK, TextDataset
from runner.data.words import TextPart, choose_vocabulary, count_words, write_tokens
from runner.errors import DataError

SPLITS = ("train", "valid", "test")


def convert(card: TextCard, layout: TextLayout, files: Mapping[str, tuple[Path, ...]], folder: Path) -> TextManifest:
    """Convert a card's published files, in one of its layouts, to a prepared folder. Raises DataError."""
    manifest = convert_parts(
        _parts(layout, files),
        folder,
        name=card.name,
        variant=layout.name,
        end_of_line=card.end_of_line,
        most_types=card.most_types,
        sources={path.name: hash_file(path) for paths in files.values() for path in paths},
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


def _other(card: TextCard, path: Path) -> str | None:
    """Return a note if the file is not the canonical one of its name; a compressed file has no such name."""
    wanted = {file.name: file.sha1 for file in card.canonical}.get(path.name)
    if wanted is None or (found := hash_file(path, "sha1")) == wanted:
        return None
    return f"{path.name} is not the canonical file: its sha1 is {found}, that of the published file {wanted}"


def convert_parts(
    parts: Mapping[str, TextPart],
    folder: Path,
    *,
    name: str,
    variant: str,
    end_of_line: bool,
    most_types: int | None,
    sources: dict[str, str],
    expected_types: int | None = None,
) -> TextManifest:
    """Convert any three texts to a prepared folder.

    Raises DataError for a text that is empty, is not UTF-8, or has another number of types than `expected_types`.
    """
    counts = count_words(parts["train"], end_of_line=end_of_line)
    vocabulary = choose_vocabulary(counts, end_of_line=end_of_line, most_types=most_types)
    if expected_types is not None and len(vocabulary) != expected_types:
        raise DataError(
            f"{parts['train'].name}: {len(vocabulary):,} types, but {name} has {expected_types:,};"
            " is this another text?"
        )
    written = {
        split: write_tokens(parts[split], vocabulary, folder / f"{split}.npy", end_of_line=end_of_line)
        for split in SPLITS
    }
    return _finish(folder, vocabulary, written, name=name, variant=variant, sources=sources)


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
    vocabulary = choose_vocabulary(counts, end_of_line=True, most_types=card.most_types)
    new_id = {word: number for number, word in enumerate(vocabulary)}
    unknown = new_id[UNK.encode()]
    new_ids = np.array([new_id.get(word, unknown) for word in words], np.int32)  # indexed by old id
    old_unknown = words.index(UNK.encode())
    written = {}
    for split, tokens_T in kept.items():
        column = ColumnWriter(folder / f"{split}.npy", "<i4")
        with column.file:
            column.append(new_ids[tokens_T])
            digest = column.finish()
        outside = np.count_nonzero(new_ids[tokens_T] == unknown) - np.count_nonzero(tokens_T == old_unknown)
        written[split] = (TextCounts(tokens=len(tokens_T), outside=int(outside)), digest)
    manifest = _finish(
        folder,
        vocabulary,
        written,
        name=card.name,
        variant=f"{base.variant}-first-lines",
        sources={base.name: base.checksum},
    )
    return _with_notes(card, manifest)


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
    *,
    name: str,
    variant: str,
    sources: dict[str, str],
) -> TextManifest:
    text = b"".join(word + b"\n" for word in vocabulary)
    (folder / VOCABULARY).write_bytes(text)
    digests = [digest for _, digest in written.values()]
    return TextManifest(
        name=name,
        variant=variant,
        num_classes=len(vocabulary),
        train=written["train"][0],
        valid=written["valid"][0],
        test=written["test"][0],
        checksum=combine(hashlib.sha256(text).hexdigest(), *digests),
        sources=sources,
        notes=[],
    )


def _with_notes(card: TextCard, manifest: TextManifest) -> TextManifest:
    """Return the manifest with a note for every count that differs from the published one."""
    found = {
        "num_classes": manifest.num_classes,
        **{f"{split}_tokens": getattr(manifest, split).tokens for split in SPLITS},
    }
    return dataclasses.replace(manifest, notes=differences(card.name, card.expected, found))
