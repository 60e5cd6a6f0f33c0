"""The runner works where a wheel was installed: it reads the wheel's files and writes below the current folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.training.files import read_json

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ["sampler=uniform", "max_steps=3", "evaluation.rows=20", "hardware.threads=1"]  # one kind of kernels
SHIPPED = "runner/shipped/"


def built(source: Path, kind: str, out: Path) -> Path:
    """Let setuptools build a source distribution, wheel or editable wheel of a folder, as pip would."""
    code = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"
    out.mkdir()
    command = [sys.executable, "-c", code, kind, str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.iterdir()
    return path


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, because builds write to it, beside files that users make there."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("runner", "conf", "datasets", "docs", "results/published"):
        left_out = shutil.ignore_patterns("__pycache__", "raw", "processed")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copyfile(REPOSITORY / name, folder / name)
    for name in ("datasets/ptb/raw/ptb.train.txt.xz", "datasets/ptb/processed/prepared/x.npy", "results/runs/R/a.csv"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds from the source distribution, which must therefore hold all that a build needs."""
    folder = tmp_path_factory.mktemp("wheel")
    packed = built(checkout, "sdist", folder / "packed")
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(folder / "out"), str(packed)], check=True)
    (path,) = (folder / "out").iterdir()
    return path


def test_the_wheel_has_every_file_that_is_read(wheel: Path) -> None:
    names = names_in(wheel)
    read = [
        *(REPOSITORY / "conf").rglob("*.*"),
        *(REPOSITORY / "datasets").glob("*/card.yaml"),
        *(REPOSITORY / "datasets").glob("wordnet_*/*.*"),
        *(REPOSITORY / "results" / "published").glob("*.csv"),
    ]
    wanted = {SHIPPED + path.relative_to(REPOSITORY).as_posix() for path in read if path.is_file()}
    assert len(wanted) > 200
    assert {name for name in names if name.startswith(SHIPPED)} == wanted, "all of it, and nothing that users made"
    modules = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "runner").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules


def test_files_of_an_earlier_build_are_not_in_the_next(checkout: Path, tmp_path: Path) -> None:
    old = checkout / "conf" / "sampler" / "old.yaml"
    old.write_text("name: old\n")
    assert f"{SHIPPED}conf/sampler/old.yaml" in names_in(built(checkout, "wheel", tmp_path / "first"))
    old.unlink()
    assert f"{SHIPPED}conf/sampler/old.yaml" not in names_in(built(checkout, "wheel", tmp_path / "second"))


def test_an_editable_installation_reads_the_checkout(checkout: Path, tmp_path: Path) -> None:
    wheel = built(checkout, "editable", tmp_path / "editable")
    assert not [name for name in names_in(wheel) if SHIPPED in name]
    assert not (checkout / SHIPPED).exists()


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a fresh environment with the wheel; the packages that it needs are those of this one."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True)
    place = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    Path(place.strip(), "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def here(environment: Path, tmp_path: Path) -> Command:
    """Run a program of the environment in an empty folder, without this session's settings."""
    ours = ("PYTHONPATH", "NUMBA_CACHE_DIR", "DATASETS_DIR", "DATA_MIRROR")
    variables = {name: value for name, value in os.environ.items() if name not in ours}
    variables["PATH"] = f"{environment}{os.pathsep}{variables['PATH']}"

    def run(program: str, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        command = [str(environment / program) if (environment / program).exists() else program, *words]
        env = {**variables, **more}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.mark.slow
def test_runs_from_an_empty_folder(here: Command, environment: Path, tmp_path: Path) -> None:
    package = Path(here("python", "-c", "import runner; print(runner.__file__)").stdout.strip()).parent
    assert package.is_relative_to(environment.parent), "the wheel is imported, not the checkout"
    before = {path for path in package.rglob("*") if "__pycache__" not in path.parts}
    words = ["dataset=synthetic_xc", "dataset.num_classes=200", "dataset.num_features=100", "dataset.num_train=300",
             "dataset.num_test=50"]  # fmt: skip
    folders = []
    for options in (words, []):  # without options: WordNet hypernyms, which the wheel brings along
        done = here("runner", *options, *SMALL)
        assert done.returncode == 0, done.stderr
        folders.append(Path(done.stdout.splitlines()[-1]))
        summary, made = (read_json(folders[-1] / f"{name}.json") for name in ("summary", "provenance"))
        assert summary is not None
        assert made is not None
        assert (summary["status"], summary["steps"]) == ("finished", 3)
        assert (made["commit"], made["patch"]) == (None, None)
        assert made["versions"]["runner"]
    assert {folder.parent for folder in folders} == {tmp_path / "results" / "runs"}
    assert {path.name for path in tmp_path.iterdir()} == {".numba_cache", "datasets", "results"}
    assert {path.name for path in (tmp_path / "datasets").iterdir()} == {"synthetic_xc", "wordnet_hypernym"}
    assert {path for path in package.rglob("*") if "__pycache__" not in path.parts} == before
    compared = here("python", "-m", "runner.compare")
    assert compared.returncode == 0, compared.stderr
    assert "## wordnet_hypernym" in compared.stdout


@pytest.mark.slow
def test_mistakes_name_commands_that_are_there(here: Command) -> None:
    done = here("runner", "dataset=nonsense")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: unknown option 'dataset=nonsense'; ")
    done = here("runner", "dataset=delicious", *SMALL)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "run `python -m runner.prepare delicious`" in done.stderr
    done = here("python", "-m", "runner.prepare", "--list")
    assert done.returncode == 0, done.stderr
    assert any(line.split()[:2] == ["amazon670k", "490,449"] for line in done.stdout.splitlines())


@pytest.mark.slow
def test_the_command_finds_plugins_in_the_current_folder(here: Command, tmp_path: Path) -> None:
    shutil.copyfile(REPOSITORY / "examples" / "poisson_sampler.py", tmp_path / "poisson_sampler.py")
    done = here("runner", "plugins=[poisson_sampler]", "sampler=poisson", "--cfg", "job")
    assert done.returncode == 0, done.stderr
    assert "name: poisson" in done.stdout


@pytest.mark.slow
def test_help_and_completion(here: Command) -> None:
    done = here("runner", "--help")
    assert done.returncode == 0, done.stderr
    assert "seed of all random numbers" in done.stdout
    assert here("runner", "-sc", "query=bash", COMP_LINE="runner sampler=lsh_l").stdout == "sampler=lsh_label\n"
    typed = 'COMP_LINE="runner sampler=lsh_l" COMP_POINT=20 COMP_CWORD=1'
    script = f'eval "$(runner -sc install=bash)"; {typed}; hydra_bash_completion; echo "${{COMPREPLY[@]}}"'
    done = here("bash", "-c", script)
    assert done.stdout == "sampler=lsh_label\n", done.stderr
