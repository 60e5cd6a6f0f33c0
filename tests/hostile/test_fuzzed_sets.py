"""People's own data sets of every form, changed at random: each is opened with right numbers, or refused in one line.

What an opened set holds is checked against its own claims. Changes that keep the meaning (line ends, compression, a
byte-order mark, blank lines, another order of columns) must give the same set. `predict` reads changed files too.
The environment variable FUZZ_SETS sets the number of changes for each form.
"""

import bz2
import gzip
import io
import lzma
import os
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from runner import predict
from runner.config import compose, explain
from runner.data.configs import InteractionsConfig, PairsFileConfig, TableFileConfig, TextFilesConfig, XmcFilesConfig
from runner.errors import RunnerError
from runner.training.run import run

FEW, MANY = int(os.environ.get("FUZZ_SETS", "30")), int(os.environ.get("FUZZ_SETS", "200"))
LONG = "9" * 5000
PIECES = [
    "", " ", "\n", "\r", "\r\n", "\t", ",", ";", ":", "|", "#", '"', "'", "\0", "\x1c", "é", "\ufeff", "-1", "1e308",
    "99999999999999999999", LONG, "qid:1", "1:1", "0:1", "<eos>", "</s>", "<unk>", "1,000", "1.000,5", "a,b", "labels",
    "2020-01-01T00:00:00.123456789", "1e-999999999", "_", "\uff11", "=1+1", "inf", "user", "nan",
]  # fmt: skip
NO_TEXT = [b"\xff", b"\xff\xfe", b"\xef\xbb", b"PK\3\4", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"PAR1\0", bytes(40)]


def lines(count: int, line: Callable[[int], str], *, header: str = "") -> bytes:
    return "".join([header, *(line(number) + "\n" for number in range(count))]).encode()


def matrix(rows: int, columns: int, seed: int) -> bytes:
    file = io.BytesIO()
    sparse.save_npz(file, sparse.random_array((rows, columns), density=0.4, rng=seed, dtype=np.float32).tocsr())
    return file.getvalue()


def labels(rows: int) -> bytes:
    file = io.BytesIO()
    sparse.save_npz(file, sparse.csr_array(np.eye(4, dtype=np.float32)[np.arange(rows) % 4]))
    return file.getvalue()


def svmlight(n: int) -> str:
    return f"{n % 4} 1:{n}.5 {2 + n % 5}:0.25"


def numbers(n: int) -> str:
    return f"{n}.5,{3 * n % 7},{n % 4}"


def check_rows(data: Any) -> None:
    for rows in (data.train, data.test):
        assert rows.num_rows > 0
        assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
        assert len(rows.indices) == 0 or 0 <= rows.indices.min() <= rows.indices.max() < data.num_features
        assert 0 <= rows.labels.min() <= rows.labels.max() < data.num_classes
        assert np.isfinite(rows.values).all()
        assert (np.diff(rows.label_indptr) > 0).all()


def check_table(data: Any) -> None:
    for rows in (data.train, data.test):
        assert rows.features_RF.shape == (rows.num_rows, data.num_features)
        assert np.isfinite(rows.features_RF).all()
        assert np.isfinite(rows.response_R).all()


def check_log(data: Any) -> None:
    assert data.indptr_U1[-1] == len(data.items_E) > 0
    assert len(set(data.item_names)) == len(data.item_names) == data.num_classes
    assert all(name and name == name.strip() for name in data.item_names)
    assert np.unique(data.items_E).tolist() == list(range(data.num_classes))


def check_pairs(data: Any) -> None:
    for pairs in (data.train, data.test):
        assert len(pairs.first) == len(pairs.second) == len(pairs.labels_R)
        assert all(text and "\n" not in text for text in [*pairs.first, *pairs.second])


def check_text(data: Any) -> None:
    assert len(set(data.vocabulary)) == len(data.vocabulary) == data.num_classes
    assert {"<eos>", "<unk>"} <= set(data.vocabulary)
    assert not any(set(word) & set(" \n\r\t\0") for word in data.vocabulary)


@dataclass(frozen=True)
class Form:
    """A form of data: whole files, the one that is changed, and what an opened set must be."""

    files: dict[str, bytes]
    build: Callable[[Path], Any]
    check: Callable[[Any], None]
    columns: str = ""  # what separates them, if their order does not matter

    @property
    def changed(self) -> str:
        return next(iter(self.files))


def rows_of(suffix: str, line: Callable[[int], str], header: str = "") -> Form:
    files = {f"train.{suffix}": lines(12, line, header=header), f"test.{suffix}": lines(5, line, header=header)}
    return Form(files, lambda folder: XmcFilesConfig(path=str(folder)), check_rows)


FORMS: dict[str, Form] = {
    "svmlight rows": rows_of("svm", svmlight),
    "CSV rows": rows_of("csv", lambda n: f"{n}.5,{n % 4} 1,{3 * n % 7}", "a,labels,b\n"),
    "npz": Form(
        {"train.npz": matrix(12, 6, 0), "train_labels.npz": labels(12), "test.npz": matrix(5, 6, 1),
         "test_labels.npz": labels(5)},
        lambda folder: XmcFilesConfig(path=str(folder)), check_rows,
    ),
    "labels in npz": Form(
        {"train_labels.npz": labels(12), "train.npz": matrix(12, 6, 0), "test.npz": matrix(5, 6, 1),
         "test_labels.npz": labels(5)},
        lambda folder: XmcFilesConfig(path=str(folder)), check_rows,
    ),
    "table": Form(
        {"t.csv": lines(20, numbers, header="a,b,y\n")},
        lambda folder: TableFileConfig(path=str(folder / "t.csv"), target="y"), check_table, ",",
    ),
    "table without header": Form(
        {"t.tsv": lines(20, lambda n: numbers(n).replace(",", "\t"))},
        lambda folder: TableFileConfig(path=str(folder / "t.tsv")), check_table,
    ),
    "svmlight table": Form(
        {"t.svm": lines(20, svmlight)}, lambda folder: TableFileConfig(path=str(folder / "t.svm")), check_table
    ),
    "log": Form(
        {"log.csv": lines(30, lambda n: f"u{n % 5},i{n % 7},{n},t {n}", header="user,item,time,title\n")},
        lambda folder: InteractionsConfig(path=str(folder / "log.csv")), check_log, ",",
    ),
    "log of tabs and ISO times": Form(
        {"log.tsv": lines(30, lambda n: f"u{n % 5}\ti{n % 7}\t2020-01-01T00:00:{n:02}Z", header="user\titem\ttime\n")},
        lambda folder: InteractionsConfig(path=str(folder / "log.tsv")), check_log, "\t",
    ),
    "pairs": Form(
        {"p.tsv": lines(20, lambda n: f"a {n}\tb {n}\t{n % 2}", header="sentence1\tsentence2\tlabel\n")},
        lambda folder: PairsFileConfig(path=str(folder / "p.tsv")), check_pairs, "\t",
    ),
    "pairs in CSV": Form(
        {"p.csv": lines(20, lambda n: f'"a, {n}",b {n},{n % 2}', header="sentence1,sentence2,label\n")},
        lambda folder: PairsFileConfig(path=str(folder / "p.csv")), check_pairs,
    ),
    "text": Form(
        {"train.txt": lines(12, lambda n: f"w{n % 3} w{n % 5}"), "valid.txt": b"w1 w2\n", "test.txt": b"w2 w1\n"},
        lambda folder: TextFilesConfig(path=str(folder)), check_text,
    ),
}  # fmt: skip


def mutations(whole: bytes, count: int, *, seed: int) -> Iterator[bytes]:
    """Yield changed files: pieces that are put in, bytes that change, parts that are lost, doubled or exchanged."""
    draw = random.Random(seed)
    pieces = [*(piece.encode() for piece in PIECES), *NO_TEXT]
    for number in range(count):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 1, 2, 5])):
            at, size = draw.randrange(len(data) + 1), draw.choice([0, 0, 1, 3, 20])
            kind = draw.randrange(7)
            if kind < 3:
                data[at : at + size] = pieces[(number + draw.randrange(3)) % len(pieces)]
            elif kind == 3 and at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 4:
                del data[at : at + 4 * size]
            elif kind == 5:
                data[at:at] = data[at : at + 4 * size]
            else:
                of_lines = data.split(b"\n")
                draw.shuffle(of_lines)
                data = bytearray(b"\n".join(of_lines))
        yield bytes(data)


def cells_changed(whole: bytes, count: int, *, seed: int) -> Iterator[bytes]:
    """Yield files in which one cell, or one word, is another: what people write, so that all else is right."""
    draw = random.Random(seed)
    for number in range(count):
        text = whole.decode()
        words = [at for at in range(len(text)) if text[at].isalnum() and (at == 0 or not text[at - 1].isalnum())]
        at = draw.choice(words)
        end = next((end for end in range(at, len(text)) if not text[end].isalnum()), len(text))
        yield (text[:at] + PIECES[number % len(PIECES)] + text[end:]).encode()


def put(form: Form, folder: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in {**form.files, form.changed: content}.items():
        (folder / name).write_bytes(data)


def opened(form: Form, folder: Path) -> Any:
    """Return the set, or the one line that is said instead."""
    try:
        return form.build(folder).build()
    except RunnerError as error:
        said = explain(error)
        assert "\n" not in said
        assert len(said) < 900
        return said


several = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", str(tmp_path / "datasets"))


@pytest.mark.parametrize("count", several)
@pytest.mark.parametrize("name", FORMS)
def test_a_changed_set_is_right_or_refused(name: str, count: int, tmp_path: Path) -> None:
    form = FORMS[name]
    whole = form.files[form.changed]
    changed = list(mutations(whole, count, seed=1))
    if not form.changed.endswith(".npz"):
        changed += cells_changed(whole, count, seed=2)
    refused = 0
    for number, content in enumerate(changed):
        folder = tmp_path / f"{number}"
        put(form, folder, content)
        found = opened(form, folder)
        if isinstance(found, str):
            refused += 1
            assert str(folder) in found or found.startswith("dataset."), found
        else:
            form.check(found)
    assert refused > 1, "the changes are worth their time"


def same_meanings(form: Form) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of files that mean the same as the whole one."""
    name, whole = form.changed, form.files[form.changed]
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)):
        yield name + suffix, pack(whole)
    yield name, whole.replace(b"\n", b"\r\n")
    yield name, whole.replace(b"\n", b"\r")
    yield name, whole[:-1]
    yield name, b"\xef\xbb\xbf" + whole
    if not name.endswith(".txt"):
        yield name, whole.replace(b"\n", b"\n\n")
    if form.columns:
        rows = [line.split(form.columns)[::-1] for line in whole.decode().splitlines()]
        if not name.startswith("t."):  # the order of features is that of columns
            yield name, "".join(form.columns.join(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if not form.changed.endswith(".npz")])
def test_the_same_set_in_another_spelling(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    put(form, tmp_path / "whole", form.files[form.changed])
    checksum = opened(form, tmp_path / "whole").checksum
    for number, (file, content) in enumerate(same_meanings(form)):
        folder = tmp_path / f"{number}"
        put(form, folder, content)
        config: Any = form.build(folder)
        if file != form.changed:
            (folder / form.changed).rename(folder / file)
            if config.path.endswith(form.changed):
                config = type(config)(**{**vars(config), "path": str(folder / file)})
        assert config.build().checksum == checksum, (file, content[:80])


# ---- predict ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on tables, sequences and texts, by what `predict` reads for them."""
    place = tmp_path_factory.mktemp("trained")
    of_form = {"rows": "CSV rows", "log": "log", "text": "text"}
    words = {
        "rows": ["dataset=xmc", "sampler=full", "model.hidden=4"],
        "log": [
            "dataset=interactions",
            "model=sasrec",
            "sampler=full",
            "model.length=4",
            "model.embedding=8",
            "model.heads=1",
        ],
        "text": [
            "dataset=text",
            "model=lstm",
            "sampler=full",
            "model.hidden=4",
            "model.embedding=4",
            "windows.length=2",
        ],
    }
    runs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(place / "datasets"))
        for name, form_name in of_form.items():
            form = FORMS[form_name]
            put(form, place / name, form.files[form.changed])
            path = place / name / (form.changed if name == "log" else "")
            runs[name] = run(compose([
                *words[name], f"dataset.path={path}", "batch_size=4", "epochs=1", "hardware.threads=1",
                f"results_dir={place}",
            ]))  # fmt: skip
    return runs


NEW: dict[str, tuple[str, bytes]] = {  # the run that ranks the file, and the file
    "new.csv": ("rows", lines(6, lambda n: f"{n}.5,{n % 3}", header="b,a\n")),
    "bare.csv": ("rows", lines(6, lambda n: f"{n}.5,{n % 3}")),
    "new.svm": ("rows", lines(6, lambda n: f"{n % 4} 1:{n}.5 2:1")),
    "new.txt": ("rows", lines(6, lambda n: f"{n % 4} 0:{n}.5 1:1", header="6 2 4\n")),
    "new.vw": ("rows", lines(6, lambda n: f"{1 + n % 4} | 1:{n}.5 2:1")),
    "new.npz": ("rows", matrix(6, 2, 3)),
    "log.csv": ("log", lines(12, lambda n: f"u{n % 3},i{n % 7},{n}", header="user,item,time\n")),
    "words.txt": ("text", lines(6, lambda n: f"w{n % 3} w{n % 5}")),
}


@pytest.mark.parametrize("count", several)
@pytest.mark.parametrize("file", NEW)
def test_predict_ranks_a_changed_file_or_refuses_it(
    file: str, count: int, trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    of_run, whole = NEW[file]
    monkeypatch.setenv("DATASETS_DIR", str(trained[of_run].parents[1] / "datasets"))
    changed = [whole, *mutations(whole, count // 3, seed=3)]
    if not file.endswith(".npz"):
        changed += cells_changed(whole, count // 3, seed=4)
    for number, content in enumerate(changed):
        (tmp_path / file).write_bytes(content)
        monkeypatch.setattr("sys.argv", ["predict", str(trained[of_run]), str(tmp_path / file), "-k", "3"])
        status = predict.main()
        out, err = capsys.readouterr()
        found = [line.split("\t") for line in out.split("\n")[:-1]]
        assert "Traceback" not in err
        assert status in (0, 2)
        if status == 0:
            ranks = [line[1] for line in found[1:]]
            assert set(ranks) <= {"1", "2", "3"}
            assert all(np.isfinite(float(line[-1])) for line in found[1:])
        else:
            assert number > 0, "the whole file is ranked"
            assert err.splitlines()[-1].startswith("error: ")
            assert str(tmp_path / file) in err.splitlines()[-1]


def test_archives_in_place_of_files(tmp_path: Path) -> None:
    """A zip, under the name that a form wants, is called so."""
    for name, form in FORMS.items():
        if form.changed.endswith(".npz"):
            continue
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr(form.changed, form.files[form.changed])
        put(form, tmp_path / name, buffer.getvalue())
        assert "this is a zip archive or a spreadsheet; unpack it" in opened(form, tmp_path / name)
