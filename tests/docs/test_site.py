"""The site has every page, and builds without a broken link."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_lines import ROOT


def pages_of(navigation: Any) -> Iterator[str]:
    """Yield the pages of mkdocs.yml's ``nav``, however deep they lie."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for entry in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from pages_of(entry)


def test_every_page_is_in_the_navigation() -> None:
    listed = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def test_the_site_builds(tmp_path: Path) -> None:
    """``--strict`` refuses links and anchors that lead nowhere; a figure of results/ is copied to where pages look."""
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed; it comes with the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "tables" / "small" / "lns_figure4.png").is_file()
    assert 'src="tables/small/lns_figure4.png"' in (tmp_path / "results" / "index.html").read_text()
