"""Whatever bytes a file holds, its reader returns, or raises one of the project's errors in one line; nothing else.

Files are made of pieces that their formats have, of random bytes, and of whole files in which something was changed.
The environment variable FUZZ_EXAMPLES sets the number of files for each reader.
"""

import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from runner.config import compose, explain
from runner.data.pairs.read import PairColumns, read_pairs
from runner.data.regression.tables import read_tables
from runner.data.rows.matrices import read_matrices
from runner.data.rows.tables import read_row_table
from runner.data.rows.texts import TextFormat, read_rows
from runner.data.sequences.logs import LogColumns, read_events
from runner.data.shared.cards import read_card
from runner.data.shared.store import read_manifest
from runner.data.shared.verify import MANIFEST
from runner.data.text.words import TextPart, read_words
from runner.errors import RunnerError
from runner.training.run_folder import description
from runner.training.run_records import check_run, read_observations, read_settings
from runner.training.stored_arrays import _checksum_of, load_arrays, save_arrays

FEW, MANY = int(os.environ.get("FUZZ_EXAMPLES", "40")), int(os.environ.get("FUZZ_EXAMPLES", "600"))
NUMBERS = [b"0", b"1", b"7", b"-1", b"1e308", b"1e-400", b"nan", b"inf", b"99999999999999999999", b"1.5", b"2147483648"]
BYTES = [
    b" ",
    b"\n",
    b"\r\n",
    b"\r",
    b"\t",
    b",",
    b":",
    b"|",
    b'"',
    b"'",
    b"#",
    b"\0",
    b"\x1c",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc3\xa9",
]
Reader = Callable[[Path], Any]


def rows(layout: str) -> Reader:
    def read(path: Path) -> Any:
        return read_rows(path, TextFormat(layout=layout), lambda block: None)

    return read


def log(path: Path) -> Any:
    columns = LogColumns(user="user", item="item", time="time")
    return read_events(path, columns, separator=None, header=True, quoted=True, min_rating=None)


def raw_log(path: Path) -> Any:
    columns = LogColumns(user=0, item=1, time=3, rating=2)
    return read_events(path, columns, separator="\t", header=False, quoted=False, min_rating=3)


def archive() -> bytes:
    file = io.BytesIO()
    sparse.save_npz(file, sparse.csr_array([[1.0, 0], [0, 2]]))
    return file.getvalue()


# The reader, the name of its file, a whole file, and pieces that such files have.
READERS: dict[str, tuple[Reader, str, bytes, list[bytes]]] = {
    "XC": (rows("xmc"), "a.txt", b"2 3 4\n0,3 0:1 2:0.25\n1 1:2\n", [b"2 3 4\n", b"0,3 ", b"0:1 "]),
    "XC, compressed": (rows("xmc"), "a.txt.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\3", [b"\x1f\x8b\x08"]),
    "libsvm": (rows("libsvm"), "a.svm", b"1,2 1:1 6:2\n0 2:3\n", [b"1,2 ", b"1:1 "]),
    "Vowpal Wabbit": (rows("vw"), "a.vw", b"3 | 0:1 7:2.5\n4 1.0 tag|words 2:1 4\n", [b"3 |", b" 0:1"]),
    "svmlight": (lambda path: read_tables([path]), "a.txt", b"1.5 1:2 3:4\n-1 2:0.5\n", [b"1.5 ", b"1:2 ", b" # x"]),
    "CSV": (lambda path: read_tables([path]), "a.csv", b"a,b,c\n1,2,3\n4,5,6\n", [b"a,b,c\n", b"1,2,3\n", b'"x,y"']),
    "CSV of rows": (
        lambda path: read_row_table(path, lambda block: None, labelled=True), "a.csv", b"a,b,labels\n1,2,3 4\n4,5,\n",
        [b"a,b,labels\n", b"1,2,3\n", b"1,2,3;4\n"],
    ),
    "matrix": (
        lambda path: read_matrices(path, None, lambda block: None), "a.npz", archive(), [b"PK\3\4", b"PK\5\6", b".npy"],
    ),
    "log": (
        log, "a.csv", b"user,item,time\nu1,i1,3\nu2,i2,2020-01-01\n",
        [b"user,item,time\n", b"u1,i1,3\n", b"2020-01-01T"],
    ),
    "raw log": (raw_log, "u.data", b"1\t2\t3\t4\n5\t6\t5\t8\n", [b"1\t2\t3\t4\n", b"1\t"]),
    "pairs": (
        lambda path: read_pairs(path, PairColumns(first="a", second="b", label="c")), "a.tsv",
        b"a\tb\tc\nx y\tz\tyes\nq\tr\tno\n", [b"a\tb\tc\n", b"x y\tz\tyes\n"],
    ),
    "text": (
        lambda path: list(read_words(TextPart(paths=(path,)), end_of_line=True)), "a.txt", b"one two\nthree\n",
        [b"one "],
    ),
    "card": (
        read_card, "card.yaml", (Path(__file__).parents[2] / "datasets" / "ptb" / "card.yaml").read_bytes(),
        [b"name: a\n", b"family: text\n", b"layouts:\n", b"  - {", b"}", b"[", b"!!python/object:os.system x", b"*a"],
    ),
}  # fmt: skip


def survives(read: Callable[[], object]) -> None:
    try:
        read()
    except RunnerError as error:
        said = explain(error)
    else:
        said = ""
    assert "\n" not in said


def files(whole: bytes, pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    piece = st.one_of(st.sampled_from([*pieces, *NUMBERS, *BYTES]), st.binary(max_size=4))
    made = st.lists(piece, max_size=30).map(b"".join)
    changed = st.tuples(st.integers(0, len(whole)), st.integers(0, 6), st.lists(piece, max_size=3)).map(
        lambda cut: whole[: cut[0]] + b"".join(cut[2]) + whole[cut[0] + cut[1] :]
    )
    return st.one_of(made, changed)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just("finished")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)
ANY_FILE = st.one_of(JSON.map(lambda value: json.dumps(value).encode()), st.binary(max_size=30))

several = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("examples", several)
@pytest.mark.parametrize("name", READERS)
def test_readers_of_data(name: str, examples: int, tmp_path: Path) -> None:
    read, file, whole, pieces = READERS[name]

    @settings(max_examples=examples, suppress_health_check=quiet)
    @given(content=files(whole, pieces))
    def check(content: bytes) -> None:
        path = tmp_path / file
        path.write_bytes(content)
        survives(lambda: read(path))

    check()


def written(name: str, value: dict[str, Any]) -> bytes:
    text = yaml.safe_dump(value) if name.endswith(".yaml") else json.dumps(value) + "\n"
    return text.encode()


def finished(place: Path) -> dict[str, Any]:
    """Write the records of a finished run; return them."""
    config = compose(["sampler=uniform"])
    made = {
        "summary.json": {
            "status": "finished", **description(config), "metrics": {"test/p@1": 0.5},
            "epochs": 1.0, "train_seconds": 1.0, "stage_seconds": {}, "candidates_per_row": 1.0, "peak_rss_mb": 1.0,
        },
        "provenance.json": {
            "commit": None, "patch": None, "started": "x", "cpu": "x", "threads": 1, "cores": 1,
            "run_id": config.run_id,
        },
        "config.yaml": config.as_dict(),
        "metrics.jsonl": {"kind": "evaluation", "step": 1, "epoch": 1.0, "train_seconds": 1.0},
    }  # fmt: skip
    for name, value in made.items():
        (place / name).write_bytes(written(name, value))
    check_run(place, config.run_id)
    return made


@pytest.mark.parametrize("examples", several)
@pytest.mark.parametrize("name", ["summary.json", "provenance.json", "config.yaml", "metrics.jsonl"])
def test_records_of_a_run(name: str, examples: int, tmp_path: Path) -> None:
    """One value of a record is another one, or the file is anything."""
    known = finished(tmp_path)

    @settings(max_examples=max(1, examples // 5), suppress_health_check=quiet)  # reading YAML takes long
    @given(content=ANY_FILE, key=st.sampled_from(["", *known[name]]), value=JSON)
    def check(content: bytes, key: str, value: Any) -> None:
        changed = written(name, {**known[name], key: value}) if key else content
        (tmp_path / name).write_bytes(changed)
        survives(lambda: check_run(tmp_path))
        survives(lambda: read_observations(tmp_path))
        survives(lambda: read_settings(tmp_path))

    check()


@pytest.mark.parametrize("examples", several)
def test_manifests_of_stored_arrays(examples: int, tmp_path: Path) -> None:
    """The checksum of the manifest is right, as if somebody had forged it."""
    import numpy as np

    save_arrays(tmp_path / "w", run_id="a", step=1, arrays={"x": np.ones(4, np.float32)}, state={})
    path = tmp_path / "w" / "state.json"
    body = json.loads(path.read_text())
    entry = body["arrays"]["x"]

    @settings(max_examples=examples, suppress_health_check=quiet)
    @given(content=ANY_FILE, key=st.sampled_from(["", *body, *entry]), value=JSON)
    def check(content: bytes, key: str, value: Any) -> None:
        changed = json.loads(json.dumps(body))
        (changed["arrays"]["x"] if key in entry else changed)[key] = value
        with suppress(KeyError):
            del changed["checksum"]
        changed["checksum"] = _checksum_of(changed)
        path.write_bytes(json.dumps(changed).encode() if key else content)
        survives(lambda: load_arrays(path.parent, run_id="a"))

    check()


@pytest.mark.parametrize("examples", several)
def test_manifests_of_prepared_data(examples: int, tmp_path: Path) -> None:
    keys = ["family", "format_version", "name", "checksum", "sources", "notes", "num_classes", "train", "valid", "test"]

    @settings(max_examples=examples, suppress_health_check=quiet)
    @given(content=ANY_FILE, family=st.sampled_from(["rows", "text", "regression", "pairs", "sequences"]),
           values=st.dictionaries(st.sampled_from(keys), JSON), whole=st.booleans())  # fmt: skip
    def check(content: bytes, family: str, values: dict[str, Any], whole: bool) -> None:
        made = {"family": family, "format_version": 1, **values}
        (tmp_path / MANIFEST).write_bytes(content if whole else json.dumps(made).encode())
        survives(lambda: read_manifest(tmp_path))

    check()
