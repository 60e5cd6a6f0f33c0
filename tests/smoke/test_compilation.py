"""Kernels are compiled in a separate process, once for each kind of settings (see ``runner.training.compilation``).

test_runs.py shows with real processes that a run that compiles has the same bits as its repetition.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from runner import REPOSITORY
from runner.config import compose, to_run_config
from runner.errors import ConfigError, DataNotPrepared, RunnerError
from runner.machine import kernel_files
from runner.options.settings import RunConfig
from runner.training import ahead, compilation
from runner.training import run as training_run

BASE = ["seed=1", "sampler=uniform", "sampler.num_samples=7", "model.hidden=8"]


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Return what was handed to the compiling process, which is replaced by one that does nothing."""
    asked: list[RunConfig] = []

    def child(config: str, bar: "tqdm[Any]") -> int:
        asked.append(to_run_config(json.loads(config)))
        bar.update(20)
        return 1 if asked[-1].seed == 13 else 0

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation, "_child", child)
    return asked


def test_settings_of_a_kind_are_compiled_once(children: list[RunConfig], capsys: pytest.CaptureFixture[str]) -> None:
    config = compose(BASE)
    compilation.compile_first(config)
    assert children == [config]
    said = capsys.readouterr().err
    assert said == "compiling kernels, once for settings of this kind\ncompiling kernels took 0 s\n", "no terminal"
    for alike in (
        ["sampler.num_samples=9"], ["optimizer.lr=0.5"], ["seed=0"], ["dataset=wordnet_related"], ["max_steps=5"],
        ["epochs=1", "evaluation.every_epochs=1"],
    ):  # fmt: skip
        compilation.compile_first(compose([*BASE, *alike]))
    assert children == [config]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("other", [
    "sampler=unigram", "loss=nce", "model=linear", "optimizer.rows=dense", "sampler.shared=false", "optimizer.beta1=0",
])  # fmt: skip
def test_settings_of_another_kind_are_compiled_too(other: str, children: list[RunConfig]) -> None:
    configs = [compose(BASE), compose([*BASE, other])]
    for config in configs:
        compilation.compile_first(config)
    assert children == configs


def test_a_change_of_kernels_makes_another_kind(children: list[RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    compilation.compile_first(compose(BASE))
    monkeypatch.setattr(compilation, "state_of_all", lambda: f"not {kernel_files.state_of_all()}")
    compilation.compile_first(compose(BASE))
    assert len(children) == 2


def test_what_could_not_be_compiled_is_tried_again(children: list[RunConfig]) -> None:
    config = compose([*BASE, "seed=13"])
    compilation.compile_first(config)
    compilation.compile_first(config)
    assert children == [config, config]


def test_the_compiling_process_trains_on_throw_away_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process reads a configuration and leaves only compiled kernels: it opens no data set and makes no folder."""
    config = compose([*BASE, "dataset=amazon670k", f"results_dir={tmp_path}", "hardware.threads=1"])
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(config.as_dict())))
    assert compilation.main(lambda: None) == 0
    assert not list(tmp_path.iterdir())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_kernels_are_counted_on_a_terminal(children: list[RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line is written over again, and ends before the run says anything."""
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    compilation.compile_first(compose(BASE))
    *before, last, end = terminal.getvalue().replace("\r", "\n").split("\n")
    assert end == ""
    assert last.rstrip() == "compiling kernels, once for settings of this kind: 20 compiled, 0 s"
    assert all(line.startswith("compiling kernels, ") for line in before if line)


def test_the_compiling_process_tells_of_each_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python, heard = tmp_path / "python", tmp_path / "heard"
    python.write_text(f'#!/bin/sh\necho "$@" > {heard}\ncat >> {heard}\nprintf ..\nsleep 0.1\nprintf .\nexit 3\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr("sys.stderr", Terminal())
    with compilation.kernel_count("kernels") as bar:
        assert compilation._child("{}", bar) == 3
    assert bar.n == 3
    assert heard.read_text() == "-m runner.training.compilation\n{}"


@pytest.mark.parametrize("letters", [10, 9_000, 1_000_000], ids=["short", "longer than the buffer", "than the pipe"])
def test_a_compiling_process_that_dies_before_it_reads_is_a_failure(
    letters: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec <&- >&-\nsleep 0.1\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    started = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        child = started(*arguments, **options)
        assert child.stdout is not None
        assert child.stdout.read() == b"", "it has closed its ends"
        return child

    monkeypatch.setattr(subprocess, "Popen", popen)
    with compilation.kernel_count("kernels") as bar:
        assert compilation._child("x" * letters, bar) == 3


@pytest.mark.parametrize(("mistake", "error"), [
    (["hardware.threads=4096"], ConfigError),
    (["dataset=wiki325k"], DataNotPrepared),
    (["dataset=text", "dataset.path={text}", "model=lstm", "batch_size=5000", "model.embedding=8"], ConfigError),
], ids=["threads", "data", "batch"])  # fmt: skip
def test_nothing_is_compiled_for_a_run_that_cannot_start(
    mistake: list[str], error: type[RunnerError], children: list[RunConfig], text_folder: Path, own_data_dir: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    words = [word.format(text=text_folder) for word in mistake]
    base = [word for word in BASE if not word.startswith("model")]
    with pytest.raises(error):
        training_run.run(compose([*base, *words, f"results_dir={tmp_path}"]), compiles_apart=True)
    assert children == []


def test_kernels_are_compiled_before_this_process_needs_them(
    children: list[RunConfig], own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Begun(Exception):
        pass

    def begin(*arguments: Any) -> None:
        raise Begun

    monkeypatch.setattr(training_run, "Training", begin)
    monkeypatch.setattr(training_run, "provenance", lambda *arguments: {})  # it asks git, which is a child, too
    config = compose([*BASE, f"results_dir={tmp_path}"])
    with pytest.raises(Begun):
        training_run.run(config, compiles_apart=True)
    assert children == [config]


@pytest.mark.slow
def test_compiling_here_tells_whether_anything_was_missing(tmp_path: Path) -> None:
    code = "from runner.training.compilation import *; print(compile_here(to_run_config(json.load(sys.stdin))))"
    config = json.dumps(compose(["model=regression"]).as_dict())
    said = []
    for forget in (False, False, True):
        if forget:
            (marker,) = tmp_path.glob("compiled-*")
            marker.unlink()
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=config,
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            cwd=REPOSITORY,
            check=True,
        )
        said.append(done.stdout)
    assert said == ["True\n", "False\n", "False\n"], "compiled, then known to be, then loaded"


@pytest.mark.slow
def test_a_kernel_is_told_of_when_it_is_compiled_not_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("sys.stderr", Terminal())
    counts = []
    for _ in range(2):
        with compilation.kernel_count("kernels") as bar:
            assert compilation.compile_apart(compose(["model=regression"]), bar)
        counts.append(bar.n)
    assert counts[0] > 4
    assert counts[1] == 0


# ---------------------------------------------------------------- make setup


@pytest.mark.slow
def test_usual_runs_are_compiled_ahead_once(children: list[RunConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert ahead.compile_usual_runs() == []
    usual = {compilation.marker_of(compose(words.split())) for words in ahead.USUAL_RUNS}
    assert {compilation.marker_of(config) for config in children} == usual
    assert len(children) == len(usual) == len(ahead.USUAL_RUNS)
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" kinds")[0] for line in said[1:-1]] == [
        f"{done} of {len(usual)}" for done in range(1, len(usual) + 1)
    ]
    assert ahead.compile_usual_runs() == []
    assert len(children) == len(usual), "nothing is compiled again"
    assert capsys.readouterr().out == "the kernels of usual runs are compiled\n"


@pytest.mark.parametrize("words", [
    "", "seed=7 sampler.K=12", "sampler=uniform sampler.num_samples=500 seed=1", "model=sasrec",
    "model=lstm dataset=text dataset.path=anywhere",
])  # fmt: skip
def test_a_usual_run_finds_its_kernels(
    words: str, children: list[RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    ahead.compile_usual_runs()
    capsys.readouterr()
    compilation.compile_first(compose(words.split()))
    assert capsys.readouterr().err == "", "nothing is compiled"


def test_what_cannot_be_compiled_ahead_is_named(
    children: list[RunConfig], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ahead, "USUAL_RUNS", ("sampler=full", "sampler=uniform seed=13"))
    monkeypatch.setattr("sys.argv", ["ahead"])
    assert ahead.main() == 1
    captured = capsys.readouterr()
    assert captured.err == "could not compile ahead; the first run tries again: sampler=uniform seed=13\n"
    assert "2 of 2 kinds" in captured.out
    assert "are compiled" not in captured.out
