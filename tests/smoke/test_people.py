"""From a table of texts and labels to names and probabilities: by the command, in a notebook, from the folder alone."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from runner import export as export_command
from runner import load_run
from runner.config import compose
from runner.errors import DamagedRun, DataError, RunnerError
from runner.training.run import run

Ranked = Callable[..., tuple[int, list[list[str]], str]]
TOPICS = {"Fruit & veg": "apple pear plum leek", "Tools": "hammer saw drill chisel", "Sea": "ship sail tide wave"}


def texts_and_labels(rows: int) -> tuple[list[str], list[list[str]]]:
    draw, names = np.random.default_rng(0), list(TOPICS)
    labels = [sorted(draw.choice(names, size=draw.integers(1, 3), replace=False).tolist()) for _ in range(rows)]
    return [" ".join(draw.choice(TOPICS[name].split()) for name in row for _ in range(3)) for row in labels], labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table that is gone, and so are its prepared data."""
    folder = tmp_path_factory.mktemp("people")
    table = folder / "notes ä, b.csv"
    rows = zip(*texts_and_labels(120), strict=True)
    table.write_text("text,topics\n" + "".join(f'{text},"{labels}"\n' for text, labels in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(folder / "data"))
        done = run(compose([
            "dataset=xmc", f"dataset.path={table}", "dataset.text=text", "dataset.labels=topics", "sampler=full",
            "model.hidden=8", "batch_size=16", "epochs=20", "optimizer.lr=0.05", "hardware.threads=1",
            f"results_dir={folder}",
        ]))  # fmt: skip
    shutil.rmtree(folder / "data")
    table.unlink()
    return done


NEW = ["a sharp saw and a chisel", "unheard words", "plum, ship!"]


def test_texts_get_names_and_probabilities(
    trained: Path, ranked: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(NEW).encode())))
    status, lines, err = ranked(trained, "-", "-k", 3)
    assert (status, err) == (0, "")
    assert lines[0] == ["row", "rank", "class", "name", "score", "probability"]
    assert next(line[3] for line in lines[1:] if line[1] == "1") == "Tools"
    assert {line[3] for line in lines[7:9]} == {"Fruit & veg", "Sea"}
    chances = np.array([float(line[5]) for line in lines[1:]]).reshape(3, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-4)
    (tmp_path / "new.csv").write_text("id,body\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(NEW)))
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n")
    assert ranked(trained, tmp_path / "new.csv", "--text", "body", "-k", 3)[1] == lines
    assert ranked(trained, tmp_path / "new.txt", "-k", 3)[1] == lines
    likely = ranked(trained, tmp_path / "new.txt", "--threshold", 0.4)[1]
    assert likely[1:] == [line for line in lines[1:] if float(line[5]) >= 0.4]
    status, lines, err = ranked(trained, tmp_path / "new.csv")
    assert (status, lines) == (2, [])
    assert "line 1: no column named 'text'; the header has id, body" in err
    assert "name the column by --text COLUMN" in err


def test_a_notebook_predicts_as_the_command_does(trained: Path, ranked: Ranked, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n")
    _, lines, _ = ranked(trained, tmp_path / "new.txt", "-k", 2)
    loaded = load_run(trained)
    frame = loaded.predict(NEW, k=2)
    assert frame["name"].tolist() == [line[3] for line in lines[1:]]
    assert frame["row"].tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose(frame["probability"], [float(line[5]) for line in lines[1:]], rtol=1e-5)
    vectors = TfidfVectorizer().fit(texts_and_labels(120)[0])
    assert loaded.predict(vectors.transform(["saw"]), k=1)["name"].tolist() == ["Tools"]
    for given, message in [
        ("one text", "give a list of texts, also for a single one"),
        ([1], "entry 0 is '1', no text"),
        (np.zeros((2, 3)), "a matrix of 3 columns, but the run was trained with 12 features"),
    ]:
        with pytest.raises(DataError, match=message):
            loaded.predict(given)


def test_what_a_run_keeps_is_checked(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / trained.name
    shutil.copytree(trained, copy)
    assert sum(path.stat().st_size for path in (copy / "prediction").iterdir()) < 2000
    (copy / "prediction" / "labels.txt.gz").write_bytes(b"x")
    with pytest.raises(
        DamagedRun, match=r"prediction/labels\.txt\.gz is damaged: its content does not have its checksum"
    ):
        load_run(copy)


def test_a_run_of_the_torch_engine_predicts_alike(tmp_path: Path) -> None:
    words = [
        "dataset=synthetic_xc", "dataset.num_classes=30", "dataset.num_features=100", "dataset.num_train=64",
        "dataset.num_test=10", "sampler=full", "model.hidden=8", "batch_size=32", "epochs=1", "hardware.threads=1",
        f"results_dir={tmp_path}",
    ]  # fmt: skip
    frames = [
        load_run(run(compose([*words, *more]))).predict(np.eye(100)[:5], 3) for more in ([], ["hardware.engine=torch"])
    ]
    assert frames[0]["class"].tolist() == frames[1]["class"].tolist()
    np.testing.assert_allclose(frames[0]["probability"], frames[1]["probability"], rtol=1e-4)


def exported(run_folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["export", str(run_folder), str(target)])
    return export_command.main()


def test_an_exported_run_predicts_alike(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("safetensors")
    target = tmp_path / "packed"
    assert exported(trained, target, monkeypatch) == 0
    assert sorted(path.name for path in target.iterdir()) == [
        "config.yaml", "metrics.jsonl", "prediction", "provenance.json", "summary.json", "weights.safetensors",
    ]  # fmt: skip
    assert load_run(target).predict(NEW, 3).equals(load_run(trained).predict(NEW, 3))
    assert exported(trained, target, monkeypatch) == 2
    assert "is there already; name a new folder" in capsys.readouterr().err
    content = bytearray((target / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (target / "weights.safetensors").write_bytes(content)
    with pytest.raises(DamagedRun, match="its content does not have its checksum"):
        load_run(target)


def test_histories_of_items_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(compose([
        "dataset=synthetic_log", "dataset.num_users=40", "dataset.num_items=20", "epochs=1", "model.length=4",
        "sampler=uniform", "loss=negative_sampling", "sampler.num_samples=5", "hardware.threads=1",
        f"results_dir={tmp_path}",
    ]))  # fmt: skip
    loaded = load_run(done)
    name = loaded.task.data.item_names[0]
    frame = loaded.predict([[name], [name, "unheard"]], k=30)
    assert frame["user"].tolist() == [0] * 19 + [1] * 19, "all items but the one that was taken"
    np.testing.assert_allclose(frame["probability"], 1 / (1 + np.exp(-frame["score"])), rtol=1e-6)
    with pytest.raises(DataError, match=f"they are called 'unheard', those of the run '{name}', '"):
        loaded.predict([["unheard"]])
    with pytest.raises(RunnerError, match=r"k must be at least 1"):
        loaded.predict([[name]], k=0)
