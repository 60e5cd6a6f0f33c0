"""Rankings of new rows and new users are those that the run itself was measured by."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from runner.config import compose
from runner.data.rows.batches import take
from runner.ranking import rows
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder

Ranked = Callable[..., tuple[int, list[list[str]], str]]


@pytest.fixture(scope="module")
def trained_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(compose([
        "dataset=synthetic_xc", "dataset.num_classes=60", "dataset.num_features=200", "dataset.num_train=96",
        "dataset.num_test=20", "sampler=uniform", "sampler.num_samples=10", "model.hidden=8", "batch_size=32",
        "epochs=1", "hardware.threads=1", f"results_dir={tmp_path_factory.mktemp('rows')}",
    ]))  # fmt: skip


@pytest.fixture(scope="module")
def trained_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(compose([
        "dataset=synthetic_log", "dataset.num_users=60", "dataset.num_items=40", "epochs=1", "model.length=5",
        "hardware.threads=1", f"results_dir={tmp_path_factory.mktemp('log')}",
    ]))  # fmt: skip


def as_xc_text(data: object, rows: int) -> str:
    lines = [f"{rows} 200 60"]
    for row in range(rows):
        part = slice(data.indptr[row], data.indptr[row + 1])  # type: ignore[attr-defined]
        pairs = zip(data.indices[part], data.values[part], strict=True)  # type: ignore[attr-defined]
        lines.append(" " + " ".join(f"{feature}:{value!r}" for feature, value in pairs))
    return "\n".join(lines).replace("np.float32(", "").replace(")", "") + "\n"


def test_rows_without_labels_are_ranked_as_in_the_evaluation(
    trained_rows: Path, ranked: Ranked, tmp_path: Path
) -> None:
    folder = RunFolder(trained_rows)
    config = compose(["dataset=synthetic_xc", "dataset.num_classes=60", "dataset.num_features=200",
                      "dataset.num_train=96", "dataset.num_test=20", "sampler=uniform", "sampler.num_samples=10",
                      "model.hidden=8", "batch_size=32", "epochs=1", "hardware.threads=1",
                      f"results_dir={trained_rows.parent.parent}"])  # fmt: skip
    network, task, _ = load_trained(config, folder)
    hidden_BD = network.encoder.encode(take(task.data.test, np.arange(20)))
    top_BK = network.head.top(hidden_BD, 3)
    file = tmp_path / "new.txt"
    file.write_text(as_xc_text(task.data.test, 20))
    status, lines, _ = ranked(trained_rows, file, "-k", 3)
    assert status == 0
    assert lines[0] == ["row", "rank", "class", "score", "probability"]
    assert [[int(line[0]), int(line[1]), int(line[2])] for line in lines[1:]] == [
        [row + 1, rank + 1, top_BK[row, rank]] for row in range(20) for rank in range(3)
    ]
    logits_BN = np.empty((20, 60), dtype=np.float32)
    network.head.layer.block_logits(hidden_BD, 0, 60, logits_BN)
    scores = np.array([float(line[3]) for line in lines[1:]]).reshape(20, 3)
    np.testing.assert_allclose(scores, np.take_along_axis(logits_BN, top_BK, axis=1), rtol=1e-4, atol=1e-5)
    chances = np.array([float(line[4]) for line in lines[1:]]).reshape(20, 3)
    softmax_BN = np.exp(logits_BN.astype(float)) / np.exp(logits_BN.astype(float)).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, np.take_along_axis(softmax_BN, top_BK, axis=1), rtol=1e-4)
    _, likely, _ = ranked(trained_rows, file, "-k", 3, "--threshold", np.median(chances))
    assert likely[1:] == [line for line in lines[1:] if float(line[4]) >= np.median(chances)]


def written_as(form: str, folder: Path, rows_RF: np.ndarray) -> tuple[Path, list[str]]:
    """Write rows in a form that predict reads; return the file and what must be said beside it."""
    cells = [[repr(value) for value in row] for row in rows_RF.tolist()]
    pairs = [[f"{i + 1}:{value!r}" for i, value in enumerate(row) if value] for row in rows_RF.tolist()]
    bare = "\n".join(",".join(row) for row in cells) + "\n"
    if form.startswith("npz"):
        sparse.save_npz(folder / "new.npz", sparse.csc_array(rows_RF))
        return folder / "new.npz", []
    name, text, more = {
        "svm": ("new.svm", "\n".join(" ".join(row) for row in pairs) + "\n", []),
        "svm, any name": ("rows", "\n".join(" ".join(row) for row in pairs) + "\n", ["--layout", "libsvm"]),
        "bare": ("new.csv", bare, []),
        "header": ("new.tsv", "\t".join(f"f{i}" for i in range(200)) + "\n" + bare.replace(",", "\t"), []),
        "labels": ("new.CSV", "labels," + ",".join(f"f{i}" for i in range(200)) + "\n"
                   + "".join(f"1 2,{line}\n" for line in bare.splitlines()), []),
    }[form]  # fmt: skip
    (folder / name).write_text(text)
    return folder / name, more


@pytest.mark.parametrize("form", ["npz", "svm", "svm, any name", "bare", "header", "labels"])
def test_rows_in_any_form_are_ranked_alike(form: str, trained_rows: Path, ranked: Ranked, tmp_path: Path) -> None:
    rows_RF = sparse.random_array((7, 200), density=0.03, rng=3, dtype=np.float32).toarray()
    text = tmp_path / "new.txt"
    csr = sparse.csr_array(rows_RF)
    csr.values = csr.data
    text.write_text(as_xc_text(csr, 7))
    _, wanted, _ = ranked(trained_rows, text, "-k", 4)
    file, more = written_as(form, tmp_path, rows_RF)
    status, lines, err = ranked(trained_rows, file, "-k", 4, *more)
    assert (status, err) == (0, "")
    assert lines == wanted
    assert len(lines) == 1 + 7 * 4


def test_many_classes_of_a_row_are_ranked_a_few_rows_at_a_time(
    trained_rows: Path, ranked: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_RF = sparse.random_array((7, 200), density=0.03, rng=3, dtype=np.float32).toarray()
    file, _ = written_as("npz", tmp_path, rows_RF)
    _, wanted, _ = ranked(trained_rows, file, "-k", 60)
    monkeypatch.setattr(rows, "NUMBERS_AT_ONCE", 2 * 60 * 8)
    _, found, _ = ranked(trained_rows, file, "-k", 100)
    assert [line[:-1] for line in found] == [line[:-1] for line in wanted]
    chances = [[float(line[-1]) for line in lines[1:]] for lines in (found, wanted)]
    np.testing.assert_allclose(*chances, rtol=1e-4)


@pytest.mark.parametrize(("name", "text", "message"), [
    ("x.csv", "5,2\n", "x.csv: 2 columns of features, but the run was trained with 200; prepare these rows as its"),
    ("x.csv", "a,b\n1,2\n3,nan\n", "x.csv: line 3: column 2 (b): 'nan' is not a finite number; fill it in"),
    ("x.csv", "5,2\n3,red\n", "x.csv: line 2: column 2: 'red' is not a number; columns of text and categories are not"),
    ("x.csv", "5,2\n3\n", "x.csv: line 2: column 2 is missing: 1 columns, but line 1 has 2"),
    ("x.csv", "\n".join([",".join(map(str, range(200))), ",".join(["0.5"] * 200)]),
     "x.csv: line 1: 0 to 199 in order may be a header or a row"),
    ("x.npz", "1,2\n", "x.npz: no sparse matrix of SciPy's save_npz"),
    ("x.svm", "0:1\n", "x.svm: line 1: feature index outside 1..2147483647 in '0:1'; indices begin at 1 here"),
    ("x.svm", "3:1\n-1 3:1\n", "x.svm: line 2: expected comma-separated label numbers, found '-1'"),
    ("x.svm", "1.5 3:1\n", "x.svm: line 1: expected comma-separated label numbers, found '1.5'"),
    ("x.svm", "201:1\n", "x.svm: feature 201 is beyond the 200 features that the run was trained with"),
])  # fmt: skip
def test_rows_that_cannot_be_ranked(
    name: str, text: str, message: str, trained_rows: Path, ranked: Ranked, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    status, lines, err = ranked(trained_rows, tmp_path / name)
    assert (status, lines) == (2, [])
    assert message in err
    assert err.count("\n") == 1


def test_a_matrix_of_other_features_is_refused(trained_rows: Path, ranked: Ranked, tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_array((3, 199)))
    status, _, err = ranked(trained_rows, tmp_path / "x.npz")
    assert status == 2
    assert "x.npz: 199 columns of features, but the run was trained with 200" in err


def test_users_get_the_items_that_they_have_not_taken(trained_log: Path, ranked: Ranked, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("who,item,time\nanna,i03,5\nanna,i07,1\nbob,i01,2\ncarl,unheard,1\nbob,unheard,3\n")
    out = tmp_path / "ranked.tsv"
    status, lines, err = ranked(trained_log, log, "--user", "who", "-k", 40, "--out", out)
    assert (status, lines) == (0, [])
    assert (
        "2 events of items that the run never saw are left out: they are called 'unheard', those of the run 'i" in err
    )
    assert "1 users have no event that counts" in err
    found = [line.split("\t") for line in out.read_text().splitlines()]
    assert found[0] == ["user", "rank", "item", "score", "probability"]
    of_anna = [line for line in found[1:] if line[0] == "anna"]
    assert {line[0] for line in found[1:]} == {"anna", "bob"}
    assert [int(line[1]) for line in of_anna] == list(range(1, 39)), "40 items but the two that she took"
    assert not {"i03", "i07"} & {line[2] for line in of_anna}
    scores = [float(line[3]) for line in of_anna]
    assert scores == sorted(scores, reverse=True)
    assert sum(float(line[4]) for line in of_anna) == pytest.approx(1, abs=1e-4), "of all items that are ranked"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "ranked.tsv"]


def test_the_order_of_events_is_that_of_time(trained_log: Path, ranked: Ranked, tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("user,item,time\nx,i03,1\nx,i07,2\nx,i05,3\n")
    second.write_text("user,item,time\nx,i05,3\nx,i03,1\nx,i07,2\n")
    assert ranked(trained_log, first)[1] == ranked(trained_log, second)[1]


@pytest.mark.parametrize(
    ("which", "text", "words", "message"),
    [
        ("rows", "a,b\n", (), "line 1: header `rows features labels` missing"),
        ("rows", "1 900 60\n1 899:1.0\n", (), "feature 899 is beyond the 200 features that the run was trained with"),
        ("rows", "1 200 60\n1 3:1.0\n", ("-k", "0"), "-k must be at least 1"),
        ("rows", "1 200 60\n1 3:1.0\n", ("--out", "no/such/file"), "--out: there is no folder no/such; make it first"),
        ("log", "who,item,time\na,i03,1\n", (), "name the column by --user COLUMN"),
        ("log", "user,item,time\na,unheard,1\n", (), "no event is of an item that the run knows"),
    ],
)
def test_mistakes_are_one_line(
    which: str, text: str, words: tuple[str, ...], message: str, request: pytest.FixtureRequest, ranked: Ranked,
    tmp_path: Path,
) -> None:  # fmt: skip
    file = tmp_path / "new.txt"
    file.write_text(text)
    status, _, err = ranked(request.getfixturevalue(f"trained_{which}"), file, *words)
    assert status == 2
    assert message in err
    assert err.strip().splitlines()[-1].startswith("error: ")


def test_a_missing_file_is_told_before_anything_is_loaded(ranked: Ranked, tmp_path: Path) -> None:
    status, _, err = ranked(tmp_path, tmp_path / "missing.txt")
    assert (status, err) == (2, f"error: {tmp_path / 'missing.txt'}: no such file\n")


@pytest.fixture(scope="module")
def trained_table(tmp_path_factory: pytest.TempPathFactory, prepared_root: Path) -> Path:
    """A run on tables with a header, whose column of labels stands between those of the features."""
    folder = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        label_R = generator.integers(0, 4, 80)
        cells = np.round(np.eye(4)[label_R] + 0.1 * generator.random((80, 4)), 3).astype(str)
        lines = [",".join([*row[:2], str(label), *row[2:]]) for row, label in zip(cells, label_R, strict=True)]
        (folder / f"{split}.csv").write_text("\n".join(["a,b,labels,c,d", *lines, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(prepared_root))
        return run(compose([
            "dataset=xmc", f"dataset.path={folder}", "sampler=full", "model.hidden=8", "batch_size=16", "epochs=12",
            "optimizer.lr=0.03", "hardware.threads=1", f"results_dir={folder}",
        ]))  # fmt: skip


ROWS = {"a": [1.0, 0.05, 0.02], "b": [0.03, 0.01, 1.0], "c": [0.07, 0.0, 0.02], "d": [0.01, 1.0, 0.06]}


@pytest.mark.parametrize("columns", ["abcd", "dcba", "bd,labels,ac", "labels,cadb"])
def test_columns_are_found_by_their_names(
    columns: str, trained_table: Path, ranked: Ranked, tmp_path: Path, own_data_dir: Path
) -> None:
    names = [name for part in columns.split(",") for name in ([part] if part == "labels" else part)]
    rows = [[*ROWS, "labels"], *([*map(str, row), "?"] for row in zip(*ROWS.values(), strict=True))]
    place = [rows[0].index(name) for name in names]
    (tmp_path / "new.csv").write_text("".join(",".join(row[at] for at in place) + "\n" for row in rows))
    status, lines, err = ranked(trained_table, tmp_path / "new.csv", "-k", 4)
    assert (status, err) == (0, "")
    (tmp_path / "bare.csv").write_text("".join(",".join(row[:4]) + "\n" for row in rows[1:]))
    assert lines == ranked(trained_table, tmp_path / "bare.csv", "-k", 4)[1]
    assert [line[2] for line in lines if line[1] == "1"] == ["0", "3", "1"]


@pytest.mark.parametrize(("header", "message"), [
    ("a,b,c,e", "line 1: no column is called 'd', as one is that the run was trained with"),
    ("A,b,c,d", "line 1: no column is called 'a'"),
    ("a,b,c", "line 1: no column is called 'd'"),
    ("a,b,id,c,d", "line 1: column 'id' is none of those that the run was trained with; leave it out"),
])  # fmt: skip
def test_other_names_of_columns_are_refused(
    header: str, message: str, trained_table: Path, ranked: Ranked, tmp_path: Path, own_data_dir: Path
) -> None:
    (tmp_path / "new.csv").write_text(f"{header}\n{','.join(['0.5'] * len(header.split(',')))}\n")
    status, lines, err = ranked(trained_table, tmp_path / "new.csv")
    assert (status, lines) == (2, [])
    assert message in err
    assert err.count("\n") == 1
