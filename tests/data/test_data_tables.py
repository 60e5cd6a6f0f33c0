"""Tables of numbers are read exactly in every form, and what is wrong with one is named by line and column."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.data import RegressionDataset, TableFileConfig
from runner.data.regression.tables import read_tables
from runner.data.shared.splits import split_groups, split_rows
from runner.errors import ConfigError, DataError, RunnerError

ROWS = [[1.0, -2.5, 1e-3], [4864900.25, 0.1, 3.0], [0.0, 7.0, -1e300]]
PLAIN = "1,-2.5,1e-3\n4864900.25,.1,3.\n0,7,-1E300\n"


def values(path: Path) -> list[list[float]]:
    return read_tables([path])[0].values_RC.tolist()


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---- what is read ----


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (PLAIN, None),
        ("a,b,y\n" + PLAIN, ("a", "b", "y")),
        (PLAIN.replace(",", ";"), None),
        (PLAIN.replace(",", "\t"), None),
        (PLAIN.replace(",", "  "), None),
        ("  " + PLAIN.replace(",", " \t").replace("\n", "  \n  "), None),
        ("a b y\n" + PLAIN.replace(",", " "), ("a", "b", "y")),
        ("\ufeffa;b;y\r\n" + PLAIN.replace(",", ";").replace("\n", "\r\n"), ("a", "b", "y")),
        ("\n" + PLAIN.replace("\n", "\n\n"), None),
        ("\n\na,b,y\n" + PLAIN, ("a", "b", "y")),
        (PLAIN.removesuffix("\n"), None),
        (PLAIN.replace(",", " , "), None),
        ('"first, of two","b","y"\n"1","-2.5","1e-3"\n' + PLAIN.split("\n", 1)[1], ("first, of two", "b", "y")),
        ("größe,b,y\n" + PLAIN, ("größe", "b", "y")),
    ],
)
def test_csv_is_recognised(tmp_path: Path, text: str, names: tuple[str, ...] | None) -> None:
    table = read_tables([write(tmp_path / "t.csv", text)])[0]
    assert table.values_RC.tolist() == ROWS
    assert table.values_RC.dtype == np.float64
    assert table.names == names


def test_a_semicolon_separates_before_a_comma(tmp_path: Path) -> None:
    """A decimal comma is not taken for a separator: the message says what to do about it."""
    with pytest.raises(DataError, match=r"line 1: column 1: '1,5' is not a number; write a decimal point"):
        values(write(tmp_path / "t.csv", "1,5;2\n3,5;4\n"))


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), ("", bytes)]
)
def test_compressed_tables(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    assert values(write(tmp_path / f"t.csv{suffix}", compress(("a,b,y\n" + PLAIN).encode()))) == ROWS
    labels = write(tmp_path / f"t{suffix}", compress(b"2001 1:0.5 3:2\n"))
    assert values(labels) == [[0.5, 0.0, 2.0, 2001.0]]


def test_numbers_are_read_to_the_last_bit(tmp_path: Path) -> None:
    """What repr() writes is read back exactly, by Python's own conversion as judge."""
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((500, 7)) * 10.0 ** rng.integers(-200, 200, (500, 7))
    text = "\n".join(",".join(repr(float(value)) for value in row) for row in expected)
    assert np.array_equal(read_tables([write(tmp_path / "t.csv", text)])[0].values_RC, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 1:2 3:4\n-1.5e1 2:.5\n", [[2, 0, 4, 1], [0, 0.5, 0, -15]]),
        ("1 0:2 2:4\n3 1:5\n", [[2, 0, 4, 1], [0, 5, 0, 3]]),
        ("# made by hand\n1 2:3 # a comment\n2\n", [[0, 3, 1], [0, 0, 2]]),
        ("+1\t1:1\n\n0 1:0\n", [[1, 1], [0, 0]]),
    ],
)
def test_svmlight(tmp_path: Path, text: str, expected: list[list[float]]) -> None:
    """Indices begin at 1, or at 0 if a 0 occurs; the label comes last; what is not named is 0."""
    assert values(write(tmp_path / "t.txt", text)) == expected


def test_svmlight_files_share_their_indices(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a", "1 1:2\n"), write(tmp_path / "b", "2 4:3\n3 1:1\n")
    shapes = [table.values_RC.tolist() for table in read_tables([one, other])]
    assert shapes == [[[2, 0, 0, 0, 1]], [[0, 0, 0, 3, 2], [1, 0, 0, 0, 3]]]
    write(other, "2 0:3\n")
    assert [table.values_RC.tolist() for table in read_tables([one, other])] == [[[0, 2, 1]], [[3, 0, 2]]]


# ---- what is refused ----

HEADED = "a,b,y\n1,2,3\n"
FAULTS: dict[str, tuple[str | bytes, str]] = {
    "text": (
        HEADED + "4,x,6\n",
        r"line 3: column 2 \(b\): 'x' is not a number; columns of text and categories are not",
    ),
    "text without header": ("1,2\n3,red\n", "line 2: column 2: 'red' is not a number"),
    "blank lines count": ("a,b\n\n1,2\n\n3,?x\n", r"line 5: column 2 \(b\): '\?x' is not a number"),
    "empty": (HEADED + "4,5,6\n7,,9\n", r"line 4: column 2 \(b\): the cell is empty"),
    "empty first row": ("1,,3\n4,5,6\n", "line 1: column 2: the cell is empty"),
    "nan": (HEADED + "nan,5,6\n", r"line 3: column 1 \(a\): 'nan' is not a finite number"),
    "NA": (HEADED + "4,5, NA\n", r"line 3: column 3 \(y\): 'NA' is not a finite number"),
    "question mark": (HEADED + "4,?,6\n", r"line 3: column 2 \(b\): '\?' is not a finite number"),
    "inf": (HEADED + "4,-inf,6\n", r"line 3: column 2 \(b\): '-inf' is not a finite number"),
    "too large": (HEADED + "4,1e999,6\n", r"line 3: column 2 \(b\): '1e999' is too large"),
    "few": (HEADED + "4,5\n", r"line 3: column 3 \(y\) is missing: 2 columns, but line 1 has 3"),
    "many": (HEADED + "4,5,6,7\n", "line 3: column 4 is one too many: 4 columns, but line 1 has 3"),
    "header too short": ("a,b\n1,2,3\n4,5,6\n", "line 2: column 3 is one too many: 3 columns, but line 1 has 2"),
    "many without header": ("1 2\n3 4\n5 6 7\n", "line 3: column 3 is one too many: 3 columns, but line 1 has 2"),
    "a blank that float() refuses": (HEADED + "4,\x1c1,6\n", r"column 2 \(b\): '\\x1c1' is not a number"),
    "underscore": (HEADED + "4,1_000,6\n", r"column 2 \(b\): '1_000' is not a number"),
    "header alone": ("a,b\n", "line 1 is a header, but no rows follow"),
    "numbers from 0": ("0,1,2,3\n1.5,2,3,4\n", "line 1: 0 to 3 in order may be a header or a row"),
    "numbers from 1": ("\n1;2;3\n1.5;2;3\n", "line 2: 1 to 3 in order may be a header or a row"),
    "numbers of tabs": ("0\t1\n1.5\t2\n", "line 1: 0 to 1 in order may be a header or a row"),
    "numbers beside row numbers": (",0,1,2\n0,5.5,6,7\n", "line 1: column 1 has no name, and 0 to 2 in order name the"),
    "thousands": ('a,b\n5,"91,498"\n', r"line 2: column 2 \(b\): '91,498' is not a number; its comma separates thou"),
    "millions": (
        'a,b\n5,"-91,498,000.5"\n',
        "'-91,498,000.5' is not a number; its commas separate thousands: leave them",
    ),
    "thousands in row one": ('"1,200,300",5.5\n3,4\n', "line 1: column 1: '1,200,300' is not a number; its commas sep"),
    "decimal comma in quotes": (
        'a,b\n5,"91,4980"\n',
        "'91,4980' is not a number; write a decimal point instead of the",
    ),
    "thousands or decimals": ("a;b\n5;91,498\n", "'91,498' is not a number; leave its comma out if it separates thou"),
    "decimal comma below one": (
        "a;b\n5;0,498\n",
        "'0,498' is not a number; write a decimal point instead of the comma",
    ),
    "points and comma": ("a;b\n5;1.234,56\n", "its points separate thousands: leave them out, and write a decimal poi"),
    "points": ("a;b\n5;1.234.567\n", "'1.234.567' is not a number; its points separate thousands: leave them out$"),
    "blanks": ("a;b\n5;1 234,5\n", "'1 234,5' is not a number; digits must not be in groups: leave out what separates"),
    "apostrophes": ("a;b\n5;1'234\n", "digits must not be in groups"),
    "per cent": ("a,b\n5,12.5%\n", "'12.5%' is not a number; write the number alone, without a unit"),
    "currency": ("a,b\n5,$12\n", "'\\$12' is not a number; write the number alone, without a unit"),
    "qid": ("3 qid:1 1:2\n", "line 1: this is svmlight text with a qid, which is not read: .*; leave qid:1 out"),
    "qid later": ("3 1:2\n2 qid:7 1:3\n", "line 2: this is svmlight text with a qid"),
    "several labels": (
        "1,2 1:2 3:4\n",
        "line 1: this is svmlight text with several labels, 1,2, but a table of numbers",
    ),
    "empty file": ("", "the file is empty"),
    "blank file": ("\n \n", "the file is empty"),
    "one column": ("y\n1\n2\n", "line 1: only one column"),
    "half a header": ("a,2,y\n1,2,3\n", r"line 1: column 1: 'a' beside numbers is neither a header nor a row"),
    "text in row one": ("1,red,3\n4,blue,5\n", "line 1: column 2: 'red' beside numbers"),
    "row numbers": (",a,y\n0,1,2\n1,3,4\n", "line 1: column 1 has no name; name it, or remove it if it only counts"),
    "same name": ("a,b,a\n1,2,3\n", "line 1: columns 1 and 3 are both called 'a'"),
    "not UTF-8": (b"a,b\n1,2\n3,4\xb0\n", "line 3: byte 4 is not UTF-8"),
    "not UTF-8 header": ("größe,b\n1,2\n".encode("latin-1"), "line 1: byte 3 is not UTF-8"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), "line 1: this is UTF-16; convert it, for example with `iconv -f utf-16"),
    "svmlight label": ("1 1:2\nx 1:2\n", "line 2: label 'x' is not a number"),
    "svmlight nan label": ("1 1:2\nnan 1:2\n", "line 2: label 'nan' is not a finite number"),
    "svmlight pair": ("1 1:2\n1 1:2 3\n", "line 2: entry 3: '3' is not a pair index:value"),
    "svmlight value": ("1 1:2\n1 1:a\n", r"line 2: entry 2 \(index 1\): 'a' is not a number"),
    "svmlight inf": ("1 1:2\n1 1:2 2:inf\n", r"line 2: entry 3 \(index 2\): 'inf' is not a finite number"),
    "svmlight order": ("1 1:2\n1 3:1 2:1\n", "line 2: entry 3: index 2 after 3; indices must ascend"),
    "svmlight twice": ("1 1:2\n1 3:1 3:1\n", "line 2: entry 3: index 3 after 3"),
    "svmlight long index": ("1 1:2\n1 " + "9" * 5000 + ":1\n", "line 2: entry 2: index 9{40}... is too large"),
    "svmlight index beyond 32 bits": ("1 1:2\n1 99999999999:1\n", "t.csv: "),
    "number of 5,000 digits": (
        "a,b\n1," + "9" * 5000 + "\n",
        "line 2: column 2 .*'9{40}' is too large for a number of 64",
    ),
    "svmlight negative": ("1 1:2\n1 -3:1\n", "line 2: entry 2: '-3:1' is not a pair"),
    "svmlight too wide": ("1 1:2\n1 2000000000:1\n", "2 rows with indices up to 2,000,000,000 make a dense table of"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_one_line_with_line_and_column(tmp_path: Path, fault: str) -> None:
    text, message = FAULTS[fault]
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(DataError, match=message) as caught:
        read_tables([path])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(("text", "doubtful"), [
    ("2001,2002,2003\n0.5,1.5,2\n3,4.5,1e-3\n", True),
    ("5,2\n0.5,1\n", True),
    ("5,2\n0.5,1\n3,4\n", False),
    ("5,2.0\n0.5,1\n", False),
    ("5,2\n3,4\n", False),
    ("5,2\n", False),
    ("a,b\n5,2\n0.5,1\n", False),
])  # fmt: skip
def test_a_first_row_of_whole_numbers_above_decimals_is_said(
    text: str, doubtful: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], data_dir: Path
) -> None:
    path = write(tmp_path / "t.csv", text)
    (table,) = read_tables([path])
    assert len(table.values_RC) == text.count("\n") - text.startswith("a")
    says = f"{path}: line 1: all its numbers are whole, unlike those of the lines below; it is read as a row"
    assert (table.form.doubt or "").startswith(says) is doubtful
    if len(table.values_RC) >= 3:
        TableFileConfig(path=str(path)).build()
        assert (f"regression: {says}" in capsys.readouterr().err) is doubtful


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_truncated_and_damaged_compression(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    suffix = {gzip: ".gz", lzma: ".xz", bz2: ".bz2"}[__import__(compress.__module__.lstrip("_"))]
    rng = np.random.default_rng(0)
    text = "\n".join(",".join(map(repr, row)) for row in rng.random((2000, 3)).tolist())
    packed = compress(text.encode())
    for name, data in (("cut", packed[: len(packed) // 2]), ("bad", packed[:900] + b"\0" * 200 + packed[1100:])):
        path = write(tmp_path / f"{name}.csv{suffix}", data)
        with pytest.raises(DataError, match=r"the compressed file is (truncated|damaged)|cannot be read") as caught:
            read_tables([path])
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("a,b\n1,2\n", "a,c\n1,2\n", "test: line 1: column 2 is called 'c', but 'b' in .*train"),
        ("a,b\n1,2\n", "b,a\n1,2\n", "test: line 1: column 1 is called 'b', but 'a' in .*train"),
        ("a,b\n1,2\n", "a,b,c\n1,2,3\n", "test: line 1: 3 columns, but .*train has 2"),
        ("1,2\n", "1,2,3\n", "test: line 1: 3 columns, but .*train has 2"),
        ("a,b\n1,2\n", "1,2\n", "test: line 1: .*test has no header, but .*train has one"),
        ("1,2\n", "\na,b\n1,2\n", "test: line 2: .*train has no header, but .*test has one"),
        ("1,2\n", "1 1:2\n", "test: line 1: the file is svmlight text, but .*train is a table with separators"),
    ],
)
def test_two_files_must_have_the_same_columns(tmp_path: Path, train: str, test: str, message: str) -> None:
    paths = [write(tmp_path / "train", train), write(tmp_path / "test", test)]
    with pytest.raises(DataError, match=message) as caught:
        read_tables(paths)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_fault_at_the_end_of_a_large_table_is_found(tmp_path: Path) -> None:
    row = ",".join(["0.123456789012"] * 90)
    path = write(tmp_path / "t.csv", (row + "\n") * 100_000 + row + ",\n")
    with pytest.raises(DataError, match="line 100001: column 91 is one too many"):
        read_tables([path])


# ---- splits ----


def test_rows_are_split_exactly_and_by_seed() -> None:
    """The rule of the module, by its words: the first tenth of NumPy's permutation is the test."""
    train, test = split_rows(1000, 0.1, 7)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(1000))
    assert test.tolist() == sorted(np.random.default_rng(7).permutation(1000)[:100].tolist())
    assert (np.diff(train) > 0).all()
    assert not np.array_equal(test, split_rows(1000, 0.1, 8)[1])
    assert [len(part) for part in split_rows(4, 0.1, 0)] == [3, 1], "at least one row is for the test"


def test_groups_are_never_divided() -> None:
    group_R = np.repeat([5, 3, 11, 2, 8, 3, 11], [4, 2, 7, 1, 9, 3, 2])
    train, test = split_groups(group_R, 0.4, 0)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(group_R)))
    assert not set(group_R[train]) & set(group_R[test])
    assert len(set(group_R[test])) == 2, "two fifths of five groups, whatever their sizes"
    assert {tuple(split_groups(group_R, 0.4, seed)[1].tolist()) for seed in range(40)} > {tuple(test.tolist())}


# ---- a user's own file ----


def all_rows(dataset: RegressionDataset) -> list[list[float]]:
    """Return features and response of every row, sorted."""
    rows = []
    for part in (dataset.train, dataset.test):
        assert part.features_RF.shape == (part.num_rows, dataset.num_features)
        rows += np.column_stack([part.features_RF, part.response_R]).tolist()
    return sorted(rows)


TABLE = "a,b,y\n" + "".join(f"{i},{i * i},{-i}\n" for i in range(20))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (-1, lambda i: [i, i * i, -i]),
        ("y", lambda i: [i, i * i, -i]),
        (2, lambda i: [i, i * i, -i]),
        ("b", lambda i: [i, -i, i * i]),
        (0, lambda i: [i * i, -i, i]),
        (-3, lambda i: [i * i, -i, i]),
    ],
)
def test_own_table_with_any_target(tmp_path: Path, target: str | int, expected: Callable[[int], list[int]]) -> None:
    dataset = TableFileConfig(path=str(write(tmp_path / "t.csv", TABLE)), target=target, name="mine").build()
    assert all_rows(dataset) == sorted([float(v) for v in expected(i)] for i in range(20))
    assert (dataset.train.num_rows, dataset.test.num_rows, dataset.num_features) == (18, 2, 2)
    assert (dataset.name, dataset.variant) == ("mine", "given-seed-0")
    column = 0 if expected(1)[0] == 1 and expected(2)[0] == 2 else -1
    if column == 0:
        order = dataset.train.features_RF[:, 0]
        assert (np.diff(order) > 0).all(), "rows keep the order of the file"


def test_stored_arrays_are_float64_mapped_and_read_only(tmp_path: Path) -> None:
    dataset = TableFileConfig(path=str(write(tmp_path / "t.csv", TABLE))).build()
    for array in (dataset.train.features_RF, dataset.test.response_R):
        assert array.dtype == np.float64
        assert array.flags.c_contiguous
        assert not array.flags.writeable
        assert type(array) is np.ndarray
        assert isinstance(array.base, np.memmap)


def test_own_test_file(tmp_path: Path) -> None:
    train, test = write(tmp_path / "a.csv", "x,y\n1,2\n3,4\n5,6\n"), write(tmp_path / "b.csv", "x;y\n7;8\n")
    dataset = TableFileConfig(path=str(train), test_path=str(test)).build()
    assert dataset.train.features_RF.tolist() == [[1], [3], [5]]
    assert dataset.train.response_R.tolist() == [2, 4, 6]
    assert (dataset.test.features_RF.tolist(), dataset.test.response_R.tolist()) == ([[7]], [8])
    assert dataset.variant == "given-train-test"


def test_own_svmlight(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "".join(f"{i} 2:{i + 0.5}\n" for i in range(10)))
    dataset = TableFileConfig(path=str(path)).build()
    assert all_rows(dataset) == [[0.0, i + 0.5, i] for i in range(10)]
    with pytest.raises(ConfigError, match=r"dataset\.target: .*t\.txt is svmlight text, whose label is the target"):
        TableFileConfig(path=str(path), target=0).build()


def test_preparation_is_once_for_each_file_and_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.csv", TABLE)
    first = TableFileConfig(path=str(path)).build()
    assert "preparing" in capsys.readouterr().err
    again = TableFileConfig(path=str(path), name="other", valid_share=0.3, threshold=1.0).build()
    assert capsys.readouterr().err == "", "name, valid_share and threshold do not change what is stored"
    assert (again.name, again.checksum) == ("other", first.checksum)
    for keys in ({"split_seed": 1}, {"test_share": 0.25}, {"target": 0}):
        assert TableFileConfig(path=str(path), **keys).build().checksum != first.checksum
        assert "preparing" in capsys.readouterr().err
    write(path, TABLE.replace("19,361", "19,362"))
    os.utime(path, ns=(1, 1))
    assert TableFileConfig(path=str(path)).build().checksum != first.checksum


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (
            TABLE,
            {"target": "z"},
            r"dataset\.target: .*t\.csv has no column 'z'; valid: a, b, y, or an index from 0 to 2",
        ),
        (TABLE, {"target": 3}, r"dataset\.target: .* has no column 3; valid: a, b, y"),
        (TABLE, {"target": -4}, r"dataset\.target: .* has no column -4"),
        ("5,2\n3,4\n", {"target": "y"}, r"has no column 'y'; it has no header; valid: the indices 0 to 1, or -1 to -2"),
        ("5,2\n3,4\n", {}, r"t\.csv: 2 rows are too few: two must remain for training and validation"),
        ("x,1\n", {}, "neither a header nor a row"),
    ],
)
def test_wrong_settings_of_an_own_table(tmp_path: Path, data_dir: Path, text: str, keys: dict, message: str) -> None:
    config = TableFileConfig(path=str(write(tmp_path / "t.csv", text)), **keys)
    with pytest.raises(RunnerError, match=message) as caught:
        config.build()
    assert "\n" not in str(caught.value)
    assert not [p for p in data_dir.rglob("*") if p.is_file() and not p.name.endswith(".lock")], "nothing is left"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": None}, r"dataset\.path: give a file of CSV or svmlight text, e\.g\. dataset\.path="),
        ({"path": "/nowhere/t.csv"}, r"dataset\.path: /nowhere/t\.csv is not a file"),
        ({"path": "/"}, r"dataset\.path: / is not a file"),
        ({"path": __file__, "test_path": "/nowhere"}, r"dataset\.test_path: /nowhere is not a file"),
        ({"valid_share": 0.0}, r"dataset\.valid_share must lie in \(0, 0\.5\], got 0\.0"),
        ({"valid_share": 0.6}, r"dataset\.valid_share"),
        ({"test_share": 0.0}, r"dataset\.test_share must lie in \(0, 0\.9\]"),
        ({"test_share": float("nan")}, r"dataset\.test_share"),
        ({"split_seed": -1}, r"dataset\.split_seed"),
        ({"threshold": float("inf")}, r"dataset\.threshold must be null or finite"),
        ({"name": "my table"}, r"dataset\.name may hold only letters"),
        ({"test_path": "b", "test_share": 0.2}, r"dataset\.test_share has no effect if dataset\.test_path gives"),
        ({"test_path": "b", "split_seed": 2}, r"dataset\.split_seed has no effect if dataset\.test_path gives"),
    ],
)
def test_wrong_keys(keys: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        TableFileConfig(**keys).build()
    assert "\n" not in str(caught.value)


def test_a_constant_target_is_stored(tmp_path: Path) -> None:
    """Whether anything can be learnt from it is for the task to say."""
    dataset = TableFileConfig(path=str(write(tmp_path / "t.csv", "".join(f"{i},7\n" for i in range(10))))).build()
    assert dataset.train.response_R.tolist() == [7] * 9
