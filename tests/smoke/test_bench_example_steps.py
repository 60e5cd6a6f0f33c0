"""The bench of training steps by sampler of examples measures what it says, on a few examples; no time is asserted."""

import json
from pathlib import Path

import numpy as np
import pytest

from runner.bench import example_steps, machine
from runner.bench.settings import ExampleSteps
from tests.smoke.test_bench import cells, load_front


def test_every_method_is_measured_beside_uniform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_last_level_cache", lambda: 0)
    monkeypatch.setattr(machine, "_SMALLEST_ARRAY", 2**16)
    monkeypatch.setattr(machine, "_SQUARE", 64)
    monkeypatch.setattr(example_steps, "_SECONDS", 0.002)
    monkeypatch.setattr(example_steps, "NUM_FEATURES", 5)
    path = tmp_path / "report.json"
    command = ["example_steps", "examples=300", "batches=1,4", "repetitions=2", "threads=1"]
    assert load_front().main([*command, "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    (size,) = report["sizes"]
    assert size["examples"] == 300
    rows = {(row["method"], row["batch_size"]): row for row in size["results"]}
    assert rows.keys() == {(method, batch) for method in example_steps.METHODS for batch in (1, 4)}
    for row in rows.values():
        assert row["status"] == "measured"
        assert row["ns_per_example"]["lowest"] > 0
        assert row["times_uniform"]["lowest"] <= row["times_uniform"]["median"] <= row["times_uniform"]["highest"]
    text = path.with_suffix(".md").read_text()
    assert "## 300 examples" in text
    assert all([row[1] for row in cells(text, method)] == ["1", "4"] for method in example_steps.METHODS)


def test_too_many_examples_are_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 1e9)
    part = example_steps.one_size(10_000_000, ExampleSteps(batches=(1,), repetitions=1))
    assert {row["status"] for row in part["results"]} == {"skipped: needs 9.7 GB, 1.0 GB free"}


def test_random_examples_have_mean_0_and_variance_1() -> None:
    vectors = example_steps.stored(2_000).vectors_XD
    assert np.abs(vectors.mean(axis=0)).max() < 5 / np.sqrt(2_000)
    np.testing.assert_allclose(vectors.var(axis=0), 1, atol=0.15)


@pytest.mark.parametrize("wrong", ["examples=3", "batches=0", "repetitions=0"])
def test_mistakes_are_one_line(wrong: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert load_front().main(["example_steps", wrong, "--json", str(tmp_path / "x.json")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {wrong.partition('=')[0]} must be at least")
