"""scripts/plot.py plots any metric of chosen runs; what does not fit is one line that lists what does."""

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from runner.config import CONF, compose
from runner.report.figures.explore import explore, explore_frontier
from runner.report.numbers.records import all_records
from runner.report.spec.grids import PlannedRun

Command = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot_script", CONF.parent / "scripts" / "plot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plot(
    script: ModuleType, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Call the script on runs of K x L with two seeds, and one of NCE; return status, printed paths and errors."""

    def call(*words: str) -> tuple[int, list[str], str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["plot.py", *words, "--results-dir", str(swept)])
        status = script.main()
        out, err = capsys.readouterr()
        return status, out.splitlines(), err

    return call


def lines_of(plot: Command, *words: str) -> pd.DataFrame:
    status, paths, err = plot(*words)
    assert status == 0, err
    assert [Path(path).suffix for path in paths] == [".png", ".svg", ".pdf", ".csv"]
    assert Path(paths[0]).read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path(paths[1]).read_text()
    assert Path(paths[2]).read_bytes().startswith(b"%PDF")
    return pd.read_csv(paths[3])


def test_lines_by_a_setting(plot: Command, swept: Path) -> None:
    """A line for each L with a point for each K; NCE, which has no K, goes across."""
    data = lines_of(plot, "--against", "sampler.K")
    assert len(data) == 9
    mine = data[(data["sampler.K"] == 10) & (data["label"] == "LSH Label L=20")]
    assert sorted(mine["value"]) == pytest.approx([60, 61])
    assert set(data["metric"]) == {"test/p@1"}
    assert set(data["run_id"]) == {path.name for path in (swept / "runs").iterdir()}
    (axis,) = explore(all_records(swept), ["sampler.K"]).figure.axes
    assert {text.get_text() for text in axis.texts} == {"LSH Label L=10", "LSH Label L=20", "NCE"}
    (line,) = [line for line in axis.get_lines() if line.get_label() == "LSH Label L=20"]
    assert list(line.get_xdata()) == [4, 10]
    assert list(line.get_ydata()) == pytest.approx([50.5, 60.5])
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["4", "10"]


def test_a_heat_map_by_two_settings(plot: Command, swept: Path) -> None:
    data = lines_of(plot, "--against", "sampler.K", "sampler.L", "--metric", "peak_rss_mb", "--out", str(swept / "map"))
    assert len(data) == 8, "NCE has neither"
    assert set(data["value"]) == {512.4}
    (axis,) = explore(all_records(swept), ["sampler.K", "sampler.L"]).figure.axes
    assert [text.get_text() for text in axis.texts] == ["40.5", "50.5", "55.5", "60.5"]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["4", "10"]


@pytest.mark.parametrize(("against", "ends"), [("epoch", {1}), ("step", {10}), ("seconds", {40, 100})])
def test_curves_against_what_training_counts(against: str, ends: set[int], plot: Command, swept: Path) -> None:
    data = lines_of(plot, "--against", against, "--where", "sampler=lsh_label")
    assert len(data) == 8
    assert set(data["metric"]) == {"test_subset/p@1"}
    (axis,) = explore(all_records(swept), [against]).figure.axes
    assert {line.get_xdata()[-1] for line in axis.get_lines()} == ends | ({40} if against == "seconds" else set())
    assert len(axis.texts) == 5


def test_words_as_values_and_the_frontier(plot: Command, swept: Path) -> None:
    ids = sorted(path.name for path in (swept / "runs").iterdir() if "seed: 0" in (path / "config.yaml").read_text())
    one, other, *_ = ids
    assert ("log_uniform" in one, "lsh_label" in other) == (True, True)
    data = lines_of(plot, one, other, "--against", "sampler")
    assert list(data["sampler.name"]) == ["log_uniform", "lsh_label"]
    status, _, err = plot("--against", "sampler", "--where", "seed=0")
    assert (status, "several of these runs have seed 0" in err) == (2, True), "K and L differ beside the sampler"
    frontier = lines_of(plot, "--frontier", "--metric", "test/p@5", "--keys", "sampler.K")
    assert len(frontier) == 9
    assert set(frontier["value"]) == {25}
    assert set(frontier["setting"].dropna()) == {"K=4", "K=10"}
    assert explore_frontier(all_records(swept)).name == "test_p_at_1-frontier"


def test_keys_of_a_frontier_differ_on_some_data_set(plot: Command, swept: Path, write_run: Callable[..., Path]) -> None:
    """A single run on another data set, where nothing differs, does not refuse the keys of the others."""
    config = replace(compose(["dataset=wordnet_related"]), results_dir=str(swept))
    write_run(PlannedRun(dataset="e", method="lsh_label", seed=0, overrides=(), config=config), [0.5])
    frontier = lines_of(plot, "--frontier", "--keys", "sampler.K")
    assert len(frontier) == 10
    assert set(frontier["setting"].dropna()) == {"K=4", "K=10"}
    status, _, err = plot("--frontier", "--keys", "epochs")
    assert (status, "epochs is 4 in all of these runs" in err) == (2, True)


@pytest.mark.parametrize(("words", "says"), [
    (["--against", "sampler.KK"], "no setting 'sampler.KK' in these runs; did you mean 'sampler.K'? valid: "),
    (["--against", "epochs"], "epochs is 4 in all of these runs; they differ in: "),
    (["--against", "sampler.K", "sampler.L", "seed"], "--against: name one of seconds, step, epoch, or one setting"),
    (["--against", "epoch", "sampler.K"], "--against: name one of seconds, step, epoch, or one setting"),
    (["--against", "sampler.K", "--metric", "test/p@2"], "no 'test/p@2' in all of these runs; did you mean 'test/p@"),
    (["--against", "epoch", "--metric", "test/p@1"], "no 'test/p@1' during training in all of these runs; did you"),
    (["--against", "epoch", "--smooth", "2"], "--smooth must be an odd number"),
    (["--against", "sampler.K", "--smooth", "3"], "--smooth: only with --against seconds, step, epoch"),
    (["--frontier", "--metric", "peak_rss_mb"], "--metric peak_rss_mb: a frontier compares a metric with seconds"),
    (["--frontier", "--against", "seed"], "--frontier: is against seconds; leave --against out"),
    (["--metric", "test/p@1"], "--metric: goes with --against or --frontier"),
    (["--against", "sampler.K", "--where", "seed=7"], "no run has these settings"),
    (["nobody", "--against", "sampler.K"], "no run called 'nobody'"),
    (["lns_figure44"], "unknown table 'lns_figure44'; did you mean 'lns_figure4'"),
])  # fmt: skip
def test_a_mistake_is_one_line_that_lists_what_fits(words: list[str], says: str, plot: Command, swept: Path) -> None:
    status, paths, err = plot(*words)
    assert status == 2
    assert paths == []
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err
    assert not (swept / "out").exists()


def test_unfinished_runs_and_seconds_beside_other_runs_are_left_out(
    swept: Path, write_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    config = compose(["sampler.K=6", "sampler.L=10", f"results_dir={swept}"])
    run = PlannedRun(dataset="d", method="lsh_label", seed=0, overrides=(), config=config)
    folder = write_run(run, [0.9])
    provenance = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps({**provenance, "parallel_jobs": 2}))
    other = PlannedRun(dataset="d", method="m", seed=1, overrides=(), config=replace(config, seed=1))
    folder = write_run(other, [0.9])
    (folder / "provenance.json").write_text(json.dumps({**provenance, "parallel_jobs": 2}))
    assert run.run_id in set(explore(all_records(swept), ["sampler.K"]).data["run_id"]), "its metric counts"
    finished = len(all_records(swept))
    for plot in (lambda records: explore(records, ["seconds"]), explore_frontier):
        assert run.run_id not in set(plot(all_records(swept)).data["run_id"])
        err = capsys.readouterr().err
        assert f"left out: 2 of {finished} runs: parallel" in err
        assert err.count("left out") == 1
    write_run(run, [0.9], status="diverged")
    assert run.run_id not in set(explore(all_records(swept), ["sampler.K"]).data["run_id"])
