"""A plain plan of profile small measures what no runs make, once and at laptop size, into the folder of own output."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.config import CONF
from runner.report.pages.benches import bench_sections, not_measured
from runner.report.plan import bench_runs
from runner.report.plan.bench_runs import bench_seconds, bench_table, measure_benches
from runner.report.plan.speed import slowness
from runner.report.render import render
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import BenchSpec, TableSpec, bench_names, load_bench

LOG = "title: Reading\npaper: lns\nkind: read_log\nsmall: {{events: [{events}]}}\nseconds: 7\n"
FULL, SMALL = "0123456789", "9876543210"  # commits
Reproduce = Callable[..., tuple[int, str, str]]


@pytest.fixture
def spec() -> BenchSpec:
    return BenchSpec(name="times", title="Times", kind="rows", small={"steps": 3}, seconds=8, paper="midx")


@pytest.fixture
def folder(write_tables: Callable[..., Path], grid_text: str) -> Path:
    """Write a table whose runs have no data, so that nothing is trained, and one that the bench measures in seconds."""
    small, data = "small: {seeds: [0], datasets: [{name: ", "wordnet_hypernym"
    assert small + data in grid_text
    folder = write_tables(grid=grid_text.replace(small + data, f"{small}amazon670k"))
    (folder / "bench").mkdir()
    (folder / "bench" / "log.yaml").write_text(LOG.format(events=200))
    return folder


@pytest.fixture
def reproduce(
    folder: Path, results_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Reproduce:
    """Run scripts/reproduce.py with these tables; return its exit code and what it and the bench wrote."""
    found = importlib.util.spec_from_file_location("reproduce", CONF.parent / "scripts" / "reproduce.py")
    assert found is not None
    assert found.loader is not None
    front = importlib.util.module_from_spec(found)
    found.loader.exec_module(front)

    def run(*arguments: str) -> tuple[int, str, str]:
        options = ["--tables-dir", str(folder), "--results-dir", str(results_dir), *arguments]
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *options])
        return front.main(), *capfd.readouterr()

    return run


def write(path: Path, command: Sequence[str], commit: str, **more: Any) -> None:
    """Write a report of the bench with a picture."""
    made = {
        "commit": commit, "patch": None, "started": "2026-01-02T03:04:05+0000", "cpu": "Toy CPU", "threads": 2,
        "cores": 4, "command": " ".join(command[1:]), "versions": {},
    }  # fmt: skip
    told = {"name": "times", "kind": "read_log", "overrides": [], "sizes": [], "notes": [f"made by {commit}"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**told, "provenance": made, **more}))
    path.with_suffix(".png").write_bytes(b"picture")


def write_full(spec: BenchSpec, results_dir: Path) -> None:
    write(spec.report(results_dir), spec.command(results_dir), FULL)


def write_small(spec: BenchSpec, results_dir: Path) -> None:
    write(spec.small_report(results_dir), spec.small_command(results_dir), SMALL, seconds=7.5)


# ---------------------------------------------------------------- the plan


@pytest.mark.slow
def test_a_plain_plan_measures_once_and_only_for_profile_small(
    reproduce: Reproduce, folder: Path, results_dir: Path
) -> None:
    (folder / "bench" / "bad.yaml").write_text(LOG.format(events=1).replace("Reading", "Nothing"))
    code, tried, _ = reproduce("--dry-run")
    assert code == 0
    assert re.search(r"\| log +\| +read_log events=200 \| +to run \| +~\d+ \|", tried)
    assert "\nafter the runs these are measured at laptop size, in about " in tried
    assert "run by name only" not in tried
    assert "by name only: bad, log\n" in reproduce("--profile", "medium", "--dry-run")[1]
    assert not results_dir.exists()

    code, _, told = reproduce()
    assert code == 1
    assert "[1/2] measuring Nothing; time left: " in told
    assert told.splitlines()[-1] == "error: Nothing: not measured: the bench ended with exit code 2"
    report = results_dir / "out" / "small" / "bench" / "log.json"
    assert [size["events"] for size in json.loads(report.read_text())["sizes"]] == [200], "one that fails ends no other"
    assert not (results_dir / "bench").exists()
    page = (results_dir / "out" / "small" / "REPRODUCTION.md").read_text()
    assert "At laptop size: `scripts/bench.py read_log events=200`; " in page
    assert "- Nothing: not measured; `make reproduce TABLE=bad` does so\n" in page

    (folder / "bench" / "bad.yaml").unlink()
    before = report.stat().st_mtime_ns
    code, shown, told = reproduce()
    assert code == 0, told
    assert re.search(r"\| log +\| +read_log events=200 \| +finished \| +– \|", shown)
    assert "measuring" not in told
    assert report.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_committed_table_of_the_bench_is_measured_at_laptop_size(results_dir: Path) -> None:
    spec = load_bench("rf_softmax_table2")
    assert measure_benches([spec], results_dir) == []
    assert spec.is_measured(results_dir)
    (size,) = json.loads(spec.small_report(results_dir).read_text())["sizes"]
    assert size["classes"] == 10_000


def test_the_plan_counts_what_is_not_measured_yet(spec: BenchSpec, results_dir: Path) -> None:
    other = load_bench(bench_names()[0])
    expected = (8 + other.seconds) * slowness()
    assert bench_seconds([spec, other], results_dir) == pytest.approx(expected)
    write_small(spec, results_dir)
    assert bench_seconds([spec], results_dir) == 0
    assert bench_table([spec, other], results_dir)["status"].tolist() == ["finished", "to run"]


def test_ctrl_c_while_it_measures_stops_and_renders(
    reproduce: Reproduce, results_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_runs, "measure_benches", interrupted)
    assert reproduce()[0] == 130
    assert (results_dir / "out" / "small" / "report.html").is_file()


def test_a_bench_that_dies_without_a_word_is_named(
    spec: BenchSpec, results_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    assert measure_benches([spec], results_dir) == [("Times", "not measured: the bench was killed by SIGKILL")]


# ---------------------------------------------------------------- what counts as measured


def test_it_is_measured_again_if_it_is_not_whole_or_of_other_arguments(spec: BenchSpec, results_dir: Path) -> None:
    report, command = spec.small_report(results_dir), spec.small_command(results_dir)
    assert not spec.is_measured(results_dir)
    write(report, command, SMALL)
    assert not spec.is_measured(results_dir), "it was interrupted"
    write(report, [*command, "draws=3"], SMALL, seconds=1.0)
    assert not spec.is_measured(results_dir), "other arguments"
    write_small(spec, results_dir)
    assert spec.is_measured(results_dir)
    for damaged in ("", "[]", "{}", '{"seconds": 1, "provenance": null}'):
        report.write_text(damaged)
        assert not spec.is_measured(results_dir)


# ---------------------------------------------------------------- pages


def test_one_s_own_report_is_preferred_and_says_its_size(spec: BenchSpec, results_dir: Path) -> None:
    folder = results_dir / "out" / "small"
    write_full(spec, results_dir)
    (full,) = bench_sections([spec], results_dir, folder, small=True)
    assert f"made by {FULL}" in full.markdown, "there is no other"
    write_small(spec, results_dir)
    (section,) = bench_sections([spec], results_dir, folder, small=True)
    told = "At laptop size: `scripts/bench.py rows steps=3`; `make reproduce TABLE=times` measures it at full size."
    for text in (section.markdown, re.sub("</?code>", "`", str(section.html))):
        assert f"made by {SMALL}" in text
        assert f"Measured on 2026-01-02 on Toy CPU, 2 of 4 cores; commit {SMALL}. {told}" in text
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", section.markdown)
    assert (folder / picture).resolve() == spec.small_report(results_dir).with_suffix(".png").resolve()
    assert bench_sections([spec], results_dir, folder) == (full,), "asked for by name, it is that of full size"
    spec.report(results_dir).unlink()
    assert not_measured([spec], results_dir, small=True) == []
    assert len(not_measured([spec], results_dir)) == 1


@pytest.mark.slow
def test_a_published_page_shows_no_report_of_one_s_own_folder(
    spec: BenchSpec,
    toy: dict[str, TableSpec],
    planned: Callable[..., list[PlannedRun]],
    write_run: Callable[..., Path],
    results_dir: Path,
    tmp_path: Path,
) -> None:
    own = BenchSpec(name="own", title="Own", kind="rows", seconds=8, paper="midx")
    for run in planned(toy["convergence"].grid, "small"):
        write_run(run, [0.2, 0.4])
    write_full(spec, results_dir)
    for each in (spec, own):
        write_small(each, results_dir)
    render([toy["convergence"]], "small", results_dir, [spec, own], small_benches=True)
    rendered = (results_dir / "out" / "small" / "REPRODUCTION.md").read_text()
    assert rendered.count(f"made by {SMALL}") == 2
    command = [sys.executable, str(CONF.parent / "scripts" / "publish_tables.py")]
    options = ["--tables-dir", str(tmp_path / "table"), "--results-dir", str(results_dir)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    page = (results_dir / "REPRODUCTION.md").read_text()
    assert f"made by {FULL}" in page
    assert SMALL not in page
    assert "- Own: not measured; `make reproduce TABLE=own` does so\n" in page
    linked = re.findall(r"\]\(([^)]+)\)", page)
    assert "bench/times.png" in linked
    assert all((results_dir / path).is_file() and not path.startswith("out") for path in linked)
