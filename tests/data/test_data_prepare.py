"""Preparation works end to end, from folders, archives and a server, and leaves a whole folder or none."""

import gzip
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from runner.data import CardConfig, LabelledRows, XmcFilesConfig
from runner.data.rows import convert
from runner.data.shared import store
from runner.data.shared.places import prepared_dir
from runner.data.shared.prepare import load_card_dataset, prepare_card
from runner.errors import DataError, DataNotPrepared

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = "3 6 4\n0,3 0:1 5:0.5\n 1:2\n2 2:3\n"
TEST = "2 6 4\n1 0:1\n3 5:2\n"
SPLIT_BODY = """
layouts:
  - name: split
    format: xmc
    feature_start: 0
    label_start: 0
    data: Toy_data.txt
    train_split: toy_trSplit.txt
    test_split: toy_tstSplit.txt
    split_column: 1
    label_names: labels.txt
"""
NPZ_BODY = """
layouts:
  - {name: npz, format: npz, feature_start: 0, label_start: 0, train: tfidf/X.trn.npz, train_labels: Y.trn.npz,
     test: tfidf/X.tst.npz, test_labels: Y.tst.npz}
"""
VW_BODY = """
layouts:
  - {name: vw, format: vw, feature_start: 0, label_start: 1, train: toy_train.vw, test: toy_test.vw}
"""


def lists(rows: LabelledRows) -> list[tuple[list[int], dict[int, float]]]:
    found = []
    for r in range(rows.num_rows):
        a, b = rows.indptr[r : r + 2]
        c, d = rows.label_indptr[r : r + 2]
        features = dict(zip(rows.indices[a:b].tolist(), rows.values[a:b].tolist(), strict=True))
        found.append((rows.labels[c:d].tolist(), features))
    return found


TRAIN_ROWS = [([0, 3], {0: 1.0, 5: 0.5}), ([2], {2: 3.0})]
TEST_ROWS = [([1], {0: 1.0}), ([3], {5: 2.0})]


def write_pair(folder: Path, names: tuple[str, str] = ("toy_train.txt", "toy_test.txt")) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, (TRAIN, TEST), strict=True):
        (folder / name).write_text(text)
    return folder


def leftovers(data_dir: Path) -> list[Path]:
    return [p for p in data_dir.rglob("*") if ".tmp" in p.name or ".part" in p.name]


@pytest.mark.parametrize("place", ["own", "own_sub", "flat", "flat_sub", "gz", "zip", "own_tar"])
def test_from_folder(make_card: Callable[..., Path], tmp_path: Path, data_dir: Path, place: str) -> None:
    """A mirror may hold DIR/<name>/..., the files themselves, compressed files, or archives."""
    make_card(
        "layouts:\n  - {name: toy, format: xmc, feature_start: 0, label_start: 0,"
        " train: Toy/toy_train.txt, test: Toy/toy_test.txt}\n"
        "sources: [{layout: toy, files: [{name: toy.zip, urls: []}]}]\n"
    )
    mirror = tmp_path / "mirror"
    inner = {"own": "toy", "own_sub": "toy/Toy", "flat_sub": "Toy"}.get(place, "")
    write_pair(mirror / inner)
    if place == "gz":
        for path in list(mirror.iterdir()):
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    if place in ("zip", "own_tar"):
        (mirror / "toy").mkdir(exist_ok=True)
        source = write_pair(tmp_path / "packed" / "Toy").parent
        shutil.rmtree(mirror)
        (mirror / "toy").mkdir(parents=True)
        base = mirror / ("toy" if place == "zip" else "toy/any-name")
        if place == "zip":
            (mirror / "toy").rmdir()
        shutil.make_archive(str(base), "zip" if place == "zip" else "gztar", source)
    prepare_card("toy", given=mirror)
    dataset = CardConfig(name="toy").build()
    assert lists(dataset.train) == TRAIN_ROWS
    assert lists(dataset.test) == TEST_ROWS
    assert (dataset.num_features, dataset.num_classes) == (6, 4)
    assert (dataset.propensity_a, dataset.propensity_b) == (0.5, 0.4)
    assert (dataset.name, dataset.variant) == ("toy", "toy")
    assert dataset.label_names() is None
    assert sorted(p.name for p in prepared_dir("toy").iterdir() if p.suffix == ".json") == [
        "manifest.json", "verified.json",
    ]  # fmt: skip
    assert not leftovers(data_dir)


def test_arrays_are_mapped_and_typed(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card()
    prepare_card("toy", given=write_pair(tmp_path / "m"))
    rows = load_card_dataset("toy").train
    types = [a.dtype for a in (rows.indptr, rows.indices, rows.values, rows.label_indptr, rows.labels)]
    assert types == [np.int64, np.int32, np.float32, np.int64, np.int32]
    assert type(rows.values) is np.ndarray
    assert isinstance(rows.values.base, np.memmap)
    assert not rows.values.flags.writeable


def test_manifest_counts_and_checksum(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card()
    mirror = write_pair(tmp_path / "m")
    first = prepare_card("toy", given=mirror)
    assert (first.train.rows_read, first.train.rows_dropped, first.train.rows) == (3, 1, 2)
    assert first.notes == []
    again = prepare_card("toy", given=mirror, force=True)
    assert again.checksum == first.checksum
    (mirror / "toy_test.txt").write_text(TEST.replace("5:2", "5:2.5"))
    assert prepare_card("toy", given=mirror).checksum == first.checksum, "prepared data are reused"
    assert prepare_card("toy", given=mirror, force=True).checksum != first.checksum


def test_split_files(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card(SPLIT_BODY)
    mirror = tmp_path / "m"
    mirror.mkdir()
    (mirror / "Toy_data.txt").write_text("5 6 4\n0,3 0:1 5:0.5\n 1:2\n2 2:3\n1 0:1\n3 5:2\n")
    (mirror / "toy_trSplit.txt").write_text("1 3\n1 1\n1 2\n")
    (mirror / "toy_tstSplit.txt").write_text("1 4\n1 5\n")
    (mirror / "labels.txt").write_text("a\nb\nc\nd\n")
    manifest = prepare_card("toy", given=mirror)
    dataset = load_card_dataset("toy")
    assert lists(dataset.train) == TRAIN_ROWS[::-1]  # rows have the order of the split file
    assert lists(dataset.test) == TEST_ROWS
    assert (manifest.train.rows_read, manifest.train.rows_dropped, manifest.test.rows_read) == (3, 1, 2)
    assert dataset.label_names() == list("abcd")
    (mirror / "toy_tstSplit.txt").write_text("1 4\n1 3\n")
    with pytest.raises(DataError, match="line number 3 is in the training split too"):
        prepare_card("toy", given=mirror, force=True)


def test_vw_card_without_header(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card(VW_BODY)
    mirror = tmp_path / "toy"
    mirror.mkdir()
    (mirror / "toy_train.vw").write_text("1 | 0:1\n4 | 2:1\n2 | 1:1\n")
    (mirror / "toy_test.vw").write_text("4 | 9:1\n")
    manifest = prepare_card("toy", given=tmp_path)
    assert (manifest.num_features, manifest.num_classes) == (10, 4)
    assert manifest.notes == ["num_features is 10, the card expects 6", "num_test is 1, the card expects 2"]


def write_matrices(folder: Path, **changes: sparse.csr_array) -> None:
    """Write the rows of TRAIN and TEST as matrices; one row has no label, and one label is stored as 0."""
    train = np.array([[1, 0, 0, 0, 0, 0.5], [0, 2, 0, 0, 0, 0], [0, 0, 3, 0, 0, 0]])
    test = np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2]])
    labels = sparse.csr_array(([1, 1, 0, 1], ([0, 0, 1, 2], [0, 3, 1, 2])), shape=(3, 4))
    matrices = {
        "tfidf/X.trn": sparse.csr_array(train), "Y.trn": labels, "tfidf/X.tst": sparse.csr_array(test),
        "Y.tst": sparse.csr_array(([1, 1], ([0, 1], [1, 3])), shape=(2, 4)), **changes,
    }  # fmt: skip
    (folder / "tfidf").mkdir(parents=True, exist_ok=True)
    for name, matrix in matrices.items():
        sparse.save_npz(folder / f"{name}.npz", matrix)


def test_matrices(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card(NPZ_BODY)
    write_matrices(tmp_path / "base" / "toy-set")
    mirror = tmp_path / "mirror" / "toy"
    mirror.mkdir(parents=True)
    with tarfile.open(mirror / "toy-set.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "base", "base")
    manifest = prepare_card("toy", given=tmp_path / "mirror")
    dataset = load_card_dataset("toy")
    assert lists(dataset.train) == TRAIN_ROWS
    assert lists(dataset.test) == TEST_ROWS
    assert (manifest.variant, manifest.train.rows_read, manifest.train.rows_dropped) == ("npz", 3, 1)
    assert manifest.notes == []


@pytest.mark.parametrize(("changes", "message"), [
    ({"Y.trn": sparse.csr_array((2, 4))}, r"Y\.trn\.npz: 2 rows, but .*X\.trn\.npz has 3"),
    ({"Y.trn": sparse.csr_array((3, 4))}, r"Y\.trn\.npz: no row has a label"),
    ({"tfidf/X.tst": sparse.csr_array((2, 7))}, "7 features and 4 labels, but"),
    ({"tfidf/X.trn": sparse.csr_array([[np.nan] * 6] * 3)}, r"trn\.npz: row 0, column 0 \(from 0\): a value is not"),
    ({"Y.trn": sparse.csr_array(np.eye(3, 5)), "Y.tst": sparse.csr_array(np.eye(2, 5))}, "5 labels, but toy has 4"),
    (None, r"X\.trn\.npz: no sparse matrix of SciPy's save_npz"),
], ids=["rows", "labels", "features", "nan", "classes", "damaged"])  # fmt: skip
def test_wrong_matrices(
    changes: dict[str, sparse.csr_array] | None, message: str, make_card: Callable[..., Path], tmp_path: Path
) -> None:
    make_card(NPZ_BODY)
    write_matrices(tmp_path, **(changes or {}))
    if changes is None:
        (tmp_path / "tfidf" / "X.trn.npz").write_bytes(b"PK no archive")
    with pytest.raises(DataError, match=message) as caught:
        prepare_card("toy", given=tmp_path)
    assert "\n" not in str(caught.value)


def test_own_split_of_delicious_is_named_as_such(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "delicious"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("2 500 983\n0 1:1\n982 499:1\n")
    (folder / "test.txt").write_text("1 500 983\n1 1:1\n")
    manifest = prepare_card("delicious", given=tmp_path / "m")
    assert manifest.variant == "given-train-test"
    assert "num_train is 2, the card expects 12920" in manifest.notes


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no files of toy; wanted Toy/toy_train.txt and Toy/toy_test.txt"),
        ({"toy_train.txt": TRAIN}, "holds no files of toy"),
        ({"toy_train.txt": TRAIN, "toy_test.txt": TEST[:-10]}, "toy_test.txt: line 2: the file ends"),
        (
            {"toy_train.txt": TRAIN, "toy_test.txt": TEST.replace("2 6 4", "2 7 4")},
            "7 features and 4 labels, but",
        ),
        (
            {"toy_train.txt": TRAIN.replace(" 4\n", " 9\n"), "toy_test.txt": TEST.replace(" 4\n", " 9\n")},
            "another set",
        ),
        ({"toy_train.txt": "1 6 4\n 1:1\n", "toy_test.txt": TEST}, "no row has a label"),
        ({"toy_train.txt": TRAIN, "toy_test.txt": ""}, "toy_test.txt: the file is empty"),
    ],
)
def test_bad_mirror_leaves_nothing(
    make_card: Callable[..., Path], tmp_path: Path, data_dir: Path, files: dict[str, str], message: str
) -> None:
    make_card()
    mirror = tmp_path / "m"
    mirror.mkdir()
    for name, text in files.items():
        (mirror / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        prepare_card("toy", given=mirror)
    assert "\n" not in str(caught.value)
    assert not [p for p in data_dir.rglob("*") if p.is_file() and not p.name.endswith(".lock")]
    with pytest.raises(DataNotPrepared, match=r"python scripts/prepare_dataset.py toy`, or .*--from DIR"):
        load_card_dataset("toy")


def test_given_archive_must_match_the_published_checksum(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card(
        "layouts:\n"
        "  - {name: toy, format: xmc, feature_start: 0, label_start: 0, train: a.txt, test: b.txt}\n"
        f'sources: [{{layout: toy, files: [{{name: toy.zip, urls: [], sha256: "{"0" * 64}"}}]}}]\n'
    )
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as file:
        file.writestr("a.txt", TRAIN)
        file.writestr("b.txt", TEST)
    with pytest.raises(DataError, match="wrong sha256"):
        prepare_card("toy", given=tmp_path)


def test_download_from_a_server_falls_back_to_the_next_source(
    make_card: Callable[..., Path], tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    with zipfile.ZipFile(site / "v2.zip", "w") as file:
        file.writestr("Toy/toy_train.txt", TRAIN)
        file.writestr("Toy/toy_test.txt", TEST)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    base = f"http://127.0.0.1:{http.server_port}"
    make_card(f"""
layouts:
  - {{name: one, format: xmc, feature_start: 0, label_start: 0, train: x.txt, test: y.txt}}
  - {{name: two, format: xmc, feature_start: 0, label_start: 0,
      train: Toy/toy_train.txt, test: Toy/toy_test.txt}}
sources:
  - {{layout: one, files: [{{name: v1.zip, urls: ["{base}/v1.zip"]}}]}}
  - {{layout: two, files: [{{name: v2.zip, urls: ["{base}/v2.zip"]}}]}}
""")
    try:
        assert prepare_card("toy").variant == "two"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
    assert lists(load_card_dataset("toy").train) == TRAIN_ROWS
    assert sorted(p.name for p in (data_dir / "toy" / "raw").iterdir()) == ["v2.zip", "v2.zip.sha256"]
    assert "recorded sha256" in capsys.readouterr().err
    prepare_card("toy", force=True)  # the server is gone, so the kept archive is used


KILLED = """
import os, signal, sys
from pathlib import Path
from runner.data.rows import write
from runner.data.shared import files, places, prepare
places.CARDS_ROOT = Path(sys.argv[1])
files.BLOCK_BYTES = 8
real, calls = write.RowsWriter.append, []
def append(self, *arguments):
    calls.append(1)
    real(self, *arguments)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
write.RowsWriter.append = append
prepare.prepare_card("toy", given=Path(sys.argv[2]))
"""


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_killed_preparation_looks_unfinished_and_is_rerun(
    make_card: Callable[..., Path], tmp_path: Path, data_dir: Path, blocks: int
) -> None:
    cards = make_card().parent
    mirror = write_pair(tmp_path / "m")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(cards), str(mirror), str(blocks)], cwd=REPOSITORY, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert leftovers(data_dir)
    with pytest.raises(DataNotPrepared):
        load_card_dataset("toy")
    prepare_card("toy", given=mirror)
    assert lists(load_card_dataset("toy").train) == TRAIN_ROWS
    assert not leftovers(data_dir)


def test_killed_between_the_two_renames(
    make_card: Callable[..., Path], tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--force swaps folders by two renames; a kill between them must leave no incomplete folder that loads."""
    make_card()
    mirror = write_pair(tmp_path / "m")
    prepare_card("toy", given=mirror)
    final = prepared_dir("toy")
    final.rename(final.parent / ".prepared.old.tmp")
    with pytest.raises(DataNotPrepared):
        load_card_dataset("toy")
    prepare_card("toy", given=mirror)
    assert not leftovers(data_dir)


def _prepare_slowly(cards: Path, mirror: Path, log: Path, barrier: object) -> None:
    from runner.data.shared import places

    places.CARDS_ROOT = cards
    real = convert._write_split

    def write_split(*arguments: object) -> object:
        with log.open("a") as file:
            file.write("x")
        return real(*arguments)  # type: ignore[arg-type]

    convert._write_split = write_split  # type: ignore[assignment]
    barrier.wait()  # type: ignore[attr-defined]
    prepare_card("toy", given=mirror)


def test_two_processes_prepare_once(make_card: Callable[..., Path], tmp_path: Path) -> None:
    cards = make_card().parent
    mirror = write_pair(tmp_path / "m")
    context = multiprocessing.get_context("spawn")
    barrier, log = context.Barrier(2), tmp_path / "log"
    workers = [context.Process(target=_prepare_slowly, args=(cards, mirror, log, barrier)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert log.read_text() == "xx", "train and test were each converted once"
    assert lists(load_card_dataset("toy").train) == TRAIN_ROWS


def test_damaged_prepared_data_are_named(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card()
    prepare_card("toy", given=write_pair(tmp_path / "m"))
    folder = prepared_dir("toy")
    path = folder / "train.values.npy"
    whole = path.read_bytes()
    np.save(path, np.zeros(99, np.float32))
    with pytest.raises(DataError, match=r"train\.values\.npy is damaged: .*prepare_dataset\.py toy --force` prep"):
        load_card_dataset("toy")
    path.write_bytes(whole[:50])
    with pytest.raises(DataError, match=r"train\.values\.npy is damaged"):
        load_card_dataset("toy")
    path.unlink()
    with pytest.raises(DataError, match=r"train\.values\.npy is damaged"):
        load_card_dataset("toy")
    manifest = folder / "manifest.json"
    keys = json.loads(manifest.read_text())
    manifest.write_text("{")
    with pytest.raises(DataError, match="it is not a manifest"):
        load_card_dataset("toy")
    manifest.write_text(json.dumps({**keys, "format_version": store.FORMAT_VERSION + 1}))
    with pytest.raises(DataNotPrepared):
        load_card_dataset("toy")


def test_own_files_are_cached_until_they_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_pair(tmp_path / "mine", ("train.txt", "test.txt"))
    config = XmcFilesConfig(path=str(folder), name="mine")
    first = config.build()
    assert first.name == "mine"
    assert lists(first.train) == TRAIN_ROWS
    assert "preparing" in capsys.readouterr().err
    assert config.build().checksum == first.checksum
    assert capsys.readouterr().err == ""
    (folder / "test.txt").write_text(TEST.replace("5:2", "5:3"))
    os.utime(folder / "test.txt", ns=(1, 1))
    assert config.build().checksum != first.checksum
    assert "preparing" in capsys.readouterr().err
    (folder / "test.txt").unlink()
    with pytest.raises(DataError, match=r"test\.txt: no such file"):
        config.build()


def run_script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/prepare_dataset.py", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_script(tmp_path: Path) -> None:
    done = run_script("--list")
    assert done.returncode == 0
    assert "wordnet_hypernym" in done.stdout
    mirror = tmp_path / "m"
    write_pair(mirror / "other")
    done = run_script("delicious", "odp", DATA_MIRROR=str(mirror))
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 2, "a failure does not stop the next set"
    assert "Traceback" not in done.stderr
    assert run_script("nonsense").stderr.startswith("error: dataset.name: no card 'nonsense'; choose one of ")
    assert run_script().returncode == 2
    done = run_script("amazon_uniform")
    assert "amazon_uniform is derived from amazon670k" in done.stderr


def test_import_is_light() -> None:
    code = "import sys, runner.data; print([m for m in ('numba', 'torch', 'yaml', 'tqdm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
