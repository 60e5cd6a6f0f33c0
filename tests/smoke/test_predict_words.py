"""The next words of a text's lines are those of the exact softmax, whatever the model and the lengths of the lines."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from runner.config import compose
from runner.data.text.batches import TextBatch
from runner.data.text.dataset import TextDataset
from runner.data.text.words import TextPart, read_words
from runner.ranking import lines
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder, config_of

CHOICES = {
    "lstm": ["model=lstm", "model.hidden=16", "model.embedding=16", "sampler=full"],
    "transformer": ["model=transformer", "model.embedding=16", "model.heads=2", "model.feed_forward=24",
                    "sampler=uniform", "sampler.num_samples=20", "loss=absolute_softmax"],
    "adaptive": ["method=adaptive_softmax", "model.hidden=16", "model.embedding=16"],
}  # fmt: skip
LONG = " ".join(f"w{(5 * number) % 60}" for number in range(21))
LINES = ["w5 w38", LONG, "", "w7 nobody w3 w9 nowhere", "w1", " ".join(LONG.split()[:8]), "w5 w38"]

Ranked = Callable[..., tuple[int, list[list[str]], str]]


@pytest.fixture(scope="module", params=CHOICES)
def trained(
    request: pytest.FixtureRequest, text_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(tmp_path_factory.mktemp("data")))
        yield run(compose([
            *CHOICES[request.param], "dataset=text", f"dataset.path={text_folder}", "batch_size=4", "windows.length=8",
            "optimizer.lr=0.02", "epochs=2", "hardware.threads=1", f"results_dir={tmp_path_factory.mktemp('runs')}",
        ]))  # fmt: skip


def log_probabilities(folder: Path, line: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the log probability of every next word of a line, from one pass over all that the model sees of it."""
    network, task, _ = load_trained(config_of(RunFolder(folder)), RunFolder(folder))
    words = task.data.vocabulary
    ids = [words.index(word if word in words else "<unk>") for word in ["<eos>", *line.split()]]
    state = network.encoder.start(1)
    tokens_BT = np.array([ids if state else ids[-8:]], dtype=np.int32)
    batch = TextBatch(tokens_BT=tokens_BT, targets_BT=tokens_BT, starts_anew=True)
    hidden_BD = np.ascontiguousarray(network.encoder.go_on(batch, state)[0][-1:])
    if not hasattr(network.head, "layer"):
        return network.head.log_probabilities(hidden_BD)[0], words
    logits_BN = np.empty((1, len(words)), dtype=np.float32)
    network.head.layer.block_logits(hidden_BD, 0, len(words), logits_BN)
    logits_N = np.abs(logits_BN[0]) if network.head.loss.by_magnitude else logits_BN[0]
    return logits_N - np.log(np.exp(logits_N.astype(float)).sum()), words


@pytest.mark.parametrize("at_once", [2**14, 16])
def test_words_are_those_of_the_exact_softmax(
    at_once: int, trained: Path, ranked: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of different lengths are encoded together, and the long one in pieces."""
    monkeypatch.setattr(lines, "_TOKENS_AT_ONCE", at_once)
    file = tmp_path / "lines.txt.gz"
    file.write_bytes(gzip.compress(("\n".join(LINES) + "\n").encode()))
    status, found, err = ranked(trained, file, "-k", 100)
    assert status == 0
    assert err == "2 of 39 words are not in the vocabulary, and are read as <unk>\n"
    assert found[0] == ["line", "rank", "word", "score", "probability"]
    assert [int(row[0]) for row in found[1::62]] == [1, 2, 4, 5, 6, 7], "a blank line gets no words"
    for first in range(1, len(found), 62):
        rows = found[first : first + 62]
        assert [int(row[1]) for row in rows] == list(range(1, 63))
        wanted_N, words = log_probabilities(trained, LINES[int(rows[0][0]) - 1])
        scores = np.array([float(row[3]) for row in rows])
        np.testing.assert_allclose(scores, [wanted_N[words.index(row[2])] for row in rows], rtol=2e-4, atol=2e-4)
        assert (np.diff(scores) <= 0).all()
        assert np.exp(scores).sum() == pytest.approx(1, abs=1e-3)
    assert [row[1:] for row in found[1:63]] == [row[1:] for row in found[-62:]], "lines do not depend on each other"
    few = ranked(trained, file, "-k", 2)[1]
    assert few[1:] == [row for row in found[1:] if int(row[1]) <= 2]


def test_lines_wait_until_they_are_many_or_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_TOKENS_KEPT", 10)
    some = [(number, np.zeros(size, dtype=np.int32)) for number, size in enumerate([1, 2, 3, 1, 20, 4, 6, 1])]
    groups = [[number for number, _ in group] for group in lines._groups(iter(some), 3)]
    assert groups == [[0, 1, 2], [3, 4], [5, 6], [7]]


def test_lines_have_the_words_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lone CR ends no line, and blanks beyond ASCII are words or parts of words, however a line is made of them."""
    text = tmp_path / "lines.txt"
    text.write_bytes("a\rb\r\n\u00a0\n\u3000 c\n \t\r\x0b\x0c\n\x1cd\u2028\ne".encode())
    part = TextPart(paths=(text,))
    words = [word.decode() for block in read_words(part, end_of_line=True) for word in block]
    vocabulary = sorted({*words, "<unk>"})
    (tmp_path / "vocabulary.txt").write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    none = np.zeros(0, dtype=np.int32)
    data = TextDataset(
        name="", train_T=none, valid_T=none, test_T=none, num_classes=len(vocabulary),
        vocabulary_path=tmp_path / "vocabulary.txt", checksum="", variant="",
    )  # fmt: skip
    found = {
        number: [vocabulary[i] for i in ids_T]
        for number, ids_T in lines.lines_of_file(SimpleNamespace(data=data), text)
    }
    assert found == {
        1: ["<eos>", "a", "b"], 2: ["<eos>", "\u00a0"], 3: ["<eos>", "\u3000", "c"], 5: ["<eos>", "\x1cd\u2028"],
        6: ["<eos>", "e"],
    }  # fmt: skip
    assert [w for line in found.values() for w in line[1:]] == [w for w in words if w != "<eos>"]
    assert capsys.readouterr().err == "", "no word is unknown"


@pytest.mark.parametrize(("content", "message"), [
    (b"", "the file holds no word to go on from"), (b"\n  \n", "the file holds no word to go on from"),
    (b"w1\nw\xff\n", "line 2: byte 2 is not UTF-8; save the file as UTF-8"),
])  # fmt: skip
def test_files_that_are_no_text(content: bytes, message: str, trained: Path, ranked: Ranked, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(content)
    status, found, err = ranked(trained, tmp_path / "lines.txt")
    assert (status, found) == (2, [])
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
