"""Ends of sentences: lines end as they may, and what a text says of its ends itself is counted once, and said."""

from pathlib import Path

import pytest

from runner.data import TextDataset, TextFilesConfig
from runner.data.shared import files as readers
from runner.data.shared import store
from runner.errors import DataError

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


def ended(text: str, end: str, *, mark: str = "") -> bytes:
    return "".join(line + mark + end for line in text.splitlines()).encode()


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("end", "mark"), [("\r", ""), ("\r\n", ""), ("\n", " <eos>"), ("\r\n", " <eos> "), ("\r", " <eos>")]
)
@pytest.mark.parametrize("block", [1 << 20, 7, 1])
def test_ends_of_lines_in_any_spelling(
    end: str, mark: str, last: bool, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if end != "\r":  # the first block tells
        monkeypatch.setattr(readers, "BLOCK_BYTES", block)
    texts = {split: ended(text, end, mark=mark) for split, text in TEXTS.items()}
    if not last:
        texts = {split: text.removesuffix(end.encode()) for split, text in texts.items()}
    dataset = TextFilesConfig(path=str(write_texts(tmp_path / "mine", dict(texts)))).build()
    assert (dataset.vocabulary, streams(dataset)) == (WORDS, IDS)
    told = f"text: {tmp_path}/mine/train.txt: 2 lines end in <eos>, which counts once: it is the end of"
    assert (told in capsys.readouterr().err) is bool(mark)


@pytest.mark.parametrize(("text", "says"), [
    ("b a b <eos> a b <unk>\n", "1 <eos> within lines are ends of sentences, besides those of the lines"),
    ("<eos> b a b\n<eos> a b\n", "2 <eos> within lines are ends of sentences"),
    ("b a\rb\na b <unk>\n", "1 carriage returns within lines are read as blanks, not as ends of lines"),
    ("b a </s>\nb a b </s>\n", "every line ends in </s>, a word after which <eos> is certain"),
    ("b a [EOS]\n\nb a b [EOS]", "every line ends in [EOS], a word after which"),
])  # fmt: skip
def test_a_text_with_ends_of_its_own_is_said_to_have_them(
    text: str, says: str, tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = TextFilesConfig(path=str(write_texts(tmp_path / "mine", {"train": text}))).build()
    assert f"train.txt: {says}" in capsys.readouterr().err
    (manifest,) = (store.read_manifest(path.parent) for path in data_dir.rglob("manifest.json"))
    assert manifest is not None
    assert any(says in note for note in manifest.notes)
    if "\r" not in text:
        assert read_back(dataset)["train"].split() == " <eos> ".join([*text.removesuffix("\n").split("\n"), ""]).split()


def test_nothing_is_said_of_usual_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TextFilesConfig(path=str(write_texts(tmp_path / "mine", {"train": "a </s>\nb a </s>\nb .\nb .\n"}))).build()
    assert capsys.readouterr().err.count("\n") == 1, "only that it is prepared"


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_zero_byte_in_a_text(split: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{split}\.txt: line 2: holds a zero byte; this is not a text file"):
        TextFilesConfig(path=str(write_texts(tmp_path / "mine", {split: b"a b a b a b\na\0b\n"}))).build()
