"""A user's own rows are the same data in any of their forms, and what is wrong with them is said in one line."""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from test_data_prepare import TEST, TEST_ROWS, TRAIN, TRAIN_ROWS, lists, write_pair

from runner.config import compose
from runner.data import XmcDataset, XmcFilesConfig
from runner.data.rows import tables
from runner.data.rows.dataset import RowsManifest
from runner.data.rows.matrices import read_matrices
from runner.data.rows.tables import read_row_table
from runner.data.rows.texts import Block
from runner.data.shared.manifests import combine
from runner.data.shared.places import prepared_dir
from runner.data.shared.prepare import prepare_card
from runner.data.shared.store import read_manifest
from runner.errors import DataError
from runner.tasks import Classification

# TRAIN and TEST of test_data_prepare in the other forms; the second training row has no label.
SVM = {"train": "0,3 1:1 6:0.5\n 2:2\n2 3:3\n", "test": "1 1:1\n3 6:2\n"}
CSV = {
    "train": "a,b,c,d,e,f,labels\n1,0,0,0,0,0.5,0 3\n0,2,0,0,0,0,\n0,0,3,0,0,0,2\n",
    "test": "a,b,c,d,e,f,labels\n1,0,0,0,0,0,1\n0,0,0,0,0,2,3\n",
}


def write_svm(folder: Path) -> None:
    for split, text in SVM.items():
        (folder / f"{split}.svm").write_text(text)


def write_csv(folder: Path, ending: str = ".csv", **changes: str) -> None:
    for split, text in {**CSV, **changes}.items():
        (folder / f"{split}{ending}").write_text(text)


def write_npz(folder: Path) -> None:
    train = np.array([[1, 0, 0, 0, 0, 0.5], [0, 2, 0, 0, 0, 0], [0, 0, 3, 0, 0, 0]])
    test = np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2]])
    matrices = {
        "train": sparse.csr_array(train), "test": sparse.csc_array(test),
        "train_labels": sparse.csr_array(([1, 1, 1], ([0, 0, 2], [0, 3, 2])), shape=(3, 4)),
        "test_labels": sparse.coo_array(([1, 1], ([0, 1], [1, 3])), shape=(2, 4)),
    }  # fmt: skip
    for name, matrix in matrices.items():
        sparse.save_npz(folder / f"{name}.npz", matrix)


def write_compressed(folder: Path) -> None:
    for split, text in SVM.items():
        (folder / f"{split}.libsvm.gz").write_bytes(gzip.compress(text.encode()))


WRITERS: dict[str, Callable[[Path], None]] = {
    "given-train-test": lambda folder: write_pair(folder, ("train.txt", "test.txt")) and None,
    "given-svmlight": write_svm,
    "given-csv": write_csv,
    "given-npz": write_npz,
}


def own(folder: Path, write: Callable[[Path], None]) -> XmcDataset:
    folder.mkdir(exist_ok=True)
    write(folder)
    return XmcFilesConfig(path=str(folder)).build()


@pytest.mark.parametrize("variant", WRITERS)
def test_all_forms_are_the_same_data(variant: str, tmp_path: Path) -> None:
    text = own(tmp_path / "text", WRITERS["given-train-test"])
    data = own(tmp_path / "other", WRITERS[variant])
    assert lists(data.train) == TRAIN_ROWS
    assert lists(data.test) == TEST_ROWS
    assert (data.num_features, data.num_classes, data.variant) == (6, 4, variant)
    assert data.checksum == text.checksum
    manifests = [read_manifest(folder) for folder in prepared_dir("xmc").parent.iterdir() if folder.is_dir()]
    (manifest,) = (one for one in manifests if one is not None and str(tmp_path / "other") in str(one.sources))
    assert isinstance(manifest, RowsManifest)
    assert (manifest.train.rows_read, manifest.train.rows_dropped) == (3, 1)
    assert len(manifest.sources) == (4 if variant == "given-npz" else 2)


def test_compressed_svmlight_and_other_separators(tmp_path: Path) -> None:
    wanted = own(tmp_path / "text", WRITERS["given-train-test"]).checksum
    assert own(tmp_path / "svm", write_compressed).checksum == wanted
    semicolons = {split: text.replace(",", ";") for split, text in CSV.items()}
    assert own(tmp_path / "semicolon", lambda folder: write_csv(folder, **semicolons)).checksum == wanted
    tabs = {split: text.replace(",", "\t").replace("0 3", "3;0;3") for split, text in CSV.items()}
    assert own(tmp_path / "tab", lambda folder: write_csv(folder, ".tsv", **tabs)).checksum == wanted
    first = {"train": "labels,x\n1,2\n,3\n0,5e-1\n", "test": "labels,x\n0,4\n"}
    assert lists(own(tmp_path / "first", lambda folder: write_csv(folder, **first)).train) == [
        ([1], {0: 2}),
        ([0], {0: 0.5}),
    ]


def test_a_table_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = own(tmp_path / "text", WRITERS["given-train-test"]).checksum
    monkeypatch.setattr(tables, "_CELLS_AT_ONCE", 6)
    assert own(tmp_path / "table", write_csv).checksum == wanted


def test_files_beside_xc_text_are_not_looked_at(tmp_path: Path) -> None:
    """XC text was the only form once, and whatever lay beside it did not matter."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.csv").write_text("no,rows\n")
    write_npz(folder)
    data = own(folder, WRITERS["given-train-test"])
    assert data.variant == "given-train-test"
    assert lists(data.train) == TRAIN_ROWS


def test_text_is_found_where_it_was_prepared_before_there_were_other_forms(tmp_path: Path) -> None:
    own(tmp_path / "mine", WRITERS["given-train-test"])
    paths = [tmp_path / "mine" / name for name in ("train.txt", "test.txt")]
    stats = [path.stat() for path in paths]
    key = combine(*(f"{path} {at.st_size} {at.st_mtime_ns}" for path, at in zip(paths, stats, strict=True)))[:16]
    assert (prepared_dir("xmc", key) / "manifest.json").is_file()


def test_changed_labels_are_prepared_again(tmp_path: Path) -> None:
    first = own(tmp_path / "mine", write_npz)
    sparse.save_npz(tmp_path / "mine" / "test_labels.npz", sparse.csr_array(np.eye(2, 4, dtype=np.int8)))
    assert XmcFilesConfig(path=str(tmp_path / "mine")).build().checksum != first.checksum


@pytest.mark.parametrize(("names", "message"), [
    ([], r"mine: no rows found; looked for train\.txt and test\.txt \(XC text\), train\.svm and test\.svm"),
    (["notes.txt", "train.vw"], "mine: no rows found"),
    (["train.csv", "test.svm"], r"mine: holds both test\.svm and train\.csv; keep the rows of one form"),
    (["train.txt", "train.npz"], r"mine: holds both train\.txt and train\.npz"),
    (["train.svm", "test.svm", "train.csv"], r"mine: holds both train\.svm and train\.csv"),
    (["train.svm"], r"test\.svm: no such file \(also looked for \.xz, \.gz, \.bz2\)"),
    (["test.csv.gz"], r"train\.csv: no such file"),
    (["train.npz", "train_labels.npz"], r"test\.npz: no such file$"),
    (["train.npz", "test.npz"], r"train_labels\.npz: no such file; it holds the labels of the rows of train\.npz"),
])  # fmt: skip
def test_what_is_looked_for(names: list[str], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    with pytest.raises(DataError, match=message) as caught:
        XmcFilesConfig(path=str(folder)).build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("ending", "train", "message"), [
    (".svm", "1 0:1\n", r"train\.svm: line 1: feature index outside 1\.\.\d+ in '0:1'; indices begin at 1 here"),
    (".svm", "1.5 1:1\n", r"train\.svm: line 1: expected comma-separated label numbers"),
    (".svm", " 1:1\n", r"train\.svm: no row has a label"),
    (".csv", "a,b,labels\n1,2,\n", r"train\.csv: no row has a label"),
    (".csv", "a,b,labels\n", r"train\.csv: line 1 is a header, but no rows follow"),
    (".csv", "a,b,tags\n1,2,3\n", r"line 1: no column is called labels; the first line names the features"),
    (".csv", "1,2,3\n4,5,6\n", r"line 1: there is no header; the first line names the features and the column labels"),
    (".csv", "1 1:2\n", r"line 1: the file is svmlight text; give its name the ending \.svm"),
    (".csv", "a,b,labels\n1,red,0\n", r"line 2: column 2 \(b\): 'red' is not a number; columns of text"),
    (".csv", "a,b,labels\n1,2,0\n\n1,nan,\n", r"line 4: column 2 \(b\): 'nan' is not a finite number"),
    (".csv", "a,b,labels\n1,,0\n", r"line 2: column 2 \(b\): the cell is empty"),
    (".csv", "a,b,labels\n1,1e39,0\n", r"line 2: column 2 \(b\): 1e\+39 is too large for a number of 32 bits"),
    (".csv", "a,b,labels\n1,2,0\n1,1_0,0\n", r"line 3: column 2 \(b\): '1_0' is not a number"),
    (".csv", "a,b,labels\n1,2,0\n1,2\n", r"line 3: column 3 \(labels\) is missing: 2 columns, but line 1 has 3"),
    (".csv", "a,b,labels\n1,2,0,1\n", r"line 2: column 4 is one too many"),
    (".csv", "a,b,labels\n1,2,cat\n", r"line 2: column 3 \(labels\): 'cat' is not the number of a label;"),
    (".csv", "a,b,labels\n1,2,0 -1\n", r"column 3 \(labels\): '-1' is not the number of a label"),
    (".csv", "a,b,labels\n1,2,2147483647\n", r"'2147483647' is not the number of a label"),
    (".csv", "a,c,labels\n1,2,0\n", r"test\.csv: line 1: column 2 is called 'b', but 'c' in .*train\.csv"),
])  # fmt: skip
def test_wrong_text(ending: str, train: str, message: str, tmp_path: Path) -> None:
    (tmp_path / f"train{ending}").write_text(train)
    (tmp_path / f"test{ending}").write_text("1 1:1\n" if ending == ".svm" else "a,b,labels\n1,2,0\n")
    with pytest.raises(DataError, match=message) as caught:
        XmcFilesConfig(path=str(tmp_path)).build()
    assert "\n" not in str(caught.value)


def test_columns_are_named_where_labels_stand_before_them(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("labels,a,b\n0,1,1e39\n")
    with pytest.raises(DataError, match=r"line 2: column 3 \(b\): 1e\+39 is too large"):
        read_row_table(tmp_path / "x.csv", lambda block: None, labelled=True)


@pytest.mark.parametrize("first", ["0,1,2", "1,2,3", '"0","1","2"', " 1, 2, 3", "0\t1\t2"])
def test_numbers_of_columns_may_be_a_header(first: str, tmp_path: Path) -> None:
    """pandas numbers columns that have no names, and such a header must not become a row."""
    separator = "\t" if "\t" in first else ","
    (tmp_path / "x.csv").write_text(f"{first}\n{separator.join('456')}\n")
    with pytest.raises(DataError, match=r"x\.csv: line 1: (0 to 2|1 to 3) in order may be a header or a row") as caught:
        read_row_table(tmp_path / "x.csv", lambda block: None, labelled=False)
    assert "begin the file with a line of names that are no numbers" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["0,2,1\n", "2,3,4\n", "0,1,2.0\n", "5,5,5\n0,1,2\n", "a,b,c\n0,1,2\n"])
def test_other_numbers_are_rows(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    counts = read_row_table(tmp_path / "x.csv", lambda block: None, labelled=False)
    assert counts.rows_read == text.count("\n") - text.startswith("a")


def test_rows_of_one_feature(tmp_path: Path) -> None:
    """A single column could be split anywhere, so it is refused; a column of labels that holds nothing helps."""
    path, blocks = tmp_path / "x.csv", list[Block]()
    path.write_text("x\n1\n0\n-2\n")
    with pytest.raises(DataError, match=r"only one column; .*; rows of one feature need a column labels too, empty in"):
        read_row_table(path, blocks.append, labelled=False)
    path.write_text("x,labels\n1,\n0,\n-2,\n")
    assert read_row_table(path, blocks.append, labelled=False).num_features == 1
    (block,) = blocks
    assert (block.row_sizes.tolist(), block.values.tolist()) == ([1, 0, 1], [1, -2])


@pytest.mark.parametrize(("matrix", "message"), [
    (sparse.csr_array([[0, 1], [np.inf, 2]]), r"row 1, column 0 \(from 0\): a value is not finite in float32: inf;"),
    (sparse.csr_array([[0, 1e39], [1, 2]]), r"row 0, column 1 \(from 0\): a value is not finite in float32: 1e\+39;"),
    (sparse.csr_array([[1j, 2], [1, 2]]), "must be a matrix of real numbers, found 2-D complex128"),
    (sparse.coo_array([1, 2, 0]), "must be a matrix of real numbers, found 1-D int64"),
])  # fmt: skip
def test_matrices_that_are_no_features(matrix: sparse.sparray, message: str, tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "x.npz", matrix)
    with pytest.raises(DataError, match=message):
        read_matrices(tmp_path / "x.npz", None, lambda block: None)


@pytest.mark.parametrize("kind", ["csr", "coo"])
@pytest.mark.parametrize(("dtype", "twice", "wanted"), [
    (np.uint8, [200, 100], 300), (np.int8, [100, 100], 200), (np.bool_, [True, True], 2), (np.float32, [0.5, 1], 1.5),
])  # fmt: skip
def test_values_that_are_stored_twice_are_added_as_they_are_meant(
    kind: str, dtype: type, twice: list[float], wanted: float, tmp_path: Path
) -> None:
    """The type of the file may not hold the sum."""
    values, columns = np.array([*twice, 1], dtype=dtype), np.array([1, 1, 0])
    matrix = (
        sparse.csr_array((values, columns, np.array([0, 2, 3])), shape=(2, 2))
        if kind == "csr"
        else sparse.coo_array((values, (np.array([0, 0, 1]), columns)), shape=(2, 2))
    )
    sparse.save_npz(tmp_path / "x.npz", matrix)
    blocks: list[Block] = []
    read_matrices(tmp_path / "x.npz", None, blocks.append)
    (block,) = blocks
    assert (block.row_sizes.tolist(), block.indices.tolist(), block.values.tolist()) == ([1, 1], [1, 0], [wanted, 1])


def test_a_label_that_is_stored_twice_is_one(tmp_path: Path) -> None:
    """128 + 128 is 0 in the type of the file, which would be no label."""
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_array(np.eye(1)))
    labels = sparse.csr_array((np.array([128, 128], dtype=np.uint8), np.array([2, 2]), np.array([0, 2])), shape=(1, 3))
    sparse.save_npz(tmp_path / "x_labels.npz", labels)
    blocks: list[Block] = []
    read_matrices(tmp_path / "x.npz", tmp_path / "x_labels.npz", blocks.append)
    assert [block.labels.tolist() for block in blocks] == [[2]]


@pytest.mark.parametrize("entries", [
    {"format": 3},
    {"format": "bsr", "shape": [2, 2], "data": np.ones((0, 0, 0)), "indices": [0, 1], "indptr": [0, 1, 2]},
])  # fmt: skip
def test_archives_that_hold_no_matrix(entries: dict[str, object], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **entries)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"x\.npz: no sparse matrix of SciPy's save_npz"):
        read_matrices(tmp_path / "x.npz", None, lambda block: None)


def test_an_archive_whose_compression_is_damaged(tmp_path: Path) -> None:
    path, entry = tmp_path / "x.npz", io.BytesIO()
    np.save(entry, np.array("csr"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("format.npy", entry.getvalue())
    content = bytearray(path.read_bytes())
    content[content.index(b"format.npy") + len("format.npy") + 9] = 0xFF  # the first byte of LZMA's code is 0
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.npz: no sparse matrix of SciPy's save_npz"):
        read_matrices(path, None, lambda block: None)


def test_indices_are_checked_before_a_matrix_is_converted(tmp_path: Path) -> None:
    """SciPy's conversion from columns to rows would write beyond its arrays."""
    matrix = sparse.csc_array(np.eye(3))
    matrix.indices[0] = 10**6
    sparse.save_npz(tmp_path / "x.npz", matrix)
    with pytest.raises(
        DataError, match=r"no sparse matrix of SciPy's save_npz .*; write one by scipy\.sparse\.save_npz"
    ):
        read_matrices(tmp_path / "x.npz", None, lambda block: None)


def test_features_alone(tmp_path: Path) -> None:
    """New rows have no labels; those of a table are not even read."""
    write_npz(tmp_path)
    write_csv(tmp_path, train=CSV["train"].replace("0 3", "cat"))
    (tmp_path / "bare.csv").write_text("1,0,0,0,0,0.5\n0,2,0,0,0,0\n0,0,3,0,0,0\n")
    found: list[list[Block]] = [[], [], []]
    read_matrices(tmp_path / "train.npz", None, found[0].append)
    read_row_table(tmp_path / "bare.csv", found[1].append, labelled=False)
    read_row_table(tmp_path / "train.csv", found[2].append, labelled=False)
    for (block,) in found:
        assert block.row_sizes.tolist() == [2, 1, 1]
        assert block.indices.tolist() == [0, 5, 1, 2]
        assert block.values.tolist() == [1, 0.5, 2, 3]
        assert block.label_sizes.tolist() == [0, 0, 0]


# ---------------------------------------------------------------- rows without a label


def task_of(folder: Path) -> Classification:
    config = compose(["dataset=xmc", f"dataset.path={folder}", "batch_size=1"])
    return Classification(config, config.dataset.build())


def test_rows_that_are_left_out_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(tmp_path / "mine", WRITERS["given-train-test"])
    said = "rows without a label in this set are left out: 1 of 3 training rows"
    assert f"xmc: {said}\n" in capsys.readouterr().err
    task = task_of(tmp_path / "mine")
    assert capsys.readouterr().err == "", "they are prepared already"
    assert task.description.endswith(f"4 classes; {said}")
    assert task.about_data()["rows_without_label"] == {"train": 1, "test": 0}


def test_nothing_is_said_where_nothing_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.txt").write_text(TRAIN.replace("\n 1:2", "\n1 1:2"))
    (tmp_path / "test.txt").write_text(TEST)
    task = task_of(tmp_path)
    assert "label" not in capsys.readouterr().err
    assert task.description.endswith("4 classes")
    assert "rows_without_label" not in task.about_data()


def test_rows_of_a_card_that_are_left_out_are_said(
    make_card: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_card()
    mirror = write_pair(tmp_path / "m")
    many = "".join(" 0:1\n" for _ in range(1234))
    (mirror / "toy_test.txt").write_text(f"1236 6 4\n{many}1 0:1\n3 5:2\n")
    prepare_card("toy", given=mirror)
    said = "toy: rows without a label in this set are left out: 1 of 3 training rows and 1,234 of 1,236 test rows\n"
    assert said in capsys.readouterr().err
