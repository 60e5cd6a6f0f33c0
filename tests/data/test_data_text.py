"""Texts become ids by the stated rule: texts of cards, a user's own files, first lines, Python's help topics."""

import bz2
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.data import CardConfig, PythonTopicsConfig, TextDataset, TextFilesConfig
from runner.data.shared import files as readers
from runner.data.shared import store
from runner.data.shared.cards import load_card
from runner.data.shared.places import prepared_dir
from runner.data.shared.prepare import load_card_dataset, prepare_card
from runner.data.text.dataset import EOS, UNK, TextManifest
from runner.data.text.python_topics import split_topics
from runner.data.text.words import choose_vocabulary
from runner.errors import DataError, DataNotPrepared

REPOSITORY = Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("DATA_MIRROR")  # read here, because the fixtures remove it

TEXTS = {"train": "b a b\na b <unk>\n", "valid": "a c\n", "test": "b d\n"}
# frequencies: b 3; <eos> 2, a 2; <unk> 1. Ties in byte order: <eos> before a.
WORDS = ("b", "<eos>", "a", "<unk>")
IDS = {"train": [0, 2, 0, 1, 2, 0, 3, 1], "valid": [2, 3, 1], "test": [0, 3, 1]}


def write_texts(folder: Path, texts: dict[str, str | bytes] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in {**TEXTS, **(texts or {})}.items():
        (folder / f"{split}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def streams(dataset: TextDataset) -> dict[str, list[int]]:
    return {split: getattr(dataset, f"{split}_T").tolist() for split in ("train", "valid", "test")}


def read_back(dataset: TextDataset) -> dict[str, str]:
    """Return the text of each split that the ids stand for."""
    words = dataset.vocabulary
    return {split: " ".join(words[i] for i in ids) for split, ids in streams(dataset).items()}


# ---- the rule ----


def test_own_text(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TextFilesConfig(path=str(write_texts(tmp_path / "mine")), name="mine")
    dataset = config.build()
    assert (dataset.name, dataset.variant, dataset.num_classes) == ("mine", "given-train-valid-test", 4)
    assert dataset.vocabulary == WORDS
    assert streams(dataset) == IDS
    assert dataset.vocabulary is dataset.vocabulary, "read once"
    assert "preparing" in capsys.readouterr().err
    assert config.build().checksum == dataset.checksum
    assert capsys.readouterr().err == ""
    (manifest,) = (store.read_manifest(path.parent) for path in data_dir.rglob("manifest.json"))
    assert isinstance(manifest, TextManifest)
    counts = (manifest.train, manifest.valid, manifest.test)
    assert [(split.tokens, split.outside) for split in counts] == [(8, 0), (3, 1), (3, 1)]
    assert manifest.in_words() == "8 / 3 / 3 tokens, 4 classes"
    write_texts(tmp_path / "mine", {"test": "b a\n"})
    os.utime(tmp_path / "mine" / "test.txt", ns=(1, 1))
    assert config.build().checksum != dataset.checksum


def test_arrays_are_mapped_and_typed(tmp_path: Path) -> None:
    dataset = TextFilesConfig(path=str(write_texts(tmp_path))).build()
    for tokens in (dataset.train_T, dataset.valid_T, dataset.test_T):
        assert tokens.dtype == np.int32
        assert type(tokens) is np.ndarray
        assert isinstance(tokens.base, np.memmap)
        assert not tokens.flags.writeable


def test_vocabulary_is_by_frequency_then_bytes() -> None:
    counts = Counter({b"z": 2, b"e": 2, "é".encode(): 2, b"rare": 1, b"<eos>": 2, b"often": 9})
    chosen = choose_vocabulary(counts, end_of_line=True)
    assert list(chosen) == [b"often", b"<eos>", b"e", b"z", "é".encode(), b"rare", b"<unk>"]
    assert chosen[b"<unk>"] == 0, "it has a class without having an occurrence"
    chosen = choose_vocabulary(counts, end_of_line=True, most_types=4)
    assert chosen == {b"often": 9, b"<unk>": 5, b"<eos>": 2, b"e": 2}
    assert choose_vocabulary(counts, end_of_line=True, most_types=99) == choose_vocabulary(counts, end_of_line=True)
    assert b"<eos>" not in choose_vocabulary({b"a": 1}, end_of_line=False)


def test_most_types(tmp_path: Path) -> None:
    path = str(write_texts(tmp_path / "mine", {"train": "b a b a b c\n<unk> d\n"}))
    dataset = TextFilesConfig(path=path, most_types=4).build()
    assert dataset.vocabulary == ("<unk>", "b", "<eos>", "a")  # <unk> is itself, c and d: 3 in all, as b
    assert read_back(dataset)["train"] == "b a b a b <unk> <eos> <unk> <unk> <eos>"
    assert TextFilesConfig(path=path).build().num_classes == 6, "another setting is another preparation"
    assert TextFilesConfig(path=path, most_types=1000).build().num_classes == 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\r\nb\r\n", "a <eos> b <eos>"),
        ("a\n\n b\tc \n", "a <eos> <eos> b c <eos>"),  # the end of a blank line counts too
        ("a b", "a b <eos>"),  # so is the end of a last line without LF
        ("a b ", "a b <eos>"),
        ("\ufeffa\n", "a <eos>"),  # byte-order mark
        ("a\u00a0b \u2028 c\u0085d\n", "a\u00a0b \u2028 c\u0085d <eos>"),  # only ASCII white space separates
        ("a <eos> b\n", "a <eos> b <eos>"),
        ("a\n", "a <eos>"),  # a text of one word is two tokens
    ],
)
def test_what_a_word_is(tmp_path: Path, text: str, words: str) -> None:
    dataset = TextFilesConfig(path=str(write_texts(tmp_path, {"train": text, "valid": text}))).build()
    assert read_back(dataset)["train"] == read_back(dataset)["valid"] == words
    assert set(dataset.vocabulary) == {*words.split(" "), UNK}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.lists(st.sampled_from(["a", "b", "cc", "dé", "<unk>"]), max_size=6), min_size=1, max_size=9),
    block=st.integers(3, 40),
    most_types=st.none() | st.integers(3, 6),
)
def test_any_text_by_plain_python(
    tmp_path: Path, data_dir: Path, lines: list[list[str]], block: int, most_types: int | None
) -> None:
    """For every block size, words are those of str.split, and ids are sorted by decreasing frequency."""
    words = [word for line in lines for word in [*line, EOS]]
    text = "".join(" ".join(line) + "\n" for line in lines)
    folder = tmp_path / hashlib.sha256(text.encode()).hexdigest()
    write_texts(folder, {"train": text, "valid": text})
    before, readers.BLOCK_BYTES = readers.BLOCK_BYTES, block
    try:
        if not any(lines):
            with pytest.raises(DataError, match="holds no word"):
                TextFilesConfig(path=str(folder), most_types=most_types).build()
            return
        dataset = TextFilesConfig(path=str(folder), most_types=most_types).build()
    finally:
        readers.BLOCK_BYTES = before
    kept = [word if word in dataset.vocabulary else UNK for word in words]
    assert read_back(dataset)["train"] == " ".join(kept)
    assert streams(dataset)["valid"] == streams(dataset)["train"]
    assert len(set(dataset.vocabulary)) == dataset.num_classes
    assert dataset.num_classes == min(len({*words, UNK}), most_types or 99)
    counts = np.bincount(dataset.train_T, minlength=dataset.num_classes)
    assert (np.diff(counts) <= 0).all()
    ties = [a.encode() < b.encode() for a, b in zip(dataset.vocabulary, dataset.vocabulary[1:], strict=False)]
    assert all(tie for tie, step in zip(ties, np.diff(counts), strict=True) if step == 0)


# ---- mistakes in own text ----


@pytest.mark.parametrize(
    ("split", "text", "message"),
    [
        ("train", b"", r"train\.txt: the file is empty"),
        ("valid", b"", r"valid\.txt: the file is empty"),
        ("train", b" \n\n", r"train\.txt: holds no word, only white space"),
        ("test", b"\n", r"test\.txt: holds no word"),
        ("train", "a b\nça\n".encode("latin1"), r"train\.txt: line 2: byte 0xe7 is not UTF-8; convert the file"),
        ("valid", b"a\n" * 40 + b"b \xff\n", r"valid\.txt: line 41: byte 0xff is not UTF-8"),
        ("test", b"a \xc3", r"test\.txt: line 1: byte 0xc3 is not UTF-8"),  # cut in the middle of a letter
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, split: str, text: bytes, message: str
) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 16)
    folder = write_texts(tmp_path / "mine", {split: text})
    with pytest.raises(DataError, match=message) as caught:
        TextFilesConfig(path=str(folder)).build()
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert not [p for p in data_dir.rglob("*") if p.is_file() and not p.name.endswith(".lock")]


def test_missing_file(tmp_path: Path) -> None:
    folder = write_texts(tmp_path)
    (folder / "valid.txt").unlink()
    with pytest.raises(DataError, match=r"valid\.txt: no such file \(also looked for \.xz, \.gz, \.bz2\)"):
        TextFilesConfig(path=str(folder)).build()
    (folder / "valid.txt.gz").write_bytes(gzip.compress(TEXTS["valid"].encode()))
    assert streams(TextFilesConfig(path=str(folder)).build()) == IDS


def test_damaged_prepared_text_is_named(tmp_path: Path, data_dir: Path) -> None:
    config = TextFilesConfig(path=str(write_texts(tmp_path / "mine")))
    dataset = config.build()
    folder = dataset.vocabulary_path.parent
    whole = dataset.vocabulary_path.read_bytes()
    dataset.vocabulary_path.write_text("a\n")
    with pytest.raises(DataError, match=r"vocabulary\.txt is damaged: its content has changed"):
        config.build()
    with pytest.raises(DataError, match=r"vocabulary\.txt is damaged: 1 words for 4 classes"):
        _ = dataset.vocabulary
    dataset.vocabulary_path.write_bytes(whole)
    np.save(folder / "valid.npy", np.zeros(99, np.int32))
    with pytest.raises(DataError, match=r"valid\.npy is damaged"):
        config.build()
    keys = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**keys, "family": "images"}))
    with pytest.raises(DataError, match="family 'images' is unknown"):
        config.build()


# ---- cards ----

TRAIN = "b a b\na b <unk> c\n"  # with <eos>: 9 tokens, 5 types
ID_CHECK = {"train": "b a b <eos> a b <unk> c <eos>", "valid": "a c <eos>", "test": "b <unk> <eos>"}


@pytest.mark.parametrize("place", ["own", "flat", "gz", "bz2", "zip", "tgz"])
def test_card_from_folder(make_text_card: Callable[..., Path], tmp_path: Path, data_dir: Path, place: str) -> None:
    make_text_card()
    mirror = tmp_path / "mirror"
    folder = {"own": mirror / "toy" / "Toy", "flat": mirror}.get(place, tmp_path / "packed" / "Toy")
    write_texts(folder, {"train": TRAIN})
    own = mirror / "toy"
    own.mkdir(parents=True, exist_ok=True)
    if place == "flat":
        own.rmdir()
    for path in sorted(folder.iterdir()):
        if place == "gz":
            (own / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        if place == "bz2":
            (own / f"{path.name}.bz2").write_bytes(bz2.compress(path.read_bytes()))
    if place == "zip":
        with zipfile.ZipFile(own / "any.zip", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, f"Toy/{path.name}")
    if place == "tgz":
        with tarfile.open(own / "any.tgz", "w:gz") as archive:
            archive.add(folder, "deep/Toy")
    manifest = prepare_card("toy", given=mirror)
    dataset = CardConfig(name="toy").build()
    assert isinstance(dataset, TextDataset)
    assert read_back(dataset) == ID_CHECK
    assert (dataset.name, dataset.variant, dataset.num_classes) == ("toy", "toy", 5)
    assert manifest.notes == []
    files = {"manifest.json", "verified.json", "train.npy", "valid.npy", "test.npy", "vocabulary.txt"}
    assert {path.name for path in prepared_dir("toy").iterdir()} == files
    assert not [p for p in data_dir.rglob("*") if ".tmp" in p.name]


def test_card_checks_counts_and_checksums(make_text_card: Callable[..., Path], tmp_path: Path) -> None:
    mirror = write_texts(tmp_path, {"train": TRAIN})
    make_text_card()
    with pytest.raises(DataNotPrepared, match=r"python scripts/prepare_dataset.py toy`, or .*--from DIR"):
        load_card_dataset("toy")
    write_texts(tmp_path, {"train": TRAIN + "a\n", "test": "b b b b\n"})
    notes = prepare_card("toy", given=mirror).notes
    assert notes == ["train_tokens is 11, the card expects 9", "test_tokens is 5, the card expects 3"]
    write_texts(tmp_path, {"train": TRAIN + "another\n"})
    with pytest.raises(DataError, match=r"train\.txt: 6 types, but toy has 5; is this another text\?"):
        prepare_card("toy", given=mirror, force=True)
    assert isinstance(load_card_dataset("toy"), TextDataset), "what was prepared stays"
    # A file with a published checksum is checked wherever it lies, even in an archive of any name.
    right = hashlib.md5(TRAIN.encode()).hexdigest()
    for wanted, message in ((right, None), ("0" * 32, r"train\.txt: wrong md5")):
        make_text_card(
            "layouts:\n  - {name: toy, train: Toy/train.txt, valid: Toy/valid.txt, test: Toy/test.txt}\n"
            f"sources: [{{layout: toy, files: [{{name: train.txt, urls: [], md5: '{wanted}'}}]}}]\n"
        )
        archive = tmp_path / "archives" / "toy" / "any.zip"
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w") as file:
            for split, text in {**TEXTS, "train": TRAIN}.items():
                file.writestr(f"Toy/{split}.txt", text)
        if message is None:
            prepare_card("toy", given=tmp_path / "archives", force=True)
        else:
            with pytest.raises(DataError, match=message):
                prepare_card("toy", given=tmp_path / "archives", force=True)


def test_a_file_that_is_not_the_canonical_one_is_said_to_be_another(
    make_text_card: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same sentences in another order have the same counts."""
    right = hashlib.sha1(TRAIN.encode()).hexdigest()
    make_text_card(
        "layouts:\n  - {name: toy, train: Toy/train.txt, valid: Toy/valid.txt, test: Toy/test.txt}\n"
        f"canonical: [{{name: train.txt, sha1: '{right}'}}]\n"
    )
    mirror = write_texts(tmp_path, {"train": TRAIN})
    assert prepare_card("toy", given=mirror).notes == []
    other = "".join(reversed(TRAIN.splitlines(keepends=True)))
    write_texts(tmp_path, {"train": other})
    (note,) = prepare_card("toy", given=mirror, force=True).notes
    found = hashlib.sha1(other.encode()).hexdigest()
    assert note == f"train.txt is not the canonical file: its sha1 is {found}, that of the published file {right}"
    assert f"toy: {note}" in capsys.readouterr().err


SHARDS = """
layouts:
  - {name: shards, train: training/news-*-of-3, train_files: 2, valid: heldout/h1, test: heldout/h0}
"""


def test_shards_are_read_in_order_and_all_of_them(make_text_card: Callable[..., Path], tmp_path: Path) -> None:
    make_text_card(SHARDS)
    (tmp_path / "toy" / "training").mkdir(parents=True)
    (tmp_path / "toy" / "heldout").mkdir()
    files = {"training/news-2-of-3": "a b <unk> c", "training/news-1-of-3": "b a b\n", "heldout/h0": "b d\n"}
    for name, text in {**files, "heldout/h1": "a c\n"}.items():
        (tmp_path / "toy" / name).write_text(text)
    manifest = prepare_card("toy", given=tmp_path)
    dataset = load_card_dataset("toy")
    assert isinstance(dataset, TextDataset)
    assert read_back(dataset) == ID_CHECK
    assert set(manifest.sources) == {"news-1-of-3", "news-2-of-3", "h0", "h1"}
    (tmp_path / "toy" / "training" / "news-2-of-3").unlink()
    with pytest.raises(DataError, match=r"holds no files of toy; wanted 2 files training/news-\*-of-3 and heldout/h1"):
        prepare_card("toy", given=tmp_path, force=True)


CUTS = """
end_of_line: false
most_types: 5
layouts:
  - {name: cuts, data: text8, cuts: [18, 25]}
"""


@pytest.mark.parametrize("block", [4, 7, 1 << 20])
def test_one_line_cut_by_characters(
    make_text_card: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """As in text8, there are no sentences, rare words are replaced, and a cut within a word makes two words."""
    monkeypatch.setattr(readers, "BLOCK_BYTES", block)
    make_text_card(CUTS)
    (tmp_path / "text8").write_text(" b a b a b a c d efgh a b d c")
    prepare_card("toy", given=tmp_path)
    dataset = load_card_dataset("toy")
    assert isinstance(dataset, TextDataset)
    assert dataset.vocabulary == ("a", "b", "<unk>", "c", "d")
    assert read_back(dataset) == {"train": "b a b a b a c d <unk>", "valid": "<unk> a b", "test": "d c"}
    for text, message in [("b a b a b a c d efgh a b", "no word"), (" b a b a b a c d efgh a b d", "a single word")]:
        (tmp_path / "text8").write_text(text)
        with pytest.raises(DataError, match=r"text8: bytes from 25: holds " + message):
            prepare_card("toy", given=tmp_path, force=True)


DERIVED = """
derived: {base: toy, train_lines: 1, valid_lines: 1, test_lines: 2}
"""


def test_first_lines_of_another_text(
    make_text_card: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_text_card()
    make_text_card(DERIVED, name="little")
    with pytest.raises(DataNotPrepared, match=r"little is derived from toy: toy is not prepared: run `python"):
        prepare_card("little")
    with pytest.raises(DataNotPrepared, match="after preparing toy"):
        load_card_dataset("little")
    mirror = write_texts(tmp_path, {"train": "b a b\na c <unk>\n", "test": "b <unk>\nc\na\n"})
    prepare_card("toy", given=mirror)
    capsys.readouterr()
    manifest = prepare_card("little")
    assert "num_classes is 4, the card expects 5" in capsys.readouterr().err
    little = load_card_dataset("little")
    assert isinstance(little, TextDataset)
    assert little.vocabulary == ("b", "<eos>", "a", "<unk>")
    assert read_back(little) == {"train": "b a b <eos>", "valid": "a <unk> <eos>", "test": "b <unk> <eos> <unk> <eos>"}
    assert isinstance(manifest, TextManifest)
    assert [manifest.train.outside, manifest.valid.outside, manifest.test.outside] == [0, 1, 1]
    assert manifest.variant == "toy-first-lines"
    make_text_card(DERIVED.replace("test_lines: 2", "test_lines: 4"), name="little")
    with pytest.raises(DataError, match="toy: test has 3 lines, but 4 are needed"):
        prepare_card("little", force=True)


# ---- the text that Python ships ----


def test_python_topics(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = PythonTopicsConfig().build()
    assert "preparing the help topics of python-3" in capsys.readouterr().err
    assert dataset.name == "python_topics"
    assert dataset.variant.startswith("python-3.")
    sizes = {split: len(ids) for split, ids in streams(dataset).items()}
    assert sizes["train"] > 20_000
    assert min(sizes["valid"], sizes["test"]) > 1000
    assert dataset.num_classes > 1000
    assert {EOS, UNK} <= set(dataset.vocabulary)
    assert PythonTopicsConfig().build().checksum == dataset.checksum
    assert capsys.readouterr().err == ""
    assert {p.name for p in dataset.vocabulary_path.parent.iterdir() if p.is_dir()} == set()


def test_topics_are_split_by_their_titles() -> None:
    topics = {f"t{i}": f"Word{i}, x_{i}!\n\n ****\n" for i in range(9)}
    texts = split_topics(dict(reversed(topics.items())))
    assert texts["valid"] == "word3 , x_3 !\n"
    assert texts["test"] == "word7 , x_7 !\n"
    assert texts["train"].count("\n") == 7


# ---- the real texts, where they are at hand ----

REAL = {
    "ptb": (10_000, (929_589, 73_760, 82_430), ("the", "<unk>", "<eos>", "N", "of")),
    "wikitext2": (33_278, (2_088_628, 217_646, 245_569), ("the", ",", ".", "of", "<unk>")),
}


@pytest.mark.parametrize("name", REAL)
def test_real_texts(name: str) -> None:
    if MIRROR is None or not (Path(MIRROR) / name).is_dir():
        pytest.skip(f"DATA_MIRROR names no folder with {name}")
    manifest = prepare_card(name, given=Path(MIRROR))
    dataset = CardConfig(name=name).build()
    assert isinstance(dataset, TextDataset)
    types, sizes, first = REAL[name]
    assert dataset.num_classes == types == load_card(name).size.classes
    assert (len(dataset.train_T), len(dataset.valid_T), len(dataset.test_T)) == sizes
    assert dataset.vocabulary[: len(first)] == first
    assert all("is not the canonical file" in note for note in manifest.notes), "copies in another order are common"
    assert isinstance(manifest, TextManifest)
    assert manifest.train.outside == manifest.valid.outside == manifest.test.outside == 0, "train has every type"
    if name == "ptb":
        small = prepare_card("ptb_small")
        assert small.notes == []
        little = CardConfig(name="ptb_small").build()
        assert isinstance(little, TextDataset)
        lines = (Path(MIRROR) / name / "ptb.train.txt").read_text().split("\n")[:4500]
        assert read_back(little)["train"] == " ".join(word for line in lines for word in [*line.split(), EOS])


# ---- at the command line ----


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_model_of_rows_refuses_text_before_anything_is_made(tmp_path: Path) -> None:
    done = run("-m", "runner", "dataset=ptb", "model=mlp", f"results_dir={tmp_path / 'results'}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: dataset=ptb holds text, but model=mlp reads rows; models that read text: ")
    assert not (tmp_path / "results").exists()


def test_script_lists_and_prepares_text(tmp_path: Path) -> None:
    listed = run("scripts/prepare_dataset.py", "--list")
    assert listed.returncode == 0, listed.stderr
    assert any(line.split()[:4] == ["ptb", "929,589", "82,430", "tokens"] for line in listed.stdout.splitlines())
    done = run("scripts/prepare_dataset.py", "ptb", "ptb_small", DATA_MIRROR=str(tmp_path))
    assert done.returncode == 1
    assert "error: " + str(tmp_path) + ": holds no files of ptb; wanted ptb.train.txt and" in done.stderr
    assert "error: ptb_small is derived from ptb" in done.stderr
    assert "Traceback" not in done.stderr
