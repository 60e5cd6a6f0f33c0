"""A release has one version everywhere, and Pythons that do not start are not taken for ones that are at hand."""

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import runner
from runner import REPOSITORY


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_release", REPOSITORY / "scripts" / "check_release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert {project["version"], cited["version"]} == {runner.__version__}
    changes = (REPOSITORY / "CHANGELOG.md").read_text()
    assert f"\n## {runner.__version__} ({cited['date-released']})\n" in changes
    assert f"`v{runner.__version__}`" in changes


def test_supported_pythons_are_those_that_the_package_names(script: ModuleType) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert named == [*script.SUPPORTED]
    assert f"Python {named[0]} to {named[-1]}" in (REPOSITORY / "README.md").read_text()


def test_a_shim_that_leads_nowhere_is_no_python(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert script.found("3.99") is None
    real = tmp_path / ".pyenv" / "versions" / "3.99.1" / "bin" / "python"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\nexit 0\n")
    real.chmod(0o755)
    assert script.found("3.99") == str(real)
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert script.found("3.99") == str(shim)
