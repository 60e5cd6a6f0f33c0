"""Variables that clusters, notebooks and locales export: all works as without them, or one line says what to do."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numba
import pytest

from runner import REPOSITORY
from runner.errors import ConfigError
from runner.machine.terminal import print_anything
from runner.machine.threads import set_threads
from runner.report.figures.style import new_figure, save, styled

POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def python(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with the runner on its path, and with these variables but no number of threads."""
    usual = {key: value for key, value in os.environ.items() if key != "NUMBA_NUM_THREADS"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, encoding="utf-8", check=False, cwd=REPOSITORY,
        env={**usual, "PYTHONPATH": str(REPOSITORY), **environment},
    )  # fmt: skip


# ---------------------------------------------------------------- Numba


def test_without_a_compiler_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    with pytest.raises(ConfigError, match=r"^NUMBA_DISABLE_JIT is set, .*; unset it$"):
        set_threads(0)


def test_a_threading_layer_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(count: int) -> None:
        raise ValueError("No threading layer could be loaded.\nHINT:\nIntel TBB is required, try:\n$ conda install tbb")

    monkeypatch.setattr(numba, "set_num_threads", launch)
    monkeypatch.setattr(numba.config, "THREADING_LAYER", "tbb")
    with pytest.raises(ConfigError) as caught:
        set_threads(1)
    assert str(caught.value) == (
        "NUMBA_THREADING_LAYER=tbb cannot be had here (No threading layer could be loaded); unset it, or try workqueue"
    )


@pytest.mark.parametrize(("given", "kept"), [("many", None), ("0", None), ("-2", None), ("", None), ("3", "3")])
def test_what_is_no_number_of_threads_is_ignored(given: str, kept: str | None) -> None:
    done = python("-c", "import os, runner; print(os.environ.get('NUMBA_NUM_THREADS'))", NUMBA_NUM_THREADS=given)
    assert done.stdout == f"{kept}\n"
    said = f"NUMBA_NUM_THREADS={given} is ignored, because it is no number of threads\n"
    assert done.stderr == ("" if kept else said)


@pytest.mark.slow
def test_a_run_has_the_same_bits_with_the_one_thread_of_a_cluster(toy_folder: Path, tmp_path: Path) -> None:
    words = [
        "-m", "runner", "preset=smoke", "dataset=xmc", f"dataset.path={toy_folder}", "sampler=uniform",
        "sampler.num_samples=5", "batch_size=16", "keep_weights=true",
    ]  # fmt: skip
    variables = {"DATASETS_DIR": str(tmp_path / "data")}
    found = []
    for threads in ({"NUMBA_NUM_THREADS": "1"}, {}):
        results = tmp_path / f"results{len(threads)}"
        done = python(*words, f"results_dir={results}", **variables, **threads)
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.strip())
        made = json.loads((folder / "provenance.json").read_text())["threads"]
        assert (made == 1) if threads else made >= 1
        weights = {path.name: path.read_bytes() for path in (folder / "weights").glob("*.npy")}
        found.append((json.loads((folder / "summary.json").read_text())["metrics"], weights))
    assert found[0][1]
    assert found[0] == found[1]
    listed = python("-m", "runner.compare", "--results-dir", str(tmp_path / "results0"), **variables, **POSIX)
    assert listed.returncode == 0, listed.stderr
    assert "Uniform" in listed.stdout


# ---------------------------------------------------------------- what is printed


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", b"72.50 +- 47.63 | - | gr\\xf6\\xdfe \\u4e2d /\xff\n"),
        ("latin-1", b"72.50 \xb1 47.63 | - | gr\xf6\xdfe \\u4e2d /\xff\n"),
        ("utf-8", "72.50 ± 47.63 | – | größe 中 /".encode() + b"\xff\n"),
    ],
)
def test_every_text_can_be_printed(encoding: str, printed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the name of a file that is not text, whose bytes Python holds as half of a pair of signs."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    print_anything()
    print("72.50 ± 47.63 | – | größe 中 /\udcff", flush=True)
    assert written.getvalue() == printed


def test_commands_print_anything() -> None:
    done = python("-m", "runner.prepare", "--list", **POSIX)
    assert done.returncode == 0, done.stderr
    assert "amazon670k" in done.stdout


# ---------------------------------------------------------------- figures


def test_a_backend_that_is_not_installed_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_bytes(b"text.usetex: \xff\n")
    text = "from runner.report.figures.style import styled\nwith styled(): pass\nprint('drawn')"
    odd = {"MPLBACKEND": "module://not_installed.backend", "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    done = python("-c", text, **odd)
    assert (done.stdout, done.stderr) == ("drawn\n", "")


def test_what_a_person_sets_for_own_figures_does_not_count(tmp_path: Path) -> None:
    def drawn(name: str) -> bytes:
        with styled():
            figure, axes = new_figure(1, 1, width=2, height=2)
            axes[0, 0].set_title("P@1")
            path = save(figure, tmp_path / name)
        return path.read_bytes() + path.with_suffix(".svg").read_bytes()

    usual = drawn("usual")
    own = {"text.usetex": True, "savefig.facecolor": "red", "lines.linewidth": 9.0, "font.family": "monospace"}
    with matplotlib.rc_context(own):
        assert drawn("own") == usual
        assert matplotlib.rcParams["text.usetex"] is True, "they are set again afterwards"
