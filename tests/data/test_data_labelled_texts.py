"""Tables of texts and named labels become rows whose numbers are those of scikit-learn, however lists are written."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from runner.config import compose
from runner.data import LabelledRows, XmcDataset, XmcFilesConfig
from runner.data.rows.label_cells import names_in, separator_in
from runner.data.rows.vectorize import read_vectorizer
from runner.errors import ConfigError, DataError

TEXTS = ["ripe apple and pear", "hammer, saw", "apple saw", "a pear", "Saw the saw"]
LABELS = [["fruit"], ["tool"], ["fruit", "tool"], ["fruit"], []]


def written(folder: Path, ending: str, cell: str = "{}") -> Path:
    path = folder / f"mine{ending}"
    rows = list(zip(TEXTS, LABELS, strict=True))
    if ending == ".jsonl":
        path.write_text("".join(json.dumps({"body": text, "tags": tags}) + "\n" for text, tags in rows))
        return path
    between = "\t" if ending == ".tsv" else ","
    cells = [[text, cell.format(";".join(tags)) if cell != "pandas" else str(tags)] for text, tags in rows]
    quoted = [[f'"{word}"' if between in word else word for word in row] for row in cells]
    path.write_text("\n".join(between.join(row) for row in [["body", "tags"], *quoted]) + "\n")
    return path


def own(path: Path, **more: object) -> XmcDataset:
    return XmcFilesConfig(path=str(path), text="body", labels="tags", test_path=str(path), **more).build()  # type: ignore[arg-type]


def matrix(rows: LabelledRows, num_features: int) -> np.ndarray:
    return csr_array((rows.values, rows.indices, rows.indptr), shape=(rows.num_rows, num_features)).toarray()


@pytest.mark.parametrize(("ending", "cell"), [(".csv", "{}"), (".csv", "pandas"), (".tsv", "{}"), (".jsonl", "")])
def test_texts_become_what_scikit_learn_makes_of_them(ending: str, cell: str, tmp_path: Path) -> None:
    data = own(written(tmp_path, ending, cell))
    assert data.label_names() == ["fruit", "tool"], "the most frequent first"
    assert data.train.labels.tolist() == [0, 1, 0, 1, 0]
    assert (data.train.num_rows, data.train.rows_dropped) == (4, 1)
    wanted = TfidfVectorizer().fit(TEXTS[:4])
    np.testing.assert_allclose(matrix(data.train, data.num_features), wanted.transform(TEXTS[:4]).toarray(), rtol=1e-6)
    assert data.vectorizer_path is not None
    vectorizer = read_vectorizer(data.vectorizer_path)
    assert vectorizer.terms == tuple(wanted.get_feature_names_out())
    new = ["saw, unheard, saw PEAR", ""]
    np.testing.assert_allclose(vectorizer.matrix(new).toarray(), wanted.transform(new).toarray(), rtol=1e-6)


def test_options_of_the_vocabulary(tmp_path: Path) -> None:
    file = written(tmp_path, ".csv")
    assert own(file, min_rows=2).num_features == 3, "apple, pear and saw"
    assert own(file, most_features=2).num_features == 2
    assert own(file, ngrams=2).num_features > own(file).num_features
    hashed = own(file, vectorizer="hashing", most_features=64)
    assert hashed.num_features == 64
    np.testing.assert_allclose((matrix(hashed.train, 64) ** 2).sum(axis=1), 1, rtol=1e-6)


def test_rows_are_split_and_labels_of_test_rows_alone_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"word{i % 3} more,label{i % 3}\n" for i in range(30))
    (tmp_path / "all.csv").write_text("body,tags\n" + lines)
    data = XmcFilesConfig(path=str(tmp_path / "all.csv"), text="body", labels="tags", test_share=0.2).build()
    assert (data.train.num_rows, data.test.num_rows) == (24, 6)
    (tmp_path / "test.csv").write_text("tags,body\nlabel1,word1\nunheard,word2\n")
    with_test = XmcFilesConfig(
        path=str(tmp_path / "all.csv"), test_path=str(tmp_path / "test.csv"), text="body", labels="tags"
    ).build()
    assert with_test.label_names() == ["label0", "label1", "label2", "unheard"]
    assert "1 of 4 labels occur in test rows only, such as 'unheard'" in capsys.readouterr().err


@pytest.mark.parametrize(("cell", "names"), [
    ("['a b', \"it's\"]", ["a b", "it's"]), ("['a' 'b'\n 'c']", ["a", "b", "c"]), ('["a", "\\u00e4"]', ["a", "ä"]),
    ("[1 2]", ["1", "2"]), ("('a',)", ["a"]), ("{'b', 'a'}", ["b", "a"]), (["x", None, " y  z "], ["x", "y z"]),
    ("a;b; a;", ["a", "b"]), ("(old) way", ["(old) way"]), ("", []), ("nan", []), (None, []), (float("nan"), []),
    ("[]", []), (7, ["7"]),
])  # fmt: skip
def test_lists_as_people_write_them(cell: object, names: list[str]) -> None:
    assert names_in(cell, ";") == names


def test_the_separator_of_most_cells_is_taken() -> None:
    assert separator_in(["a, b;c", "d;e", "['x|y']", "f"]) == (";", "a, b;c")
    assert separator_in(["a", "['b', 'c']"]) is None
    assert names_in("Washington, D.C.", None) == ["Washington, D.C."]


@pytest.mark.parametrize(("name", "text", "message"), [
    ("a.csv", "body,tag\nx y,z\n", r"a\.csv: line 1: no column named 'tags'; .* dataset\.labels=COLUMN"),
    ("a.csv", "body,tags\nx y,z\n1\n", r"a\.csv: line 3: 1 columns, but the header has 2"),
    ("a.csv", "body,tags\nxx yy,['z'\n", r"a\.csv: column tags: every label is"),
    ("a.csv", 'body,tags\nxx yy,"[\'z\', (]"\n', r"a\.csv: line 2: column tags: .* cannot be read as one"),
    ("a.csv", "body,tags\nx y,p\nz,q\n", r"a\.csv: column body: the training texts have no word of two letters"),
    ("a.jsonl", '{"body": "x"}\n', r"a\.jsonl: line 1: no key named 'tags'; the row has body"),
    ("a.jsonl", '{"body": 1, "tags": []}\n', r"a\.jsonl: line 1: column body: '1' is no text"),
    ("a.jsonl", '[{"body": 1}]\n', r"a\.jsonl: line 1: is not a JSON object; .* orient='records', lines=True"),
    ("a.jsonl", '{"body": "x y", "tags": {"b": 1}}\n', r"a\.jsonl: line 1: column tags: .* is not the name of a label"),
    ("a.csv", "body,tags\n", r"a\.csv: the file has no rows"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        own(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    for words, message in [
        (["dataset.text=body"], "dataset.text and dataset.labels go together"),
        (["dataset.ngrams=2"], "dataset.ngrams is for tables of texts: give dataset.text=COLUMN too"),
        (["dataset.text=a", "dataset.labels=a"], "both name 'a'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            compose(["dataset=xmc", f"dataset.path={tmp_path / 'a.csv'}", *words])
    with pytest.raises(ConfigError, match=r"is a file; for a table of texts name its columns, dataset\.text=COLUMN"):
        compose(["dataset=xmc", f"dataset.path={tmp_path / 'a.csv'}"]).dataset.build()


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    pd.DataFrame({"body": TEXTS, "tags": LABELS}).to_parquet(tmp_path / "mine.parquet")
    assert own(tmp_path / "mine.parquet").checksum == own(written(tmp_path, ".jsonl")).checksum
