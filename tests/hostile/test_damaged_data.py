"""Damaged prepared data are named in one line, whatever family they are of, and the remedy in that line helps."""

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import content

from runner.config import explain
from runner.data.configs import CardConfig, InteractionsConfig, PairsFileConfig, TextFilesConfig, XmcFilesConfig
from runner.data.regression.bundled import SklearnConfig
from runner.errors import DataError

Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Prepared:
    """Data sets of each family, prepared below one folder: their settings, and their folders below it."""

    root: Path
    configs: dict[str, Any]
    folders: dict[str, Path]


@pytest.fixture(scope="module")
def prepared(
    toy_folder: Path, text_folder: Path, pairs_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    place = tmp_path_factory.mktemp("damaged")
    log = place / "log.csv"
    events = [f"u{user},i{(3 * user + 5 * event) % 11},{event}" for user in range(9) for event in range(6)]
    log.write_text("user,item,time\n" + "\n".join(events) + "\n")
    configs = {
        "rows": XmcFilesConfig(path=str(toy_folder)),
        "text": TextFilesConfig(path=str(text_folder)),
        "regression": SklearnConfig(),
        "pairs": PairsFileConfig(path=str(pairs_file)),
        "sequences": InteractionsConfig(path=str(log)),
    }
    folders = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(place / "data"))
        for family, config in configs.items():
            before = set((place / "data").rglob("manifest.json"))
            config.build()
            (manifest,) = set((place / "data").rglob("manifest.json")) - before
            folders[family] = manifest.parent.relative_to(place / "data")
    return Prepared(root=place / "data", configs=configs, folders=folders)


# ---- damage to any array ----


def cut(size: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:size]) and None


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(4))


def bit(position: int) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    return damage


def unnoticed_bit(path: Path) -> None:
    """One bit of the last entry, with the file's former size and time, and no memory of a verification."""
    before = path.stat()
    bit(-4 if path.suffix == ".npy" else 0)(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (path.parent / "verified.json").unlink()


def array(change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    return lambda path: np.save(path, change(np.load(path)), allow_pickle=True)


def entry(position: int, value: float) -> Damage:
    def change(numbers: np.ndarray) -> np.ndarray:
        numbers.reshape(-1)[position] = value
        return numbers

    return array(change)


def zipped(path: Path) -> None:
    data = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", data)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def header(text: bytes) -> Damage:
    """The header says something else, in the length that it had."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        length = int.from_bytes(data[8:10], "little")
        path.write_bytes(data[:10] + text[:length].ljust(length) + data[10 + length :])

    return damage


ANY_FILE: dict[str, Damage] = {
    "empty": cut(0),
    "half": lambda path: cut(path.stat().st_size // 2)(path),
    "all but a byte": cut(-1),
    "longer": longer,
    "first bit": bit(0),
    "last bit": bit(-1),
    "unnoticed bit": unnoticed_bit,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)) and None,
    "missing": Path.unlink,
    "a folder": a_folder,
}
ANY_ARRAY: dict[str, Damage] = {
    "only a header": cut(128),
    "a bit of the header": bit(30),
    "another type": array(lambda a: a.astype(np.float16)),
    "another order of bytes": array(lambda a: a.astype(a.dtype.newbyteorder(">"))),
    "unsigned": array(lambda a: a.view(f"u{a.itemsize}")),
    "fewer": array(lambda a: a[:-1]),
    "two dimensions more": array(lambda a: a[None, None]),
    "a pickle": lambda path: path.write_bytes(pickle.dumps([1, 2])) and None,
    "a pickle in an array": array(lambda a: np.array([print], dtype=object)),
    "zipped": zipped,
    "nested header": header(b"(" * 1000),
    "header of 2^60 entries": header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (1152921504606846976,), }"),
    "header that calls": header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (exit(),), }"),
    "no header": header(b""),
    "another entry": array(lambda a: np.roll(a, 1, axis=0)),
}
IDS: dict[str, Damage] = {
    "one too large": entry(3, 10**4),
    "2^31 - 1": entry(3, 2**31 - 1),
    "negative": entry(-1, -1),
    "-2^31": entry(0, -(2**31)),
    "another valid one": array(lambda a: np.concatenate([[int(a[0] == 0)], a[1:]]).astype("<i4")),
}
OFFSETS: dict[str, Damage] = {
    "does not begin at 0": entry(0, 1),
    "descends": entry(2, 10**6),
    "negative": entry(3, -8),
    "ends too late": entry(-1, 2**40),
    "2^62": entry(1, 2**62),
}
NUMBERS: dict[str, Damage] = {
    "NaN": entry(5, float("nan")),
    "infinite": entry(5, float("inf")),
    "another value": entry(5, 0.125),
}
FILES: dict[str, dict[str, dict[str, Damage]]] = {  # what is special to each file; the two splits are alike
    "rows": {
        "train.indptr.npy": OFFSETS, "train.indices.npy": IDS, "train.values.npy": NUMBERS,
        "train.label_indptr.npy": OFFSETS, "train.labels.npy": IDS, "test.labels.npy": IDS,
    },
    "text": {"train.npy": IDS, "valid.npy": IDS, "test.npy": IDS, "vocabulary.txt": {}},
    "regression": {"train.features.npy": NUMBERS, "test.response.npy": NUMBERS},
    "pairs": {"train.labels.npy": IDS, "train.first.txt": {}, "test.second.txt": {}},
    "sequences": {"items.npy": IDS, "indptr.npy": OFFSETS, "items.txt": {}},
}  # fmt: skip


def manifest(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(path: Path) -> None:
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return damage


MANIFEST: dict[str, Damage] = {
    **{name: damage for name, damage in ANY_FILE.items() if name not in ("missing", "unnoticed bit", "last bit")},
    "a list": lambda path: path.write_text("[1]") and None,
    "nested too deep": lambda path: path.write_text("[" * 100_000) and None,
    "a number of 5,000 digits": lambda path: path.write_text('{"format_version": ' + "9" * 5000 + "}") and None,
    "no UTF-8": lambda path: path.write_bytes(b'{"name": "\xff"}') and None,
    "family is a list": manifest(lambda values: values.update(family=[1])),
    "unknown family": manifest(lambda values: values.update(family="images")),
    "a key gone": manifest(lambda values: values.pop("checksum")),
    "a key more": manifest(lambda values: values.update(more=1)),
    "checksum is a number": manifest(lambda values: values.update(checksum=7)),
    "another checksum": manifest(lambda values: values.update(checksum="0" * 64)),
    "notes are text": manifest(lambda values: values.update(notes="none")),
    "sources are a list": manifest(lambda values: values.update(sources=["a"])),
    "another variant": manifest(lambda values: values.update(variant="else")),
}
COUNTS: dict[str, dict[str, Damage]] = {
    "rows": {
        "more classes": manifest(lambda values: values.update(num_classes=10**12)),
        "fewer classes": manifest(lambda values: values.update(num_classes=1)),
        "no features": manifest(lambda values: values.update(num_features=0)),
        "classes are text": manifest(lambda values: values.update(num_classes="50")),
        "rows -1": manifest(lambda values: values["train"].update(rows=-1)),
        "rows 10^18": manifest(lambda values: values["train"].update(rows=10**18)),
        "split is a list": manifest(lambda values: values.update(train=[1])),
        "another propensity": manifest(lambda values: values.update(propensity_a=2.0)),
        "huge propensity": manifest(lambda values: values.update(propensity_a=10**400)),
    },
    "text": {"more classes": manifest(lambda values: values.update(num_classes=10**12))},
    "pairs": {
        "more classes": manifest(lambda values: values.update(num_classes=7)),
        "names are numbers": manifest(lambda values: values.update(class_names=[1, 2])),
        "other names": manifest(lambda values: values.update(class_names=["a", "b"])),
    },
    "regression": {"-1 features": manifest(lambda values: values.update(num_features=-1))},
    "sequences": {"users 2^62": manifest(lambda values: values.update(num_users=2**62))},
}
FEW = ("one too large", "descends", "another value", "unnoticed bit", "a key gone", "rows -1")


def cases() -> list[Any]:
    found = []
    for family, files in FILES.items():
        for file, special in files.items():
            damages = {**ANY_FILE, **(ANY_ARRAY if file.endswith(".npy") else {}), **special}
            found += [(family, file, name, damage) for name, damage in damages.items()]
        found += [(family, "manifest.json", name, damage) for name, damage in {**MANIFEST, **COUNTS[family]}.items()]
    return [
        pytest.param(family, file, damage, id=f"{family}-{file}-{name}", marks=[] if name in FEW else pytest.mark.slow)
        for family, file, name, damage in found
    ]


@pytest.fixture
def data(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all prepared data, with the times of their files."""
    monkeypatch.setenv("DATASETS_DIR", str(tmp_path / "data"))
    return Path(shutil.copytree(prepared.root, tmp_path / "data"))


@pytest.mark.parametrize(("family", "file", "damage"), cases())
def test_damaged_data_are_named(family: str, file: str, damage: Damage, prepared: Prepared, data: Path) -> None:
    folder, config = data / prepared.folders[family], prepared.configs[family]
    whole = config.build().checksum
    damage(folder / file)
    before = content(folder)
    with pytest.raises(DataError) as caught:
        config.build()
    said = explain(caught.value)
    assert "\n" not in str(caught.value)
    if "the files beside it do not have its checksum" in said:  # nothing remembers which of them had
        assert said.startswith(f"{folder / 'manifest.json'} is damaged: ")
        assert not (folder / "verified.json").exists()
    else:
        assert said.startswith(f"{folder / file} is damaged: "), said
    assert said.endswith(f"; delete the folder {folder}, and the same command prepares it again")
    assert content(folder) == before
    shutil.rmtree(folder)
    assert config.build().checksum == whole


NUMBERS_OF = [
    pytest.param(family, file, damage, id=f"{family}-{file}-{name}", marks=[] if name in FEW else pytest.mark.slow)
    for family, files in FILES.items()
    for file, special in files.items()
    for name, damage in {**special, "fewer": ANY_ARRAY["fewer"]}.items()
    if file.endswith(".npy") and not name.startswith("another")
]


@pytest.mark.parametrize(("family", "file", "damage"), NUMBERS_OF)
def test_numbers_that_crash_are_found_without_the_checksum(
    family: str, file: str, damage: Damage, prepared: Prepared, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, offsets and sizes are checked at every opening, even if size and time of the file tell nothing."""
    folder = data / prepared.folders[family]
    damage(folder / file)
    monkeypatch.setattr("runner.data.shared.verify._states", lambda folder: {})
    (folder / "verified.json").unlink()
    with pytest.raises(DataError) as caught:
        prepared.configs[family].build()
    assert str(caught.value).startswith(f"{folder / file} is damaged: it")


def test_a_card_says_how_it_is_prepared_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = CardConfig(name="wordnet_related")
    whole = config.build().checksum
    labels = data / "wordnet_related" / "processed" / "prepared" / "train.labels.npy"
    entry(0, 10**6)(labels)
    remedy = r"`python scripts/prepare_dataset\.py wordnet_related --force` prepares the set again"
    with pytest.raises(DataError, match=rf"train\.labels\.npy is damaged: .*; {remedy}"):
        config.build()
    from runner.data.shared.prepare import prepare_card

    assert prepare_card("wordnet_related", force=True).checksum == whole
    assert config.build().checksum == whole


@pytest.mark.parametrize("family", FILES)
def test_the_checksum_is_computed_once(
    family: str, prepared: Prepared, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is computed for a folder that an earlier version prepared, and after a change of a time, but not again."""
    folder, config = data / prepared.folders[family], prepared.configs[family]
    (folder / "verified.json").unlink()
    config.build()
    assert (folder / "verified.json").exists()
    os.utime(next(folder.glob("*.npy")))
    config.build()
    monkeypatch.setattr("runner.data.shared.verify._digest", lambda path: pytest.fail("it was verified"))
    config.build()


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"train.npy": 3}', b"\xff", b"[" * 100_000, b"{}"])
def test_a_damaged_memory_is_made_again(text: bytes, prepared: Prepared, data: Path) -> None:
    folder = data / prepared.folders["text"]
    whole = (folder / "verified.json").read_bytes()
    (folder / "verified.json").write_bytes(text)
    prepared.configs["text"].build()
    assert (folder / "verified.json").read_bytes() == whole
