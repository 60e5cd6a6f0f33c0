"""A wrong word on the command line is one line that names it, and leaves no run folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.config import compose
from runner.errors import ConfigError
from runner.machine.threads import set_threads
from runner.training.run import run

LONG = "9" * 5000
WRONG = [
    # the words, and what the line must say
    (["sampler=null"], "cannot read 'sampler=null': write sampler=NAME; NAME is a file of conf/sampler"),
    (["dataset=null"], "write dataset=NAME"),
    (["preset=null"], "write preset=NAME"),
    (["sampler=3"], "write sampler=NAME"),
    (["sampler=[1]"], "write sampler=NAME"),
    (["model=true"], "write model=NAME"),
    (["=1"], "cannot read '=1': write GROUP=NAME"),
    (["+=1"], "cannot read '+=1'"),
    (["seed=null"], "seed: expected int, got None"),
    (["evaluation=null"], "evaluation: expected EvaluationConfig"),
    (["output=3"], "output: expected OutputConfig"),
    ([f"seed={LONG}"], "cannot read 'seed=9999"),
    ([f"optimizer.lr={LONG}"], "a number has too many digits"),
    ([f"optimizer.lr=1{'0' * 400}"], "optimizer.lr: expected float, got 1000"),
    (["optimizer.lr=1e400"], "optimizer.lr: expected a finite number, got inf"),
    (["evaluation.every_epochs=1e-300"], "evaluation.every_epochs must lie in [1e-6, 1], got 1e-300"),
    (["evaluation.every_epochs=5e-324"], "evaluation.every_epochs must lie in [1e-6, 1]"),
    (["training.clip=inf"], "training.clip: expected"),
    (["optimizer.epsilon=abc"], "optimizer.epsilon: expected float, got 'abc'"),
    (["optimizer.epsilon=[1]"], "optimizer.epsilon: expected float, got [1]"),
    (["optimizer.epsilon=null"], "optimizer.epsilon: expected float, got None"),
    (["optimizer.epsilon=1e-300"], "optimizer.epsilon must lie in [1e-30, 1e30]"),
    (["optimizer=adagrad", "optimizer.epsilon=1e300"], "optimizer.epsilon must lie in"),
    (["sampler=quadratic", "sampler.alpha=1e300"], "sampler.alpha must lie in [1e-12, 1e12]"),
    (["sampler=quadratic", "sampler.alpha=1e-300"], "sampler.alpha must lie in"),
    (["sampler=quadratic", "sampler.alpha=0"], "sampler.alpha must lie in"),
    (["sampler=quadratic", "sampler.alpha=a"], "sampler.alpha: expected float"),
    (["sampler.alpha=1"], "unknown key 'sampler.alpha'"),
    (["+sampler.alpha=1"], "has no key 'alpha'"),
    (["output.normalize=true", "output.temperature=1e-300"], "output.temperature must lie in [1e-6, 1e6]"),
    (["results_dir='~nosuchuser/x'"], "results_dir: ~nosuchuser/x begins with ~ and no known user"),
    (["results_dir=~nosuchuser"], "results_dir: ~nosuchuser begins with ~ and no known user"),
    (["dataset=text", "model=lstm", "dataset.path='~nosuchuser/x'"], "dataset.path: ~nosuchuser/x begins with ~"),
    (
        ["dataset=interactions", "model=gru4rec", "dataset.path='~nosuchuser/x'"],
        "dataset.path: ~nosuchuser/x begins with ~",
    ),
    (["plugins=['~nosuchuser/a.py']"], "plugins: ~nosuchuser/a.py begins with ~"),
    (["results_dir='a\0b'"], "results_dir: "),
    (["dataset=text", "model=lstm", "dataset.path='a\0b'"], "dataset.path: "),
    (["results_dir=${nothing}"], "results_dir: cannot insert its value: Interpolation key 'nothing' not found"),
    (["seed=${seed}"], "seed: cannot insert its value: it refers to itself"),
    (["seed=${epochs}", "epochs=${seed}"], "cannot insert its value: it refers to itself"),
    (["results_dir=${oc.env:NOT_SET_HERE}"], "Environment variable 'NOT_SET_HERE' not found"),
    (["results_dir=${nothing:1}"], "results_dir: cannot insert its value: Unsupported interpolation type nothing"),
    (["results_dir=a\udcff"], r"cannot read 'results_dir=a\udcff': it is not UTF-8"),
    (["dataset.name=\udcff"], "it is not UTF-8"),
    (["\udcff"], "it is not UTF-8"),
    (
        ["sampler=uniform", "sampler.num_samples=5,6"],
        "sampler.num_samples=5,6 are several values: add -m to sweep over",
    ),
    (["sampler=uniform,full"], "sampler=uniform,full are several values: add -m to sweep over them"),
    (["seed=range(1,5)"], "seed=range(1,5) are several values: add -m to sweep over them"),
    (["sampler=glob(*)"], "sampler=glob(*) are several values: add -m"),
    (["sampler=uniform", "results_dir=a,b"], "or write one value with a comma in two pairs of quotes, 'KEY=\"VALUE\"'"),
    (["dataset=text", "dataset.path=a,b"], "dataset.path: "),
    (["results_dir=gr\udcc3\udcb6\udcc3\udc9fe"], "it is UTF-8, but the locale, "),
    (["hardware.threads=-1"], "hardware.threads must be 0"),
    (["hardware.threads=1000000000000"], "hardware.threads=1000000000000 is more than the"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[" ".join(words)[:40] for words, _ in WRONG])
def test_a_wrong_word_is_one_line(words: list[str], says: str, tmp_path: Path) -> None:
    place = [] if any(word.startswith("results_dir") for word in words) else [f"results_dir={tmp_path}/results"]
    with pytest.raises(ConfigError) as caught:
        run(compose([*place, *words]))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not list(tmp_path.rglob("*-*"))


def test_a_path_that_is_found_to_be_wrong_later_leaves_no_folder(tmp_path: Path, own_data_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.path: /nowhere is not a folder"):
        run(compose([f"results_dir={tmp_path}", "dataset=text", "model=lstm", "dataset.path=/nowhere"]))
    assert list((tmp_path / "runs").iterdir()) == []


def test_threads_below_zero() -> None:
    with pytest.raises(ConfigError, match=r"hardware\.threads must be 0 \(all cores\) or more, got -1"):
        set_threads(-1)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), [
    ([b"results_dir=\xff\xfe"], r"error: cannot read 'results_dir=\udcff\udcfe': it is not UTF-8"),
    ([b"sampler=null"], "error: cannot read 'sampler=null'"),
    ([b"-m", b"sampler=null,uniform", b"seed=x"], "sampler=null: cannot run: cannot read 'sampler=null': write"),
    ([b"results_dir=${oc.env:NOT_SET_HERE}"], "Environment variable 'NOT_SET_HERE' not found"),
    ([b"seed=${seed}"], "error: seed: cannot insert its value: it refers to itself"),
    ([b"sampler=uniform", b"sampler.num_samples=5,6"], "error: sampler.num_samples=5,6 are several values: add -m"),
])  # fmt: skip
@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_the_command_line(words: list[bytes], says: str, locale: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"runner", *words],
        env={**os.environ, **locale, "PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert says.encode() in done.stderr
    assert b"Traceback" not in done.stderr
    assert not list(tmp_path.rglob("summary.json"))


@pytest.mark.slow
def test_a_locale_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runner", "results_dir='größe'".encode()],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"it is UTF-8, but the locale, LC_ALL=C, is not; choose one that is, such as LC_ALL=C.UTF-8" in done.stderr
