"""Tiny real runs lead from a table file to rendered numbers, with failures, Ctrl-C, resuming and missing data."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.config import CONF
from runner.report.numbers.records import RunRecord, record_of
from runner.report.plan import plan as planning
from runner.report.plan.plan import AGAIN, FINISHED, RESUME, TO_RUN, Step, execute, plan, plan_total, whole_time
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec, load_table
from runner.training.run_folder import RunFolder

SCRIPT = CONF.parent / "scripts" / "reproduce.py"
GRID = """
paper: lns
fixed: [hardware.threads=1, batch_size=32, evaluation.every_epochs=1, evaluation.rows=50,
        dataset.num_classes=60, dataset.num_features=200, dataset.num_train=640, dataset.num_test=100]
baseline: full
methods:
  - {name: full, label: Full softmax, overrides: [sampler=full]}
  - {name: broken, label: Diverges, overrides: [sampler=full, optimizer.lr=1e30]}
  - {name: other, label: Slower start, overrides: [sampler=full, optimizer.lr=1e-4]}
datasets: [{name: synthetic_xc, label: Synthetic}]
profiles:
  small: {seeds: [0], datasets: [{name: synthetic_xc, overrides: [epochs=2]}]}
  medium: {seeds: [0], datasets: [{name: synthetic_xc, overrides: [epochs=100000]}]}
  paper: {seeds: [0], datasets: [{name: synthetic_xc, overrides: [epochs=3]}]}
"""
COLUMNS = "kind: numbers\ncolumns: [{name: epoch_to_50pct}, {name: P@1, metric: test/p@1}]\n"
TABLE = f"title: Toy\n{COLUMNS}grid: toy\n"


def reproduce(*arguments: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def summaries(results_dir: Path) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in results_dir.glob("runs/*/summary.json")}


@pytest.mark.slow
def test_a_failing_run_is_a_status_and_finished_ones_are_not_repeated(
    write_tables: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_tables(grid=GRID, toy=TABLE)
    results_dir = tmp_path / "odd, 'name'"
    first = reproduce("toy", "--tables-dir", folder, "--results-dir", results_dir)
    assert first.returncode == 1, first.stderr
    assert "3 runs: 0 finished, 3 to run, 0 without data" in first.stdout
    assert "rough guess" in first.stdout
    statuses = sorted(summary["status"] for summary in summaries(results_dir).values())
    assert statuses == ["diverged", "finished", "finished"], "the run after the failing one was made"
    assert "error: Diverges on Synthetic, seed 0: diverged: the loss became" in first.stderr
    table = (results_dir / "out" / "small" / "toy.md").read_text()
    assert "| Diverges     |       diverged |" in table
    for path in first.stdout.splitlines()[-4:]:
        assert Path(path).is_file(), path

    times = {path: path.stat().st_mtime_ns for path in results_dir.glob("runs/*/summary.json")}
    (folder / "grid" / "toy.yaml").write_text("\n".join(x for x in GRID.splitlines() if "broken" not in x))
    second = reproduce("toy", "--tables-dir", folder, "--results-dir", results_dir)
    assert second.returncode == 0, second.stderr
    assert "2 runs: 2 finished, 0 to run, 0 without data" in second.stdout
    assert times == {path: path.stat().st_mtime_ns for path in results_dir.glob("runs/*/summary.json")}


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_and_renders_what_is_there(
    write_tables: Callable[..., Path], results_dir: Path
) -> None:
    folder = write_tables(grid=GRID, toy=TABLE)
    options = ["--profile", "medium", "--tables-dir", str(folder), "--results-dir", str(results_dir)]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "toy", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 180
    while not any(path.stat().st_size > 3000 for path in results_dir.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < limit
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command continues" in err
    assert "Traceback" not in err
    (summary,) = summaries(results_dir).values()
    assert summary["status"] == "interrupted"
    assert list(results_dir.glob("runs/*/checkpoint/step-*/state.json"))
    assert "unfinished" in (results_dir / "out" / "medium" / "toy.md").read_text()
    steps = plan([load_table("toy", folder)], "medium", results_dir)
    assert [step.status for step in steps] == [RESUME, TO_RUN, TO_RUN]


def test_a_change_of_the_sources_starts_another_worker(
    toy: dict[str, TableSpec], results_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([{("a.py", 1)}, {("a.py", 1)}, {("a.py", 2)}])
    started: list[Any] = []

    class Child:
        def __init__(self) -> None:
            self.stdin, self.stdout = io.BytesIO(), io.BytesIO(b"0\n" * 9)
            started.append(self)

        def poll(self) -> None:
            return None

        def communicate(self) -> None:
            self.stdin.close()

    monkeypatch.setattr(planning, "_sources", lambda: frozenset(next(states)))
    monkeypatch.setattr(planning, "_start", lambda *arguments, **pipes: Child())
    (step, *_) = plan([toy["convergence"]], "small", results_dir)
    worker = planning._Worker(planning._Stopper())
    assert [worker.run(step) for _ in range(3)] == [0, 0, 0]
    assert [child.stdin.closed for child in started] == [True, False]


def test_a_process_that_dies_without_a_word_is_recorded(
    toy: dict[str, TableSpec], results_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(planning.sys, "executable", str(dying))
    steps = plan([toy["convergence"]], "small", results_dir)
    outcome = execute(steps[:2])
    assert [why for _, why in outcome.failed] == ["failed: the process was killed by SIGKILL"] * 2
    assert not outcome.stopped
    assert record_of(steps[0].run).status == "failed"
    assert record_of(steps[0].run).config["sampler"]["name"] == "full"
    assert [step.status for step in plan([toy["convergence"]], "small", results_dir)] == [
        AGAIN,
        AGAIN,
        TO_RUN,
    ]


def test_a_run_that_another_process_holds_keeps_its_folder(
    toy: dict[str, TableSpec], results_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that ends because the folder is locked must not mark the other process's run as failed."""
    ending = tmp_path / "python"
    ending.write_text("#!/bin/sh\nexit 2\n")
    ending.chmod(0o755)
    monkeypatch.setattr(planning.sys, "executable", str(ending))
    step = plan([toy["convergence"]], "small", results_dir)[0]
    with RunFolder(step.run.config.run_dir).locked():
        outcome = execute([step])
    assert "another process" in outcome.failed[0][1]
    assert record_of(step.run).status == "not run"


@pytest.mark.slow
def test_data_that_are_not_prepared_skip_and_do_not_fail(write_tables: Callable[..., Path], results_dir: Path) -> None:
    folder = write_tables()
    done = reproduce("toy2", "--profile", "paper", "--tables-dir", folder, "--results-dir", results_dir)
    assert done.returncode == 0, done.stderr
    assert "3 runs: 0 finished, 0 to run, 3 without data" in done.stdout
    assert "skipped: data not prepared (python scripts/prepare_dataset.py amazon670k)" in done.stdout
    assert "\nin all, runs, tables and figures take about " in done.stdout
    assert not (results_dir / "runs").exists()
    assert "37.5" in (results_dir / "out" / "paper" / "toy2.md").read_text()


@pytest.mark.slow
def test_dry_run_and_render_only_run_nothing(write_tables: Callable[..., Path], results_dir: Path) -> None:
    folder = write_tables(grid=GRID, toy=TABLE)
    options = ["--tables-dir", folder, "--results-dir", results_dir]
    assert reproduce("toy", *options, "--dry-run").returncode == 0
    assert not results_dir.exists()
    assert reproduce("toy", *options, "--render-only").returncode == 0
    assert not (results_dir / "runs").exists()
    assert "not run" in (results_dir / "out" / "small" / "toy.md").read_text()


def test_mistakes_on_the_command_line_are_one_line(results_dir: Path) -> None:
    for arguments, hint in (
        (["lns_tabel2"], "did you mean 'lns_table2'"),
        (["--profile", "smal"], "mean 'small'"),
    ):
        done = reproduce(*arguments, "--results-dir", results_dir, "--dry-run")
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert hint in done.stderr


def test_estimates_come_from_earlier_runs_of_the_same_method(
    toy: dict[str, TableSpec],
    planned: Callable[..., list[PlannedRun]],
    pick: Callable[..., PlannedRun],
    write_run: Callable[..., Path],
    results_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a small run at 25 s per epoch, a medium run of 4 epochs takes 100 s and the start; nothing is guessed."""
    monkeypatch.setattr(planning, "COMPILE_SECONDS", 0.0)
    runs = planned(toy["convergence"].grid, "small")
    write_run(pick(runs, "full"), [0.5], seconds=25)
    steps = {(s.run.method, s.run.seed): s for s in plan([toy["convergence"]], "medium", results_dir)}
    assert steps["full", 0].status == "finished", "seed 0 is the same run in both profiles"
    assert steps["full", 1].measured
    assert 100 < (steps["full", 1].seconds or 0) < 130
    assert not steps["nce", 1].measured
    assert "estimated time" in plan_total(list(steps.values()))


def test_a_plan_ends_with_one_total(toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]]) -> None:
    first, second, third = planned(toy["convergence"].grid, "small")
    steps = [
        Step(run=first, title="", status=TO_RUN, seconds=60.0, measured=True),
        Step(run=second, title="", status=RESUME, seconds=120.0, measured=False),
        Step(run=third, title="", status=FINISHED, seconds=3600.0, measured=True),
    ]
    assert whole_time(steps, 420.0) == "in all, runs, tables and figures take about 10 min"
    unknown = Step(run=third, title="", status=TO_RUN, seconds=None, measured=False)
    assert whole_time([*steps[:2], unknown], 420.0).endswith("about 10 min, and 1 run of unknown length")
    assert whole_time([], 5.0).endswith("about 5 s")


def test_runs_ask_for_this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they find what this process finds, such as a plugin beside the user."""
    monkeypatch.syspath_prepend("/elsewhere")
    first, *others = planning.python_path().split(os.pathsep)
    assert first == str(CONF.parent)
    assert "/elsewhere" in others


def test_record_of_nothing_is_not_run(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "none")
    assert (record.status, record.finished, record.observations) == ("not run", False, [])


@pytest.mark.slow
def test_without_names_costly_tables_are_left_out_and_named(
    write_tables: Callable[..., Path], results_dir: Path
) -> None:
    folder = write_tables(grid=GRID, toy=TABLE)
    costly = GRID.replace("baseline: full", "baseline: full\nby_name: true")
    (folder / "grid" / "costly.yaml").write_text(costly)
    (folder / "big.yaml").write_text(f"title: Big\n{COLUMNS}grid: costly\n")
    options = ["--tables-dir", folder, "--results-dir", results_dir]
    plain = reproduce(*options, "--dry-run")
    assert "3 runs" in plain.stdout
    assert "not in this plan, because they are run by name only: big" in plain.stdout
    named = reproduce("big", *options, "--dry-run")
    assert "3 runs" in named.stdout
    assert "run by name only" not in named.stdout
    listed = reproduce(*options, "--list").stdout
    assert "Big (run by name only)" in listed
    assert "Toy (run" not in listed
    (folder / "bench").mkdir()
    (folder / "bench" / "times.yaml").write_text("title: Times\nkind: kernels\nseconds: 9\npaper: lns\n")
    assert reproduce(*options, "--render-only").returncode == 0
    rendered = {path.name for path in (results_dir / "out" / "small").glob("*.md")}
    assert rendered == {"REPRODUCTION.md", "to-publish.md", "toy.md"}
    page = (results_dir / "out" / "small" / "REPRODUCTION.md").read_text()
    assert "- Times: not measured; `make reproduce TABLE=times` does so\n" in page


@pytest.mark.slow
def test_tables_that_no_runs_make_are_measured_by_name(write_tables: Callable[..., Path], results_dir: Path) -> None:
    folder = write_tables(grid=GRID, toy=TABLE)
    (folder / "bench").mkdir()
    (folder / "bench" / "times.yaml").write_text("title: Times\nkind: kernels\nsettings: {draws: 1}\nseconds: 9\n")
    options = ["--tables-dir", folder, "--results-dir", results_dir]
    assert "Times (measured: at laptop size, by name at full size)" in reproduce(*options, "--list").stdout
    named = reproduce("times", "toy", *options, "--dry-run")
    assert named.stdout.index("bench.py kernels") < named.stdout.index("run id"), "the page is made after it"
    assert "run by name only" not in named.stdout
    tried = reproduce("times", *options, "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert f"bench.py kernels draws=1 --json {results_dir / 'bench' / 'times.json'}" in tried.stdout
    assert not results_dir.exists()
    done = reproduce("times", *options)
    assert done.returncode == 2, "the bench's own exit code"
    assert done.stderr == "error: draws must be at least 2, got 1\n"
    assert "did you mean 'times'" in reproduce("tims", *options).stderr
    (folder / "bench" / "times.yaml").write_text("title: Times\nkinds: kernels\n")
    assert "bench/times.yaml: unknown key 'kinds'" in reproduce("times", *options).stderr


DIAGNOSIS = """
title: Samplers
kind: diagnosis
grid: toy
diagnose: [--sampler, uniform, unigram, --rows, "6", --draws, "2", sampler.num_samples=7]
notes: [A note.]
"""


@pytest.mark.slow
def test_diagnosis_of_a_trained_network(write_tables: Callable[..., Path], results_dir: Path) -> None:
    grid = "\n".join(line for line in GRID.splitlines() if "broken" not in line and "other" not in line)
    folder = write_tables(grid=grid, toy=DIAGNOSIS)
    options = ["toy", "--tables-dir", folder, "--results-dir", results_dir]
    assert reproduce(*options, "--render-only").returncode == 0
    tables = results_dir / "out" / "small"
    assert "Synthetic, Full softmax: not run, not diagnosed" in (tables / "report.html").read_text()
    first = reproduce(*options)
    assert first.returncode == 0, first.stderr
    assert "diagnosing Full softmax on synthetic_xc" in first.stderr
    markdown = (tables / "toy.md").read_text()
    assert "## Synthetic, Full softmax" in markdown
    assert markdown.count("| unigram ") == 3
    assert "- A note." in markdown
    with open(tables / "toy.csv") as file:
        rows = {row["sampler"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"uniform", "unigram"}
    assert float(rows["uniform"]["kl"]) > 0
    assert rows["uniform"]["run_id"].startswith("synthetic_xc-mlp-full-")
    with open(tables / "toy_curves.csv") as file:
        points = [row for row in csv.DictReader(file) if row["sampler"] == "uniform"]
    assert [float(row["proposal"]) for row in points][-1] == pytest.approx(1, rel=1e-5), "all ranks together"
    assert {row["run_id"] for row in points} == {rows["uniform"]["run_id"]}
    assert (tables / "toy.png").stat().st_size > 10_000
    assert (tables / "toy_synthetic_xc_full.png").is_file()
    assert "data:image/png" in (tables / "report.html").read_text()
    assert "diagnosing" not in reproduce(*options).stderr, "what has been measured is not repeated"
    (folder / "toy.yaml").write_text(DIAGNOSIS.replace('"6"', '"5"'))
    assert "diagnosing" in reproduce(*options).stderr, "unless it is to be measured otherwise"
