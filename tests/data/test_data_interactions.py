"""A user's own log: what is read, what is repaired, and mistakes, each of which is one line."""

import bz2
import dataclasses
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.data import InteractionsConfig, SequencesDataset
from runner.data.sequences import logs
from runner.data.shared import store
from runner.errors import ConfigError, DataError

LOG = "user,item,rating,time\nu2,a,5,30\nu1,b,2,20\nu1,a,4,10\nu2,c,3,40\n"
ORDERED = [["a", "b"], ["a", "c"]]  # u1 has the first event


def own(tmp_path: Path, text: str | bytes, name: str = "mine.csv", **options: object) -> SequencesDataset:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return InteractionsConfig(path=str(path), **options).build()  # type: ignore[arg-type]


def sequences_of(dataset: SequencesDataset) -> list[list[str]]:
    names = [dataset.item_names[number] for number in dataset.items_E]
    return [names[a:b] for a, b in zip(dataset.indptr_U1[:-1], dataset.indptr_U1[1:], strict=True)]


def notes_of(data_dir: Path) -> list[str]:
    (path,) = data_dir.rglob("manifest.json")
    return json.loads(path.read_text())["notes"]


# ---- what is read ----


def test_own_log(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = own(tmp_path, LOG)
    assert sequences_of(dataset) == ORDERED
    assert dataset.item_names == ("a", "b", "c"), "in the order of their first events"
    assert (dataset.name, dataset.num_users, dataset.num_classes, dataset.variant) == ("interactions", 2, 3, "given")
    assert dataset.items_E.dtype == np.int32
    assert not dataset.items_E.flags.writeable
    assert dataset.train_end_U.tolist() == [2, 4], "two events are too few to hold any out"
    assert "preparing" in capsys.readouterr().err
    config = InteractionsConfig(path=str(tmp_path / "mine.csv"), name="shop", split="last_item")
    assert (config.build().name, config.build().checksum) == ("shop", dataset.checksum)
    assert capsys.readouterr().err == "", "prepared once: neither name nor split changes what is stored"
    assert dataclasses.replace(config, min_item=2).build().checksum != dataset.checksum
    (tmp_path / "mine.csv").write_text(LOG + "u3,a,1,50\n")
    assert config.build().num_users == 3, "a changed file is prepared again"


def test_split_is_chosen_when_the_log_is_opened(tmp_path: Path) -> None:
    text = "user,item,time\n" + "".join(f"u,i{number},{number}\n" for number in range(20))
    ratio, last = own(tmp_path, text), own(tmp_path, text, split="last_item")
    assert (ratio.train_end_U.tolist(), ratio.valid_end_U.tolist()) == ([16], [18])
    assert (last.train_end_U.tolist(), last.valid_end_U.tolist()) == ([18], [19])


@pytest.mark.parametrize("separator", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
@pytest.mark.parametrize(("suffix", "press"), [
    ("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress),
])  # fmt: skip
def test_separators_and_compression(
    separator: str, suffix: str, press: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    text = LOG.replace(",", separator)
    assert sequences_of(own(tmp_path, press(text.encode()), name=f"log.csv{suffix}")) == ORDERED


@pytest.mark.parametrize("text", [
    pytest.param("\ufeff" + LOG, id="byte-order mark"),
    pytest.param(LOG.replace("\n", "\r\n"), id="CRLF"),
    pytest.param("\n\n" + LOG.replace("\n", "\n  \n\n"), id="blank lines"),
    pytest.param(LOG.rstrip("\n"), id="no line end at the end"),
    pytest.param(LOG.replace("user,item", ' user ,"item"'), id="blanks and quotes in the header"),
    pytest.param('"user","item","rating","time"\n' + LOG.split("\n", 1)[1].replace("a", '"a"'), id="quoted"),
    pytest.param(LOG.replace("user,item", ",user,item").replace("\nu", "\n17,u"), id="a column without a name"),
    pytest.param(LOG.replace(",30", ",-3e1").replace(",20", ",-31.5").replace(",10", ", -1e2 "), id="numbers"),
])  # fmt: skip
def test_forms_of_the_same_log(text: str, tmp_path: Path) -> None:
    assert sequences_of(own(tmp_path, text)) == ORDERED


def test_other_columns_and_quoted_ids(tmp_path: Path) -> None:
    text = 'when;"who; exactly";what\n2;"Ann; B.";"say ""no"""\n1;"Ann; B.";x,y\n'
    dataset = own(tmp_path, text, user="who; exactly", item="what", time="when")
    assert sequences_of(dataset) == [["x,y", 'say "no"']]


def test_iso_times(tmp_path: Path) -> None:
    """The same instant in two zones is the same time; a time without an offset counts as UTC."""
    times = {
        "d": "2010-10-20T02:00:00+02:00",  # midnight
        "e": "2010-10-20",
        "b": "2010-10-19 23:55:27.25",
        "c": "2010-10-19T23:55:27.5Z",
        "a": "2010-10-19T18:55:27-05:00",
    }
    text = "user,item,time\n" + "".join(f"u,{item},{time}\n" for item, time in times.items())
    assert sequences_of(own(tmp_path, text)) == [["a", "b", "c", "d", "e"]]


def test_a_log_in_another_order_gives_the_same_bits(tmp_path: Path, data_dir: Path) -> None:
    draw = random.Random(0)
    rows = [f"u{draw.randrange(30)},i{draw.randrange(40)},{time}" for time in range(400)]
    files = []
    for _ in range(2):
        draw.shuffle(rows)
        dataset = own(tmp_path, "user,item,time\n" + "\n".join(rows) + "\n", min_item=5)
        files.append(
            [(dataset.items_path.parent / name).read_bytes() for name in ("items.npy", "indptr.npy", "items.txt")]
        )
    assert len(list(data_dir.rglob("manifest.json"))) == 2
    assert files[0] == files[1]


ROW = st.tuples(st.sampled_from("abc"), st.sampled_from("vwxyz"), st.integers(1, 5), st.integers(0, 6))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(ROW, min_size=1, max_size=30), min_rating=st.sampled_from([None, 3.0]), min_item=st.integers(1, 3),
    repeats=st.sampled_from(["all", "first"]),
)  # fmt: skip
def test_filters_apply_in_the_stated_order(
    rows: list[tuple[str, str, int, int]], min_rating: float | None, min_item: int, repeats: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(logs, "ROWS_AT_ONCE", 7)
    left = [(user, time, item) for user, item, rating, time in rows if min_rating is None or rating >= min_rating]
    left = list(dict.fromkeys(sorted(left, key=lambda row: row[:2])))
    if repeats == "first":
        left = [row for i, row in enumerate(left) if row[::2] not in [other[::2] for other in left[:i]]]
    left = [row for row in left if [other[2] for other in left].count(row[2]) >= min_item]
    first = {user: time for user, time, _ in reversed(left)}
    text = "user,item,rating,time\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    options = {"min_rating": min_rating, "rating": None if min_rating is None else "rating"}
    if not left:
        with pytest.raises(DataError, match="no event is left"):
            own(tmp_path, text, min_item=min_item, repeats=repeats, **options)
        return
    dataset = own(tmp_path, text, min_item=min_item, repeats=repeats, **options)
    assert sequences_of(dataset) == [
        [item for name, _, item in left if name == user] for user in sorted(first, key=lambda user: (first[user], user))
    ]


# ---- what is repaired ----


def test_blanks_around_ids(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "user,item,time\nu1,a,1\n u1,b,2\nu1 ,\ta,3\nu1,b ,4\n"
    assert sequences_of(own(tmp_path, text)) == [["a", "b", "a", "b"]]
    assert notes_of(data_dir) == ["4 ids of users or items had blanks around them, which were removed"]
    assert "4 ids" in capsys.readouterr().err


def test_exact_copies_count_once(tmp_path: Path, data_dir: Path) -> None:
    text = "user,item,time\n" + "u,a,1\nu,b,1\nu,a,1\nv,a,1\nu,a,2\nu,a,1.0\nu,b,2\n" * 2
    assert sequences_of(own(tmp_path, text)) == [["a", "b", "a", "b"], ["a"]]
    assert notes_of(data_dir) == ["9 events were copies (same user, item and time) and are left out"]


def test_users_with_one_event_are_only_trained_on(tmp_path: Path) -> None:
    dataset = own(tmp_path, "user,item,time\nu,a,1\nv,a,2\nv,b,3\nv,a,4\n")
    assert sequences_of(dataset) == [["a"], ["a", "b", "a"]]
    assert dataset.train_end_U.tolist() == [1, 2]
    assert dataset.valid_end_U.tolist() == [1, 3]


def test_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines and quoted cells fall on every place of a piece."""
    rows = [f'u{n % 5},"i{n % 7}",{n}' + "\n" * (n % 3) for n in range(200)]
    text = "user,item,time\n" + "\n".join(rows) + "\n"
    expected = sequences_of(own(tmp_path, text))
    assert [item for user in expected for item in user] == [f"i{n % 7}" for u in range(5) for n in range(u, 200, 5)]
    monkeypatch.setattr(logs, "ROWS_AT_ONCE", 3)
    assert sequences_of(own(tmp_path, text, name="again.csv")) == expected


# ---- mistakes ----

ISO = "user,item,time\nu,a,2010-10-19\n"
BAD: dict[str, tuple[str | bytes, dict, str]] = {
    "thousands": (LOG + 'u,i,3,"1,600"\n', {}, r"line 6: column 4 \(time\): '1,600' is not a number \(its comma separ"),
    "UTF-16": (LOG.encode("utf-16"), {}, "line 1: this is UTF-16; convert it, for example with `iconv -f utf-16 -t ut"),
    "missing column": (LOG.replace("item", "product"), {}, "line 1: no column named 'item'; the header has user, pro"),
    "no header": (
        LOG.split("\n", 1)[1],
        {},
        r"no column named 'user'; the header has u2, a, 5, 30 .*=COLUMN; if .* no header, .* dataset\.columns=user",
    ),
    "double column": (LOG.replace("rating", "user"), {}, "line 1: 2 columns named 'user'"),
    "missing rating": (
        LOG.replace("rating", "stars"),
        {"rating": "rating", "min_rating": 3.0},
        "line 1: no column named 'rating'; the header has user, item, stars, time",
    ),
    "word as time": (LOG + "u,a,1,later\n", {}, r"line 6: column 4 \(time\): 'later' is not a number; a time is a num"),
    "first time": (
        LOG.replace(",30", ",30th"),
        {},
        r"line 2: column 4 \(time\): '30th' is not a number; a time is a number or ISO 8601",
    ),
    "blank time": (LOG + "u,a,1, \n", {}, r"line 6: column 4 \(time\): the cell is empty"),
    "NaN time": (LOG + "u,a,1,NaN\n", {}, r"line 6: column 4 \(time\): 'NaN' is not finite"),
    "infinite time": (LOG + "u,a,1,-inf\n", {}, r"line 6: column 4 \(time\): '-inf' is not finite"),
    "huge time": (LOG + "u,a,1,1e999\n", {}, r"line 6: column 4 \(time\): '1e999' is too large"),
    "a blank that float() refuses": (LOG + "u,a,1,\x1c1\n", {}, r"line 6: column 4 \(time\): '\\x1c1' is not a number"),
    "Python's number": (LOG + "u,a,1,1_000\n", {}, r"line 6: column 4 \(time\): '1_000' is not a number"),
    "kind changes": (LOG + "u,a,1,2010-10-19\n", {}, r"line 6: column 4 \(time\): '2010-10-19' is not a number.*same"),
    "number after ISO": (ISO + "u,a,1287446400\n", {}, r"line 3: column 3 \(time\): '1287446400' is not ISO 8601, as"),
    "no such day": (ISO + "u,a,2010-02-30\n", {}, r"line 3: column 3 \(time\): '2010-02-30' is not ISO 8601"),
    "NaN rating": (
        LOG + "u,a,nan,1\n",
        {"rating": "rating", "min_rating": 3.0},
        r"line 6: column 3 \(rating\): 'nan' is not finite; min_rating needs a rating in every row",
    ),
    "blank rating": (
        LOG + "u,a,,1\n", {"rating": "rating", "min_rating": 3.0}, r"line 6: column 3 \(rating\): the cell is empty"
    ),
    "blank user": (LOG + " ,a,1,1\n", {}, r"line 6: column 1 \(user\) is empty"),
    "blank item": ("\n" + LOG + '\nu,"",1,1\n', {}, r"line 8: column 2 \(item\) is empty"),
    "id of two lines": (LOG + 'u,"a\nb",1,1\n', {}, r"line 6: column 2 \(item\): an id must not hold a line end"),
    "too few cells": (LOG + "u,a,1\n", {}, "line 6: 3 columns, but the header has 4$"),
    "too many cells": (LOG + "u,a,1,1,1\n", {}, "line 6: 5 columns, but the header has 4$"),
    "after quoted line ends": (
        'user,item,time,text\nu,a,1,"x\ny\nz"\n\nu,a,2\n', {}, "line 6: 3 columns, but the header has 4$"
    ),
    "open quote": (LOG + 'u,"a,1,1\nu,b,1,1\n', {}, "line 6: cannot be read as a table"),
    "quote inside": (LOG + 'u,"a"b,1,1\n', {}, "line 6: cannot be read as a table"),
    "empty": ("", {}, "the file is empty$"),
    "blank": ("\n \n", {}, "the file is empty$"),
    "header only": ("\nuser,item,time\n\n", {}, "line 2: only a header, no events$"),
    "latin1": (LOG.encode() + b"u,caf\xe9,1,1\n", {}, "line 6: byte 0xe9 is not UTF-8"),
    "binary": (LOG + "u,a\0,1,1\n", {}, "line 6: holds a zero byte"),
    "all rated low": (
        LOG, {"rating": "rating", "min_rating": 6.0}, "no event is left: all 4 ratings are below min_rating=6"
    ),
    "users too short": (LOG, {"min_user": 3}, "no event is left: with min_user=3 none of 4 events stays"),
    "core is empty": (LOG, {"min_user": 2, "min_item": 2}, "no event is left: with min_user=2 and min_item=2 none"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(case: str, tmp_path: Path, data_dir: Path) -> None:
    text, options, says = BAD[case]
    with pytest.raises(DataError, match=says) as caught:
        own(tmp_path, text, **options)
    assert str(caught.value).startswith(str(tmp_path / "mine.csv"))
    assert "\n" not in str(caught.value)
    assert not list(data_dir.rglob("manifest.json"))
    assert not list(data_dir.rglob("items.*"))


def test_a_log_may_lack_header_and_times(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = LOG.split("\n", 1)[1]
    assert sequences_of(own(tmp_path, bare, "bare.csv", columns="user,item,rating,time")) == ORDERED
    dataset = own(tmp_path, "item,user\nb,u1\na,u2\na,u1\na,u1\n", "order.csv", time=None)
    assert sequences_of(dataset) == [["b", "a", "a"], ["a"]], "in the order of the file, in which there are no copies"
    assert "events count in the order of the file" in capsys.readouterr().err
    both = own(
        tmp_path, "u1;x;5\nu1;y;1\n", "both.csv", time=None, columns="user,item,stars", rating="stars", min_rating=3
    )
    assert sequences_of(both) == [["x"]]


@pytest.mark.parametrize(("text", "options", "says"), [
    ("u,a,1\n", {"columns": "user,item"}, r"line 1: 3 columns, but dataset\.columns names 2: user, item; name every"),
    ("user,item\nu,a\n", {"columns": "user,item"}, r"line 1: is a header; leave dataset\.columns out"),
    ("user,item\nu,a\n", {"time": "time"}, r"no column named 'time'; .* order of the file: dataset\.time=null"),
    ("u,a\nu\n", {"columns": "user,item"}, r"line 2: 1 columns, but the first line has 2"),
])  # fmt: skip
def test_mistakes_without_header_or_times(
    text: str, options: dict[str, object], says: str, tmp_path: Path, data_dir: Path
) -> None:
    with pytest.raises(DataError, match=says):
        own(tmp_path, text, **{"time": None, **options})
    with pytest.raises(ConfigError, match=r"dataset\.columns=user,item must name the column 'time' once"):
        InteractionsConfig(path="x", columns="user,item")


@pytest.mark.parametrize("rows", [5, 8, 1000], ids=["at the end of a piece", "in the next piece", "far on"])
def test_faults_are_found_in_any_piece(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ROWS_AT_ONCE", 5)
    text = "user,item,time\n" + "u,a,1\n\n" * (rows - 1) + "u,a,soon\n"
    with pytest.raises(DataError, match=rf"line {2 * rows}: column 3 \(time\): 'soon'"):
        own(tmp_path, text)


def test_a_truncated_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="truncated"):
        own(tmp_path, gzip.compress(LOG.encode())[:-9], name="log.csv.gz")


@pytest.mark.parametrize(("options", "says"), [
    ({}, r"dataset\.path: give a file of CSV or TSV with a header"),
    ({"path": "/nowhere"}, r"dataset\.path: /nowhere is not a file"),
    ({"user": "item"}, "must name different columns"),
    ({"time": ""}, "must name different columns"),
    ({"min_rating": 3.0}, r"dataset\.rating and dataset\.min_rating go together"),
    ({"rating": "rating"}, r"dataset\.rating and dataset\.min_rating go together"),
    ({"rating": "rating", "min_rating": float("nan")}, r"dataset\.min_rating must be null or a finite number"),
    ({"min_user": 0}, r"dataset\.min_user must lie in"),
    ({"min_item": -1}, r"dataset\.min_item must lie in"),
    ({"name": "a/b"}, r"dataset\.name may hold only"),
])  # fmt: skip
def test_wrong_settings(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        InteractionsConfig(**options).build()  # type: ignore[arg-type]


def test_damaged_preparations_are_noticed(tmp_path: Path) -> None:
    dataset = own(tmp_path, LOG)
    whole = dataset.items_path.read_bytes()
    again = InteractionsConfig(path=str(tmp_path / "mine.csv")).build()
    dataset.items_path.write_text("a\nb\n")
    with pytest.raises(DataError, match=r"items\.txt is damaged: 2 names for 3 classes; delete the folder"):
        _ = again.item_names
    dataset.items_path.write_bytes(whole)
    folder = dataset.items_path.parent
    np.save(folder / "items.npy", np.zeros(3, np.int32))
    with pytest.raises(DataError, match=r"items\.npy is damaged"):
        store.load(folder, SequencesDataset)
    (folder / "indptr.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"indptr\.npy is damaged"):
        store.load(folder, SequencesDataset)


# ---- times of many digits, and quotation marks ----


def times_of(tmp_path: Path, times: list[str], name: str) -> list[list[str]]:
    """The items of a user who takes i0, i1... at these times, whose rows are in the file in the opposite order."""
    rows = [f"u,i{number},{time}" for number, time in enumerate(times)]
    return sequences_of(own(tmp_path, "\n".join(["user,item,time", *rows[::-1], ""]), name=name))


@pytest.mark.parametrize("times", [
    pytest.param([str(1_600_000_000_000_000_000 + 100 * n) for n in range(8)], id="nanoseconds"),
    pytest.param([str(2**63 - 4 + n) for n in range(8)], id="around 2^63"),
    pytest.param([str(-(2**63) - 4 + n) for n in range(8)], id="around -2^63"),
    pytest.param([str(10**30 + n) for n in range(8)], id="31 digits"),
    pytest.param([f"1600000000.12345678{n}" for n in range(8)], id="decimals"),
    pytest.param(["1e-" + "9" * 40, *map(str, range(1, 7))], id="exponent"),
    pytest.param(["5", "9007199254740992.5", "9007199254740993", "9007199254740993.25", "1e17"], id="mixed"),
    pytest.param([f"2020-01-01T00:00:00.12345678{n}" for n in range(8)], id="ISO with nanoseconds"),
    pytest.param([f"2020-01-01T0{n}:00:00.123456{9 - n}00+0{n}:00" for n in range(8)][::-1], id="ISO with zones"),
    pytest.param(["2020-01-01T00:00:00", "2020-01-01T00:00:00.000000001", "2020-01-01T00:00:00.1"], id="ISO mixed"),
])  # fmt: skip
@pytest.mark.parametrize("at_once", [2, 1 << 10])
def test_times_are_compared_exactly(
    times: list[str], at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROWS_AT_ONCE", at_once)
    assert times_of(tmp_path, times, "a.csv") == [[f"i{number}" for number in range(len(times))]]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(
    st.one_of(st.integers(-(10**24), 10**24), st.integers(0, 40).map(lambda n: 2**60 + n), st.decimals(
        -(10**12), 10**12, places=12)), min_size=2, max_size=12, unique=True))  # fmt: skip
def test_any_times_are_in_the_order_of_their_values(times: list, tmp_path: Path) -> None:
    ordered = [f"{time:f}" if not isinstance(time, int) else str(time) for time in sorted(times)]
    assert times_of(tmp_path, ordered, "a.csv") == [[f"i{number}" for number in range(len(times))]]


def test_equal_times_of_many_digits_stay_equal(tmp_path: Path, data_dir: Path) -> None:
    text = "user,item,time\nu,a,9007199254740993\nu,b,9007199254740993.0\nu,a,9007199254740993\nu,c,9007199254740992\n"
    assert sequences_of(own(tmp_path, text)) == [["c", "a", "b"]]
    assert notes_of(data_dir) == ["1 events were copies (same user, item and time) and are left out"]


TITLES = [f"u{n % 5}\ti{n % 7}\t{n}\ttitle {n}" for n in range(40)]


@pytest.mark.parametrize("marks", [(3, 20), (3,), (3, 4), (39,), (0, 1, 2)])
@pytest.mark.parametrize("column", ["item", "title"])
def test_quotation_marks_are_plain_text_where_tabs_separate(
    marks: tuple[int, ...], column: str, tmp_path: Path
) -> None:
    place, rows = {"item": 1, "title": 3}[column], [row.split("\t") for row in TITLES]
    for n in marks:
        rows[n][place] = '"' + rows[n][place]
    dataset = own(tmp_path, "\n".join(["user\titem\ttime\ttitle", *map("\t".join, rows), ""]), name="log.tsv")
    items = ['"' * (column == "item" and n in marks) + f"i{n % 7}" for n in range(40)]
    assert sequences_of(dataset) == [items[user::5] for user in range(5)]


def test_cells_of_tabs_are_quoted_if_their_names_are(tmp_path: Path) -> None:
    """R's write.table puts all text in quotes."""
    rows = ["\t".join(f'"{cell}"' if not cell.isdigit() else cell for cell in row.split("\t")) for row in TITLES]
    dataset = own(tmp_path, "\n".join(['"user"\t"item"\t"time"\t"title"', *rows, ""]), name="log.tsv")
    assert sequences_of(dataset) == [[f"i{n % 7}" for n in range(user, 40, 5)] for user in range(5)]


def test_cells_over_several_lines_are_said(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row.replace("\t", ",") for row in TITLES]
    rows[3], rows[20], rows[30] = (
        rows[3].replace("title", '"title'),
        rows[20] + '"',
        rows[30].replace("ti", '"t\ni') + '"',
    )
    dataset = own(tmp_path, "\n".join(["user,item,time,title", *rows, ""]))
    assert len(dataset.items_E) == 40 - 17
    says = (
        "2 cells in quotes go, the longest one, on over 18 lines, from line 5; if a quotation mark there is plain text"
    )
    assert says in notes_of(data_dir)[0]
    assert f"interactions: {says}" in capsys.readouterr().err
    rows[20] = TITLES[20].replace("\t", ",")
    own(tmp_path, "\n".join(["user,item,time,title", rows[0], rows[30], ""]), name="b.csv")
    assert "interactions: 1 cell in quotes goes on over 2 lines, from line 3; if a" in capsys.readouterr().err
