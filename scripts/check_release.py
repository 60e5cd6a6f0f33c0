"""Build source distribution and wheel into dist/, install the wheel where nothing else is, and make a run with it.

python scripts/check_release.py                        every Python of SUPPORTED that is at hand
python scripts/check_release.py --pythons python3.12

Packages are those of constraints.txt. A Python that is not at hand is said, and is no failure; pyenv's are found too.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13")
RUN = ["preset=smoke", "sampler=uniform", "hardware.threads=1"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", metavar="PROGRAM", help="default: all supported ones at hand")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    arguments = parser.parse_args()
    wheel = build(arguments.dist.absolute())
    failed = False
    for version in SUPPORTED if arguments.pythons is None else arguments.pythons:
        program = found(version) if arguments.pythons is None else version
        if program is None:
            print(f"Python {version} is not at hand: not tried")
            continue
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                said = try_out(program, wheel, Path(folder))
            print(f"{said}, in {time.monotonic() - begin:.0f} s", flush=True)
        except subprocess.CalledProcessError as error:
            print(f"error: {program}: {' '.join(map(str, error.cmd))}\n{error.stderr or error.stdout}", file=sys.stderr)
            failed = True
    return int(failed)


def build(dist: Path) -> Path:
    """Build both from a copy of what git has, so that nothing else gets in; return the wheel."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        names = run(["git", "ls-files", "-z"], cwd=ROOT).split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, source / name)
        code = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
        run([sys.executable, "-c", code, str(dist)], cwd=source)
        (packed,) = dist.glob("*.tar.gz")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        run([*pip, "--wheel-dir", str(dist), str(packed)], cwd=folder)  # from the packed source, as others would
    (wheel,) = dist.glob("*.whl")
    for path in (packed, wheel):
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
    return wheel


def try_out(program: str, wheel: Path, folder: Path) -> str:
    """Install the wheel in a new environment and make a run in an empty folder; return what to say of it."""
    run([program, "-m", "venv", str(folder / "venv")])
    programs, here = folder / "venv" / "bin", folder / "here"
    here.mkdir()
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = folder / "constraints.txt"
    lock.write_text(run([sys.executable, str(ROOT / "scripts" / "lock.py"), "constraints", "--hashes", "no"]))
    (torch,) = re.findall(r"^torch==\S+", run([sys.executable, str(ROOT / "scripts" / "lock.py"), "cpu-builds"]), re.M)
    small = subprocess.run([*pip, "--no-deps", torch], capture_output=True, check=False).returncode == 0
    run([*pip, "--constraint", str(lock), str(wheel)])
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    said = run([str(programs / "runner"), *RUN], cwd=here, env=ours)
    if not Path(said.splitlines()[-1], "summary.json").is_file():
        raise subprocess.CalledProcessError(1, ["runner", *RUN], output=said)
    versions = "import platform, runner; print(platform.python_version(), runner.__version__)"
    python, runner = run([str(programs / "python"), "-c", versions], cwd=here, env=ours).split()
    usual = "" if small else ", with the usual build of torch"
    return f"Python {python}: the wheel of runner {runner} was installed and made a run{usual}"


def found(version: str) -> str | None:
    """Return a Python of this version that starts: on the path, where pyenv's may lead nowhere, or in its folder."""
    places: list[object] = [
        shutil.which(f"python{version}"),
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for program in map(str, filter(None, places)):
        if subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
            return program
    return None


def run(command: list[str], **more: object) -> str:
    """Return what a command prints; CalledProcessError has what it says if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
