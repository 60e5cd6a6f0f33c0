"""``sampler.products`` and ``sampler.stored_logits`` reach summary, plan and table from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.config import CONF, compose
from runner.errors import ConfigError, ProcessorLacks
from runner.kernels.target import target
from runner.report.numbers.records import status_of
from runner.report.plan.plan import plan, plan_total
from runner.report.spec.tables import load_table
from runner.samplers.full import FullConfig
from runner.training.run import run

TINY = [
    "dataset=synthetic_xc", "hardware.threads=1", "batch_size=32", "evaluation.every_epochs=1", "evaluation.rows=50",
    "dataset.num_classes=60", "dataset.num_features=200", "dataset.num_train=320", "dataset.num_test=100", "epochs=1",
    "sampler=full",
]  # fmt: skip
GRID = """
fixed: [sampler=full]
baseline: full
methods:
  - {name: full, label: Full softmax, overrides: [sampler.products=auto]}
  - {name: bf16, label: In bf16, overrides: [sampler.products=bf16]}
datasets: [{name: synthetic_xc, label: Synthetic}]
profiles:
  small: {seeds: [0], datasets: [{name: synthetic_xc, overrides: [epochs=2]}]}
  medium: {seeds: [0], datasets: [{name: synthetic_xc, overrides: []}]}
  paper: {seeds: [0], datasets: [{name: synthetic_xc, overrides: [epochs=3]}]}
"""
TABLE = "title: Toy\nkind: numbers\ngrid: toy\ncolumns: [{name: P@1, metric: test/p@1}]\n"


@pytest.fixture
def without_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    for ability in ("_has_bf16", "_bf16_pays"):
        monkeypatch.setattr(f"runner.samplers.full.{ability}", lambda: False)


def test_auto_takes_float32_where_bf16_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is on Intel's processors with AVX512_BF16 and without AMX. Asked for by name, bf16 is taken there too."""
    monkeypatch.setattr("runner.samplers.full._has_bf16", lambda: True)
    monkeypatch.setattr("runner.samplers.full._bf16_pays", lambda: False)
    by_chance, by_name = (compose([*TINY, f"sampler.products={products}"]).sampler for products in ("auto", "bf16"))
    assert isinstance(by_chance, FullConfig)
    assert isinstance(by_name, FullConfig)
    assert not by_chance.takes_bf16
    assert by_name.takes_bf16
    by_name.check_processor()


def test_what_auto_chose_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "bf16" if target().bf16_pays else "float32"
    config = compose([*TINY, "sampler.products=auto", "sampler.stored_logits=bf16", f"results_dir={tmp_path}"])
    folder = run(config)
    shown = capsys.readouterr().err
    assert f"sampler.products=auto: {chosen}" in shown
    assert "sampler.stored_logits=bf16 holds 0.00 GB (32 rows x 60 classes x 2 bytes)" in shown
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["chosen"] == {"sampler.products": chosen}


def test_logits_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.samplers.full.available_bytes", lambda: 1e9)
    config = compose([*TINY, "sampler.stored_logits=bf16"])
    with pytest.raises(ConfigError, match=r"needs 1\.37 GB \(1,024 rows x 670,091 classes x 2 bytes\) and 1\.00 GB"):
        config.sampler.check_memory(1024, 670_091)


def test_runs_without_stored_logits_keep_their_names() -> None:
    assert compose(TINY).as_dict()["sampler"]["stored_logits"] == "none"
    assert compose(TINY).run_id != compose([*TINY, "sampler.stored_logits=bf16"]).run_id


@pytest.mark.usefixtures("without_bf16")
def test_a_run_that_needs_bf16_is_refused_before_it_leaves_anything(tmp_path: Path) -> None:
    config = compose([*TINY, "sampler.products=bf16", f"results_dir={tmp_path}"])
    with pytest.raises(ProcessorLacks, match="take auto or float32"):
        run(config)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_on_the_command_line_it_is_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "runner", *TINY, "sampler.products=bf16", f"results_dir={tmp_path}"]
    done = subprocess.run(command, cwd=CONF.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    expected = "error: sampler.products=bf16 needs a processor with AVX512_BF16; take auto or float32"
    assert done.stderr.splitlines() == [expected]


@pytest.mark.usefixtures("without_bf16")
def test_in_plan_and_table_it_is_a_status(tmp_path: Path) -> None:
    (tmp_path / "conf" / "grid").mkdir(parents=True)
    (tmp_path / "conf" / "grid" / "toy.yaml").write_text(GRID)
    (tmp_path / "conf" / "toy.yaml").write_text(TABLE)
    spec = load_table("toy", tmp_path / "conf")
    auto, bf16 = plan([spec], "small", tmp_path / "results")
    assert (auto.status, bf16.status) == ("to run", "skipped: needs AVX512_BF16")
    assert status_of(bf16.run) == "skipped: needs AVX512_BF16"
    assert not bf16.is_pending
    total = plan_total([auto, bf16])
    assert "2 runs: 0 finished, 1 to run, 0 without data; 1 that needs another processor or a library" in total
