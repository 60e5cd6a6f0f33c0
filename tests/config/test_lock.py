"""The lock has a version and hashes of every package, setup verifies them, and an audit that saw nothing says so."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from runner import REPOSITORY

LOCK = REPOSITORY / "constraints.txt"


@pytest.fixture
def lock() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", REPOSITORY / "scripts" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_entry_has_hashes(lock: ModuleType) -> None:
    entries = lock.entries(LOCK.read_text())
    assert len(entries) > 100
    for name, entry in entries.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == sum(entry.count("\n") for entry in entries.values()), "every line belongs to an entry"


def test_no_address_is_in_the_lock() -> None:
    """Files come from wherever the user's pip looks."""
    assert not re.search(r"https?:|file:|^-", LOCK.read_text(), flags=re.M)


@pytest.mark.parametrize("extra", ["dev", "docs", "sweep", "nlp", "audit", "baselines"])
def test_what_is_required_is_locked(extra: str, lock: ModuleType) -> None:
    locked = set(lock.entries(LOCK.read_text()))
    asked = {normalised(re.split(r"[\s<>=!~\[;]", line)[0]) for line in lock.requirements(extra)}
    assert len(asked) > 10
    assert asked <= locked


def test_a_lock_without_hashes_has_the_same_versions(lock: ModuleType) -> None:
    plain = lock.without_hashes(LOCK.read_text())
    assert "--hash" not in plain
    assert "\\" not in plain
    lines = [line for line in plain.splitlines() if not line.startswith("#")]
    assert [line.partition("==")[0] for line in lines] == list(lock.entries(LOCK.read_text()))
    assert set(lines) == {entry.partition(" \\")[0] for entry in lock.entries(LOCK.read_text()).values()}


def test_hashes_of_builds_for_the_cpu_are_in_the_lock(lock: ModuleType) -> None:
    for pinned, hashes in lock.CPU_BUILDS.items():
        entry = lock.entries(LOCK.read_text())[pinned.partition("==")[0]]
        assert entry.startswith(f"{pinned} ")
        assert all(each in entry for each in hashes)


def test_setup_verifies_files_and_says_if_it_does_not() -> None:
    def planned(*words: str) -> str:
        command = ["make", "--dry-run", "--always-make", "setup", *words]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    assert "constraints --hashes yes" in planned("HASHES=yes")
    assert "--require-hashes" in planned("HASHES=yes")
    assert "constraints --hashes no" in planned("HASHES=no")
    assert "HASHES=no: versions are those of constraints.txt, but the files are not verified" in planned("HASHES=no")


@pytest.mark.parametrize("digest", ["0" * 64, pytest.param("", marks=pytest.mark.slow)])
def test_pip_refuses_a_file_with_another_hash(digest: str, tmp_path: Path) -> None:
    """This is what setup relies on: hashes of a constraints file are verified, and all packages need some."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "tiny"\nversion = "1"\n')
    (project / "tiny.py").write_text("")
    pip = [sys.executable, "-m", "pip"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *quiet, "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(project)],
        capture_output=True, check=True,
    )  # fmt: skip
    (tmp_path / "constraints.txt").write_text("tiny==1" + (f" --hash=sha256:{digest}" if digest else "") + "\n")
    command = [*pip, "install", *quiet, "--dry-run", "--find-links", str(tmp_path), "tiny>=1", "--constraint"]
    done = subprocess.run(
        [*command, str(tmp_path / "constraints.txt")], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode == 0) == (digest == "")
    assert ("Expected sha256" in done.stderr) == (digest != "")


# ---------------------------------------------------------------- the audit

CLEAN = '{"dependencies": [{"name": "numpy", "version": "2", "vulns": []}]}'
VULNERABLE = (
    '{"dependencies": [{"name": "numpy", "version": "2", "vulns": [{"id": "GHSA-1", "fix_versions": ["2.1"]}]},'
    ' {"name": "tqdm", "version": "4", "vulns": []}]}'
)
SKIPPED = (
    '{"dependencies": [{"name": "numpy", "skip_reason": "not found"}, {"name": "a", "version": "1", "vulns": []}]}'
)
OFFLINE = "Traceback\nrequests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org'): Max retries exceeded"


@pytest.mark.parametrize(("out", "err", "code", "ends", "says"), [
    (CLEAN, "No known vulnerabilities found", 0, 0, "1 packages were looked up: 0 have known vulnerabilities"),
    (VULNERABLE, "", 1, 1, "numpy 2: GHSA-1, mended in 2.1"),
    (SKIPPED, "", 0, 2, "error: 1 of 2 packages are not in the advisory database's index: numpy"),
    ("", OFFLINE, 1, 2, "error: the advisory database could not be reached, so nothing was checked; try again"),
    ("", "usage: pip-audit\npip-audit: no such option", 2, 2, "error: pip-audit failed: pip-audit: no such option"),
])  # fmt: skip
def test_the_audit(
    out: str, err: str, code: int, ends: int, says: str, lock: ModuleType, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stub = tmp_path / "pip-audit"
    stub.write_text(
        f"#!{sys.executable}\nimport sys\nprint({out!r})\nprint({err!r}, file=sys.stderr)\nsys.exit({code})\n"
    )
    stub.chmod(0o755)
    monkeypatch.setattr(lock, "AUDITOR", stub)
    assert lock.audit() == ends
    said = capsys.readouterr()
    assert says in said.out + said.err
    assert said.err.count("\n") == (ends == 2)
    assert "Traceback" not in said.err


def test_an_audit_without_its_program(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "AUDITOR", tmp_path / "missing")
    assert lock.audit() == 2
    assert capsys.readouterr().err == "error: pip-audit is not installed; make audit installs it\n"
