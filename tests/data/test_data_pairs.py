"""Sentence pairs: published layouts, a user's own tables, quoting, and mistakes, each of which is one line."""

import gzip
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.data import CardConfig, Pairs, PairsDataset, PairsFileConfig
from runner.data.shared import store
from runner.data.shared.cards import load_card
from runner.data.shared.places import prepared_dir
from runner.data.shared.prepare import prepare_card
from runner.errors import ConfigError, DataError, DataNotPrepared

REPOSITORY = Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("DATA_MIRROR")  # read here, because the fixtures remove it

MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
MRPC_TRAIN = MRPC_HEADER + '1\t11\t12\tHe said "yes.\tShe said yes.\n0\t21\t22\tIt\'s 5 o"clock\tNo, it is "not"\n'
MRPC_DEV = MRPC_HEADER + "0\t31\t32\tA b\tC d\n"


def pairs_of(pairs: Pairs) -> list[tuple[str, str, int]]:
    return list(zip(pairs.first, pairs.second, pairs.labels_R.tolist(), strict=True))


def write(folder: Path, **files: str | bytes) -> Path:
    """Write files whose names have `__` for `/` and `_dot_` for the dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def own(tmp_path: Path, text: str | bytes, name: str = "mine.tsv", **options: object) -> PairsDataset:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return PairsFileConfig(path=str(path), **options).build()  # type: ignore[arg-type]


# ---- published layouts ----


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "byte-order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("folder", ["mrpc", "mrpc/MRPC"])
def test_mrpc_in_the_layout_of_glue(folder: str, start: str, end: str, tmp_path: Path) -> None:
    for name, text in (("train", MRPC_TRAIN), ("dev", MRPC_DEV)):
        path = tmp_path / folder / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((start + text).replace("\n", end).encode())
    manifest = prepare_card("mrpc", given=tmp_path)
    dataset = CardConfig(name="mrpc", valid_share=0.1).build()
    assert isinstance(dataset, PairsDataset)
    # A quotation mark is a character: a reader of quotes would join the two lines of the training file.
    assert pairs_of(dataset.train) == [
        ('He said "yes.', "She said yes.", 1),
        ("It's 5 o\"clock", 'No, it is "not"', 0),
    ]
    assert pairs_of(dataset.test) == [("A b", "C d", 0)]
    assert (dataset.name, dataset.num_classes, dataset.class_names) == ("mrpc", 2, ("not_equivalent", "equivalent"))
    assert dataset.variant == manifest.variant == "glue-train-dev"
    assert manifest.in_words() == "2 / 1 pairs, 2 classes"
    assert manifest.notes == [
        "num_train is 2, the card expects 3668", "num_test is 1, the card expects 408",
    ]  # fmt: skip
    assert dataset.train.labels_R.dtype == np.int32
    assert not dataset.train.labels_R.flags.writeable
    assert dataset.train.num_pairs == 2


def test_mrpc_by_the_ids_of_its_dev_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SentEval's file has both splits. The published checksums are those of other files."""
    monkeypatch.setattr("runner.data.shared.prepare.checksum_problem", lambda path, file: None)
    lines = "1\t11\t12\ta\tb\n0\t12\t11\tc\td\n1\t31\t32\te\tf\n"
    given = write(
        tmp_path, msr_paraphrase_train_dot_txt="\ufeff" + MRPC_HEADER + lines, mrpc_dev_ids_dot_tsv="12\t11\n"
    )
    manifest = prepare_card("mrpc", given=given)
    dataset = CardConfig(name="mrpc", valid_share=0.1).build()
    assert isinstance(dataset, PairsDataset)
    assert manifest.variant == "senteval-train-by-glue-dev-ids"
    assert pairs_of(dataset.train) == [("a", "b", 1), ("e", "f", 1)]
    assert pairs_of(dataset.test) == [("c", "d", 0)]


@pytest.mark.parametrize(("ids", "says"), [
    ("12\t11\n99\t98\n", r"mrpc_dev_ids\.tsv: line 2: .*msr_paraphrase_train\.txt has no pair with the ids 99 98"),
    ("12\t11\n12\t11\n", "line 2: the ids of line 1 again"),
    ("12 11\n", "line 1: expected 2 tab-separated ids, found '12 11'"),
    ("11\t12\n12\t11\n", "lists every pair"),
    ("\n", "the file is empty"),
])  # fmt: skip
def test_mistakes_in_the_ids(ids: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.data.shared.prepare.checksum_problem", lambda path, file: None)
    given = write(
        tmp_path,
        msr_paraphrase_train_dot_txt=MRPC_HEADER + "1\t11\t12\ta\tb\n0\t12\t11\tc\td\n",
        mrpc_dev_ids_dot_tsv=ids,
    )
    with pytest.raises(DataError, match=says):
        prepare_card("mrpc", given=given)
    assert not prepared_dir("mrpc").exists()


def test_a_published_file_of_another_content_is_refused(tmp_path: Path) -> None:
    given = write(tmp_path, msr_paraphrase_train_dot_txt=MRPC_HEADER, mrpc_dev_ids_dot_tsv="12\t11\n")
    with pytest.raises(DataError, match=r"msr_paraphrase_train\.txt: .*(sha256|md5)"):
        prepare_card("mrpc", given=given)


RTE = "index\tsentence1\tsentence2\tlabel\n0\tA man\tA cat\tnot_entailment\n1\tB\tC\tentailment\n"


def test_rte_from_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.data.shared.prepare.checksum_problem", lambda path, file: None)
    with zipfile.ZipFile(tmp_path / "RTE.zip", "w") as archive:
        archive.writestr("RTE/train.tsv", RTE)
        archive.writestr("RTE/dev.tsv", RTE.replace("A man", "One man"))
        archive.writestr("RTE/test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    prepare_card("rte", given=tmp_path)
    dataset = CardConfig(name="rte", valid_share=0.2).build()
    assert isinstance(dataset, PairsDataset)
    assert pairs_of(dataset.train) == [("A man", "A cat", 0), ("B", "C", 1)]
    assert dataset.test.first == ("One man", "B")
    assert dataset.class_names == ("not_entailment", "entailment")


def test_a_label_that_the_card_does_not_know(tmp_path: Path) -> None:
    write(tmp_path, rte__train_dot_tsv=RTE, rte__dev_dot_tsv=RTE + "2\ta\tb\tneutral\n")
    with pytest.raises(DataError, match=r"dev\.tsv: line 4: label 'neutral' is not one of not_entailment, entailment"):
        prepare_card("rte", given=tmp_path)
    assert not prepared_dir("rte").exists(), "nothing half-written remains"


def test_files_of_another_set(tmp_path: Path) -> None:
    write(tmp_path, rte__train_dot_tsv=MRPC_TRAIN, rte__dev_dot_tsv=MRPC_DEV)
    with pytest.raises(DataError, match=r"train\.tsv: line 1: no column named 'sentence1'; the header has Quality, #1"):
        prepare_card("rte", given=tmp_path)


def test_a_card_that_is_not_prepared() -> None:
    with pytest.raises(DataNotPrepared, match=r"mrpc is not prepared: run `python scripts/prepare_dataset\.py mrpc`"):
        CardConfig(name="mrpc", valid_share=0.1).build()


@pytest.mark.parametrize(("share", "name", "says"), [
    (0.0, "mrpc", "valid_share.*a share above 0"),
    (0.6, "mrpc", r"valid_share must lie in \[0, 0.5\]"),
    (0.1, "ptb", "valid_share.*leave it at 0"),
])  # fmt: skip
def test_who_holds_validation_pairs_out(share: float, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        CardConfig(name=name, valid_share=share)


PAIRS_CARD = """
family: pairs
name: {name}
title: Toy
description: A toy.
licence: none
redistribute: true
citation: none
expected: {{num_classes: 2, num_train: 2, num_test: 1}}
counts_source: this test
labels: ["0", "1"]
class_names: [never, always]
"""
PAIRS_LAYOUT = "layouts:\n  - {name: toy, train: a.tsv, test: b.tsv, first: x, second: y, label: z}\n"


@pytest.mark.parametrize(("old", "new", "says"), [
    ('labels: ["0", "1"]', 'labels: ["0", "0"]', "labels: must be 2 different labels"),
    ('labels: ["0", "1"]', "labels: [0, 1]", r"labels\[0\]: must be str"),
    ("[never, always]", "[never]", "class_names: must be as many as labels"),
    (", test: b.tsv", "", "give either train and test, or data, test_ids and id_columns"),
    (", test: b.tsv", ", test: b.tsv, id_columns: [i]", "give either train and test, or data"),
    ("label: z", "labels: z", "unknown key 'labels'"),
    ("num_classes: 2, ", "", "num_classes"),
    (PAIRS_LAYOUT, "", "layouts"),
])  # fmt: skip
def test_mistakes_in_a_card_are_one_line(make_card: Callable[..., Path], old: str, new: str, says: str) -> None:
    path = make_card(PAIRS_LAYOUT, head=PAIRS_CARD) / "card.yaml"
    assert load_card("toy").size.unit == "pairs"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    load_card.cache_clear()
    with pytest.raises(DataError, match=says) as caught:
        load_card("toy")
    assert "\n" not in str(caught.value)


# ---- a user's own tables ----

TSV = "id\tsentence1\tsentence2\tlabel\n" + "".join(f"{i}\tfirst {i}\tsecond {i}\t{i % 3}\n" for i in range(20))


def test_own_table(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = own(tmp_path, TSV, name="mine.tsv", test_share=0.25)
    assert (dataset.name, dataset.num_classes, dataset.class_names) == ("pairs", 3, ("0", "1", "2"))
    assert dataset.variant == "given-seed-0"
    assert (dataset.train.num_pairs, dataset.test.num_pairs) == (15, 5)
    everything = sorted([*pairs_of(dataset.train), *pairs_of(dataset.test)])
    assert everything == sorted((f"first {i}", f"second {i}", i % 3) for i in range(20)), "exact and disjoint"
    numbers = [int(first.split()[1]) for first in dataset.train.first]
    assert numbers == sorted(numbers), "in the order of the file"
    assert "preparing" in capsys.readouterr().err
    config = PairsFileConfig(path=str(tmp_path / "mine.tsv"), test_share=0.25)
    assert config.build().checksum == dataset.checksum
    assert capsys.readouterr().err == "", "prepared once"
    other = PairsFileConfig(path=str(tmp_path / "mine.tsv"), test_share=0.25, split_seed=1).build()
    assert other.test.first != dataset.test.first


def test_own_train_and_test_tables(tmp_path: Path) -> None:
    test_path = tmp_path / "test.csv"
    test_path.write_text("label,sentence2,sentence1\n2,b,a\n")
    dataset = own(tmp_path, TSV, test_path=str(test_path), name="mine.txt")
    assert dataset.variant == "given-train-test"
    assert dataset.train.num_pairs == 20
    assert pairs_of(dataset.test) == [("a", "b", 2)]


@pytest.mark.parametrize(("suffix", "press"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_csv_has_the_usual_quoting(suffix: str, press: Callable[[bytes], bytes], tmp_path: Path) -> None:
    text = (
        "sentence1,sentence2,label\n"
        '"He said ""no"", then left.",plain,yes\n'
        '"two\nlines",  spaced   out ,no\n'
        '\n"tab\there",x,no\n'
    )
    test = "sentence1,sentence2,label\na,b,yes\n"
    (tmp_path / "t.csv").write_text(test)
    dataset = own(tmp_path, press(text.encode()), name=f"a.csv{suffix}", test_path=str(tmp_path / "t.csv"))
    assert pairs_of(dataset.train) == [
        ('He said "no", then left.', "plain", 1), ("two lines", "spaced out", 0), ("tab here", "x", 0),
    ]  # fmt: skip
    assert dataset.class_names == ("no", "yes")


def test_other_columns_and_labels_by_value(tmp_path: Path) -> None:
    text = "q\ta\tgrade\n" + "".join(f"q{i}\ta{i}\t{(10, 9, -1)[i % 3]}\n" for i in range(9))
    dataset = own(tmp_path, text, first="q", second="a", label="grade")
    assert dataset.class_names == ("-1", "9", "10")


BAD = {
    "too few columns": (TSV + "20\ta\tb\n", "line 22: 3 columns, but the header has 4$"),
    "too many columns": (TSV + "20\ta\tb\tc\t1\n", r"line 22: 5 columns, but the header has 4 \(TSV has no quoting"),
    "empty sentence": (TSV + "20\ta\t \t1\n", r"line 22: column 3 \(sentence2\) is empty"),
    "empty label": (TSV + "20\ta\tb\t\n", r"line 22: column 4 \(label\) is empty"),
    "missing column": (
        TSV.replace("sentence2", "other"),
        "line 1: no column named 'sentence2'; the header has id,",
    ),
    "double column": (TSV.replace("id\t", "label\t", 1), "line 1: 2 columns named 'label'"),
    "no pairs": ("sentence1\tsentence2\tlabel\n", "line 1: only a header, no pairs"),
    "empty": ("", "the file is empty"),
    "blank": ("\n \n", "the file is empty"),
    "one class": ("sentence1\tsentence2\tlabel\na\tb\t1\nc\td\t1\n", "column label: every label is '1'"),
    "one pair": ("sentence1\tsentence2\tlabel\na\tb\t1\n", "1 pair is too few to split"),
    "latin1": (TSV.encode() + b"20\ta\tcaf\xe9\t1\n", "line 22: column 3: byte 0xe9 is not UTF-8"),
    "zero byte": (TSV + "20\ta\0\tb\t1\n", "line 22: holds a zero byte"),
    "open quote": ('sentence1,sentence2,label\na,b,1\n"c,d,0\ne,f,1\n', "line 3: not CSV"),
    "quote inside": ('sentence1,sentence2,label\na,b,1\n"c"x,d,0\n', "line 3: not CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(case: str, tmp_path: Path, data_dir: Path) -> None:
    text, says = BAD[case]
    with pytest.raises(DataError, match=says) as caught:
        own(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "mine.tsv"))
    assert "\n" not in str(caught.value)
    assert not list(data_dir.rglob("manifest.json"))
    assert not list(data_dir.rglob("*.txt"))


def test_a_truncated_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="truncated"):
        own(tmp_path, gzip.compress(TSV.encode())[:-9], name="a.tsv.gz")


def test_lines_are_counted_through_quoted_line_ends(tmp_path: Path) -> None:
    text = 'sentence1,sentence2,label\n"a\nb\nc",d,1\n\ne,f\n'
    with pytest.raises(DataError, match=r"line 6: 2 columns, but the header has 3$"):
        own(tmp_path, text)


def test_a_test_label_that_training_lacks(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\t7\n")
    with pytest.raises(DataError, match=r"t\.tsv: line 2: label '7' is not one of 0, 1, 2"):
        own(tmp_path, TSV, test_path=str(tmp_path / "t.tsv"))


@pytest.mark.parametrize(("options", "says"), [
    ({}, r"dataset\.path: give a file of TSV or CSV with a header"),
    ({"path": "/nowhere"}, r"dataset\.path: /nowhere is not a file"),
    ({"path": __file__, "test_path": "/nowhere"}, r"dataset\.test_path: /nowhere is not a file"),
    ({"first": "label"}, "must name three different columns"),
    ({"test_path": "x", "split_seed": 3}, r"dataset\.split_seed has no effect"),
    ({"test_path": "x", "test_share": 0.3}, r"dataset\.test_share has no effect"),
    ({"test_share": 1.0}, r"dataset\.test_share must lie in"),
    ({"valid_share": 0.0}, r"dataset\.valid_share must lie in"),
    ({"name": "a/b"}, r"dataset\.name may hold only"),
])  # fmt: skip
def test_wrong_settings(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PairsFileConfig(**options).build()  # type: ignore[arg-type]


def test_damaged_preparations_are_noticed(tmp_path: Path, data_dir: Path) -> None:
    own(tmp_path, TSV)
    (path,) = data_dir.rglob("train.second.txt")
    path.write_text("only one line\n")
    with pytest.raises(DataError, match=r"train\.second\.txt is damaged"):
        PairsFileConfig(path=str(tmp_path / "mine.tsv")).build()
    path.unlink()
    with pytest.raises(DataError, match=r"second\.txt is damaged: it is missing"):
        store.load(path.parent, PairsDataset)


# ---- the real pairs, where they are at hand ----

REAL = {"mrpc": (3668, 408, 0.6838), "rte": (2490, 277, 0.5271)}  # pairs, and the share of the largest test class


@pytest.mark.parametrize("name", REAL)
def test_real_pairs(name: str) -> None:
    if MIRROR is None or not (Path(MIRROR) / name).is_dir():
        pytest.skip(f"DATA_MIRROR names no folder with {name}")
    manifest = prepare_card(name, given=Path(MIRROR))
    dataset = CardConfig(name=name, valid_share=0.1).build()
    assert isinstance(dataset, PairsDataset)
    num_train, num_test, largest = REAL[name]
    assert manifest.notes == []
    assert (dataset.train.num_pairs, dataset.test.num_pairs) == (num_train, num_test)
    assert np.bincount(dataset.test.labels_R).max() / num_test == pytest.approx(largest, abs=1e-4)
    if name == "mrpc":
        assert dataset.train.first[0].startswith('Amrozi accused his brother, whom he called "the witness"')
        assert dataset.train.labels_R[:3].tolist() == [1, 0, 1]


def test_cards_are_listed() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/prepare_dataset.py", "--list"], cwd=REPOSITORY, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert any(line.split()[:4] == ["mrpc", "3,668", "408", "pairs"] for line in done.stdout.splitlines())


def test_a_sentence_over_several_lines_is_said(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stray quotation mark at the beginning of a cell swallows rows until the next one that ends a cell."""
    rows = [f"first {n},second {n},{n % 2}" for n in range(20)]
    rows[4], rows[9] = 'first 4,"second 4,0', 'first 9,second 9",1'
    dataset = own(tmp_path, "\n".join(["sentence1,sentence2,label", *rows, ""]), name="mine.csv")
    assert dataset.train.num_pairs + dataset.test.num_pairs == 15
    says = "1 cell in quotes goes on over 6 lines, from line 6; if a quotation mark there is plain text, rows are lost"
    assert f"pairs: {tmp_path}/mine.csv: {says}" in capsys.readouterr().err
    (folder,) = (path.parent for path in data_dir.rglob("manifest.json"))
    manifest = store.read_manifest(folder)
    assert manifest is not None
    assert says in manifest.notes[0]
