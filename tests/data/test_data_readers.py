"""Readers read each real layout, pass a round trip, and name the line of every mistake in a table of bad input."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from runner.data.rows.texts import Block, FileCounts, TextFormat, read_names, read_rows, read_split_lines
from runner.data.shared import files as readers
from runner.errors import DataError

XMC = TextFormat(layout="xmc")
LIBSVM = TextFormat(layout="libsvm", feature_start=1)
VW = TextFormat(layout="vw", label_start=1)

Row = tuple[list[int], list[tuple[int, float]]]


def read(path: Path, text: TextFormat, **options: bool) -> tuple[list[Row], FileCounts]:
    """Return all rows of a file as Python lists."""
    rows: list[Row] = []

    def sink(block: Block) -> None:
        features = np.split(np.arange(len(block.indices)), np.cumsum(block.row_sizes)[:-1])
        labels = np.split(block.labels, np.cumsum(block.label_sizes)[:-1])
        for places, row_labels in zip(features, labels, strict=True):
            pairs = [(int(block.indices[i]), float(block.values[i])) for i in places]
            if len(block.row_sizes):
                rows.append((row_labels.tolist(), pairs))

    counts = read_rows(path, text, sink, **options)
    return rows, counts


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_xmc_layout(tmp_path: Path) -> None:
    data = b"5 6 4\n0,3 0:1 5:0.25\n 1:2 2:3\n2\n3,1,3 4:1e-2 2:-1.5 4:2\n\n"
    rows, counts = read(write(tmp_path / "a.txt", data), XMC)
    assert rows == [
        ([0, 3], [(0, 1.0), (5, 0.25)]),
        ([2], []),  # labels without features are kept
        (
            [1, 3],
            [(2, -1.5), (4, float(np.float32(2.01)))],
        ),  # sorted; values of a repeated feature are added, a repeated label counts once
    ]
    assert (counts.num_features, counts.num_classes) == (6, 4)
    assert (counts.rows_read, counts.rows_without_labels, counts.rows_without_features) == (5, 2, 1)


def test_unlabelled_rows_are_kept_on_request(tmp_path: Path) -> None:
    rows, counts = read(write(tmp_path / "a.txt", b"2 3 2\n 1:1\n1 2:1\n"), XMC, keep_unlabelled=True)
    assert rows == [([], [(1, 1.0)]), ([1], [(2, 1.0)])]
    assert (counts.rows_read, counts.rows_without_labels) == (2, 1)


def test_libsvm_layout(tmp_path: Path) -> None:
    rows, counts = read(write(tmp_path / "a.svm", b"4,2 1:1 6:2\n1:5\n 2:5\n0 2:3\n\n"), LIBSVM)
    assert rows == [([2, 4], [(0, 1.0), (5, 2.0)]), ([0], [(1, 3.0)])]
    assert counts == FileCounts(
        rows_read=4, rows_without_labels=2, rows_without_features=0, num_features=6, num_classes=5
    )


COMMENTED = b"# made by a tool\n 4,2 1:1 6:2\n0 2:3 # 7:1\n1 3:1#\n  # 5 1:1\n#\n1 # no feature\n\n2 1:4"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("block", [1 << 20, 40])
def test_comments_of_svmlight_text(end: bytes, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", block)
    data = COMMENTED.replace(b"\n 4", b"\n4").replace(b"\n", end)
    rows, counts = read(write(tmp_path / "a.svm", data), LIBSVM)
    assert rows == [
        ([2, 4], [(0, 1.0), (5, 2.0)]), ([0], [(1, 3.0)]), ([1], [(2, 1.0)]), ([1], []), ([2], [(0, 4.0)]),
    ]  # fmt: skip
    assert (counts.rows_read, counts.rows_without_labels) == (5, 0)
    with pytest.raises(DataError, match="line 10: expected `feature:value`, found 'x'"):
        read(write(tmp_path / "b.svm", data + end + b"2 x # y"), LIBSVM)


def test_comments_agree_with_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix, labels = rng.random((6, 5)) * (rng.random((6, 5)) < 0.5), rng.integers(0, 3, 6)
    path = tmp_path / "a.svm"
    dump_svmlight_file(matrix, labels, str(path), zero_based=False, comment="made by\nscikit-learn # twice")
    rows, _ = read(path, LIBSVM)
    assert [label for label, _ in rows] == [[label] for label in labels.tolist()]
    dense = np.zeros_like(matrix)
    for row, (_, pairs) in enumerate(rows):
        for feature, value in pairs:
            dense[row, feature] = value
    np.testing.assert_allclose(dense, matrix, rtol=1e-6)


def test_vw_layout(tmp_path: Path) -> None:
    data = b"105033 | 0:1 7:2.5\n3 1.0 tag|words 2:1 4\n1 |\n | 1:1\n"
    rows, counts = read(write(tmp_path / "a.vw", data), VW)
    assert rows == [([105032], [(0, 1.0), (7, 2.5)]), ([2], [(2, 1.0), (4, 1.0)]), ([0], [])]
    assert (counts.num_features, counts.num_classes, counts.rows_without_labels) == (8, 105033, 1)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_compression_windows_line_ends_and_missing_last_one(tmp_path: Path, suffix: str, compress: type) -> None:
    data = b"\xef\xbb\xbf2 3 2\r\n0 1:1\r\n1 \t2:2 "
    rows, _ = read(write(tmp_path / f"a.txt{suffix}", compress(data)), XMC)
    assert rows == [([0], [(1, 1.0)]), ([1], [(2, 2.0)])]


@pytest.mark.parametrize("last", [b"", b"\r"])
def test_lines_may_all_end_in_cr(tmp_path: Path, last: bytes) -> None:
    rows, _ = read(write(tmp_path / "a.txt", b"2 3 2\r0 1:1\r1 2:2" + last), XMC)
    assert rows == [([0], [(1, 1.0)]), ([1], [(2, 2.0)])]


NO_TEXT = {
    "UTF-16": ("2 3 2\n0 1:1\n".encode("utf-16"), "UTF-16; convert it, for example with `iconv -f utf-16 -t utf-8`"),
    "UTF-16BE": (b"\xfe\xff" + "2 3 2\n".encode("utf-16-be"), "UTF-16; convert it, for example with `iconv -f utf-16 "),
    "UTF-16LE without a mark": ("2 3 2\n0 1:1\n".encode("utf-16-le"), "UTF-16 without a mark; .* `iconv -f utf-16le"),
    "UTF-16BE without a mark": ("2 3 2\n0 1:1\n".encode("utf-16-be"), "UTF-16 without a mark; .* `iconv -f utf-16be"),
    "converted": ("2 3 2\n0 1:1\n".encode("utf-16").decode("latin1").encode(), "UTF-16 that was converted as if"),
    "UTF-32": ("2 3 2\n".encode("utf-32"), "UTF-32; convert it, for example with `iconv -f utf-32 -t utf-8`"),
    "gzip": (gzip.compress(b"2 3 2\n"), "compressed by gzip; give its name the ending .gz"),
    "bzip2": (bz2.compress(b"2 3 2\n"), "compressed by bzip2; give its name the ending .bz2"),
    "xz": (lzma.compress(b"2 3 2\n"), "compressed by xz; give its name the ending .xz"),
    "zip": (b"PK\3\4\x14\0\0\0\x08\0", "a zip archive or a spreadsheet; unpack it, or save it as text"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x58", "compressed by zstd, which is not read; unpack it with `zstd -d`"),
    "Parquet": (b"PAR1\x15\x04\x15\x20", "a Parquet file; save it as text"),
    "tar": (b"train.txt".ljust(100, b"\0") + b"0" * 157 + b"ustar\0" + b"00", "a tar archive; unpack it"),
}


@pytest.mark.parametrize("name", NO_TEXT)
@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".XZ", lzma.compress)])
def test_what_is_no_text_is_called_by_its_name(name: str, suffix: str, compress: type, tmp_path: Path) -> None:
    data, message = NO_TEXT[name]
    path = write(tmp_path / f"a.txt{suffix}", compress(data))
    with pytest.raises(DataError, match=f"line 1: this is {message}") as caught:
        read(path, XMC)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"PAR1,PAR2\n1,2\n", b"BZh,b\n1,2\n", b"a\0b\n", b"Rar!\n", b"P\n"])
def test_text_that_begins_like_another_file_is_text(data: bytes) -> None:
    assert readers.no_text(data) is None


def test_zero_based_label_ids_and_big_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"1 2147483647 2147483647\n2147483646 2147483646:123456789012345678901234\n")
    rows, _ = read(path, XMC)
    assert rows == [([2147483646], [(2147483646, float(np.float32(1.2345678901234568e23)))])]


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.sets(st.integers(0, 40), max_size=6),
            st.dictionaries(st.integers(0, 99), floats, max_size=12),
        ),
        min_size=1,
        max_size=12,
    ),
    block=st.integers(5, 400),
    text=st.sampled_from([XMC, LIBSVM]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_round_trip(tmp_path: Path, rows: list, block: int, text: TextFormat, ends: str) -> None:
    """Rows that are written are read back exactly (float32), for every block size."""
    start = text.feature_start
    lines = [
        ",".join(map(str, labels)) + " " + " ".join(f"{i + start}:{v!r}" for i, v in features.items())
        for labels, features in rows
    ]
    header = [f"{len(rows)} 100 41"] if text is XMC else []
    path = write(tmp_path / "a.txt", ends.join([*header, *lines, ""]).encode())
    before, readers.BLOCK_BYTES = readers.BLOCK_BYTES, block
    try:
        found, counts = read(path, text)
    finally:
        readers.BLOCK_BYTES = before
    assert found == [(sorted(labels), sorted(features.items())) for labels, features in rows if labels]
    assert counts.rows_read == len(rows)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.decimals(-(10**6), 10**6, places=6).map(str) | st.from_regex(r"\A-?[0-9]{1,15}e-?[0-9]{1,2}\Z"))
def test_values_agree_with_python(tmp_path: Path, text: str) -> None:
    with np.errstate(over="ignore"):
        expected = np.float32(float(text))
    path = write(tmp_path / "a.txt", f"1 1 1\n0 0:{text}\n".encode())
    if not np.isfinite(expected):
        with pytest.raises(DataError, match="not finite"):
            read(path, XMC)
        return
    value = read(path, XMC)[0][0][1][0][1]
    assert value == pytest.approx(float(expected), rel=1.2e-7, abs=2e-45)


BAD = [
    (XMC, b"", "file is empty"),
    (XMC, b"0,1 2:1\n", "line 1: header"),
    (XMC, b"2 5\n0 1:1\n", "line 1: header"),
    (XMC, b"0 5 5\n", "line 1: the header's counts"),
    (XMC, b"1 5 99999999999\n0 1:1\n", "line 1: the header's counts"),
    (XMC, b"3 5 5\n0 1:1\n1 1:1\n", r"line 3: the file ends after 2 rows, its header promises 3"),
    (XMC, b"1 5 5\n0 1:1\n1 1:1\n", "line 3: more rows than the header promises"),
    (XMC, b"2 5 5\n0 1:1\n1 5:1\n", r"line 3: feature index outside 0\.\.4 in '5:1'"),
    (XMC, b"2 5 5\n0 1:1\n0,5 1:1\n", r"line 3: label outside 0\.\.4 in '0,5'"),
    (XMC, b"1 5 5\n99999999999999999999 1:1\n", "line 2: label outside"),
    (XMC, b"1 5 5\n0 99999999999999999999:1\n", "line 2: feature index outside"),
    (XMC, b"1 5 5\n0 -1:1\n", "line 2: expected `feature:value`, found '-1:1'"),
    (XMC, b"9" * 5000 + b" 5 5\n0 1:1\n", "line 1: header"),
    (XMC, b"1 5 5\n" + b"9" * 5000 + b" 1:1\n", "line 2: label outside"),
    (XMC, b"1 5 5\n0 1:1 # x\n", "line 2: expected `feature:value`, found '#'; xmc has no comments: leave them out"),
    (XMC, b"# x\n1 5 5\n0 1:1\n", "line 1: header `rows features labels` missing, found '# x'"),
    (LIBSVM, b"1 qid:3 1:2\n", "line 1: expected `feature:value`, found 'qid:3'; a qid is not read"),
    (LIBSVM, b"1, 2 1:2\n", "line 1: expected comma-separated label numbers, found '1,'; labels are separated by"),
    (LIBSVM, b"1 ,2 1:2\n", "line 1: expected `feature:value`, found ',2'"),
    (LIBSVM, b"1 1:2\n-1 1:2\n", "line 2: expected comma-separated label numbers, found '-1'; a label is the number"),
    (LIBSVM, b"1 1:2\n0.5 1:2\n", "line 2: .* found '0.5'; a label is the number of a class; dataset=regression reads"),
    (XMC, b"1 5 5\n0 1:nan\n", "line 2: the value is not finite"),
    (XMC, b"1 5 5\n0 1:-Inf\n", "line 2: the value is not finite"),
    (XMC, b"1 5 5\n0 1:4e38\n", "line 2: the value is not finite"),
    (XMC, b"1 5 5\n0 1:1e999999999999\n", "line 2: the value is not finite"),
    (XMC, b"1 5 5\n0 1:3e38 1:3e38\n", "line 2: the value is not finite"),
    (XMC, b"1 5 5\n0 1:\n", "line 2: the value is not a number"),
    (XMC, b"1 5 5\n0 1:1.2.3\n", "line 2: the value is not a number"),
    (XMC, b"1 5 5\n0 1:2e\n", "line 2: the value is not a number"),
    (XMC, b"1 5 5\n0 1\n", "line 2: expected `feature:value`"),
    (XMC, b"1 5 5\n0, 1:1\n", "line 2: expected comma-separated label numbers"),
    (XMC, b"1 5 5\n0;1 1:1\n", "line 2: expected comma-separated label numbers"),
    (XMC, b"1 5 5\n1:1 2:1\n", "line 2: expected comma-separated label numbers"),  # no leading space
    (
        XMC,
        b"2 5 5\n0 1:1\n\xff\xfe 1:1\n",
        r"line 3: expected comma-separated label numbers, found '\\xff\\xfe'",
    ),
    (XMC, b"2 5 5\n0 1:1\n0 \xc3\xa9:1\n", r"line 3: expected `feature:value`, found '\\xc3\\xa9:1'"),
    (XMC, b"2 5 5\n0 1:1\n0 1:1\x00\n", "line 3: the value is not a number"),
    (LIBSVM, b"\n\n", "no rows"),
    (LIBSVM, b"0 1:1\n0 0:1\n", r"line 2: feature index outside 1"),
    (VW, b"1 | 1:1\n0 | 1:1\n", "line 2: label outside 1"),
    (VW, b"1 | 1:1\n\n2 1:1\n", "line 3: no `|`"),
    (VW, b"x | 1:1\n", "line 1: expected comma-separated label numbers"),
]


@pytest.mark.parametrize(("text", "data", "message"), BAD, ids=[f"{t.layout}-{i}" for i, (t, _, _) in enumerate(BAD)])
def test_bad_input_is_one_line_with_file_and_line(tmp_path: Path, text: TextFormat, data: bytes, message: str) -> None:
    path = write(tmp_path / "bad.txt", data)
    with pytest.raises(DataError, match=message) as caught:
        read(path, text)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_name_the_line_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 64)
    lines = [b"500 5 5"] + [b"0 1:1"] * 500
    lines[437] = b"0 7:1"
    with pytest.raises(DataError, match=r"line 438: feature index"):
        read(write(tmp_path / "bad.txt", b"\n".join(lines)), XMC)


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_truncated_and_damaged_compression(tmp_path: Path, suffix: str, compress: type) -> None:
    whole = compress(b"2000 50 50\n" + b"".join(b"%d %d:0.5\n" % (i % 50, i % 49) for i in range(2000)))
    with pytest.raises(DataError, match=r"line \d+: the compressed file is truncated"):
        read(write(tmp_path / f"a.txt{suffix}", whole[: len(whole) // 2]), XMC)
    with pytest.raises(DataError, match=r"line \d+: (the compressed file is (damaged|truncated)|cannot be read)"):
        read(write(tmp_path / f"b.txt{suffix}", whole[:60] + b"x" + whole[61:]), XMC)
    with pytest.raises(
        DataError, match=rf"line 1: the name ends in {suffix}, but the file is not compressed so; if it"
    ):
        read(write(tmp_path / f"c.txt{suffix}", b"not compressed at all, but named so"), XMC)


BOUNDS_CHECKED = """
import sys
from pathlib import Path
from runner.data.rows.texts import TextFormat, read_rows
for layout, name in (("xmc", "a.txt"), ("libsvm", "a.svm"), ("vw", "a.vw")):
    blocks = []
    read_rows(Path(sys.argv[1]) / name, TextFormat(layout=layout), blocks.append)
    print([(b.labels.tolist(), b.indices.tolist()) for b in blocks])
"""


def test_scanner_stays_inside_its_arrays(tmp_path: Path) -> None:
    """With bounds checks, nothing fails on many labels out of order, missing spaces, or features without colons."""
    labels = ",".join(map(str, range(99, -1, -1)))
    write(tmp_path / "a.txt", f"2 100 100\n{labels} 3:1 2:1 3:1\n{labels}\n".encode())
    write(tmp_path / "a.svm", f"{labels}\n0:1\n5 1:1\n".encode())
    write(tmp_path / "a.vw", b"7|w 4 3 2\n8|\n")
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS_CHECKED, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    every = list(range(100))
    expected = [(every * 2, [2, 3]), ([*every, 5], [1]), ([7, 8], [2, 3, 4])]
    assert (done.stdout, done.stderr) == ("".join(f"[{pair}]\n" for pair in expected), "")


def test_missing_file_and_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "none.txt", XMC)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(readers, "LONGEST_LINE", 4096)
    with pytest.raises(DataError, match=r"line 1: longer than"):
        read(write(tmp_path / "zeros.txt", bytes(10_000)), XMC)


def test_split_files(tmp_path: Path) -> None:
    path = write(tmp_path / "trSplit.txt", b"3 1\n1 2\r\n")
    assert read_split_lines(path, 0, 3).tolist() == [2, 0]
    assert read_split_lines(path, 1, 3).tolist() == [0, 1]
    for data, column, message in [
        (b"3 1\n4 2\n", 0, r"line 2: '4' is not a line number in 1\.\.3"),
        (b"0\n", 0, "line 1: '0' is not a line number"),
        (b"1\n1\n", 0, "names a line twice"),
        (b"1\n", 1, "line 1: 1 columns, but column 2 is needed"),
        (b"1\nx\xff\n", 0, "line 2: .* is not a line number"),
        (b"", 0, "empty"),
    ]:
        with pytest.raises(DataError, match=message):
            read_split_lines(write(tmp_path / "bad.txt", data), column, 3)


def test_label_names(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.txt", "n001\tn:thing\nn002\tn:été\n".encode())
    assert read_names(path, 2) == ["n:thing", "n:été"]
    with pytest.raises(DataError, match="2 names for 3 labels"):
        read_names(path, 3)
