"""--help says what every key means, of the options that the command line chooses, and starts fast."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.commands import meanings
from runner.commands.help import OF_GROUPS
from runner.config import CHOICES, CONF
from runner.errors import RunnerError
from runner.options.settings import RunConfig

_RUN = """
import runpy, sys
try:
    runpy.run_module("runner", run_name="__main__")
finally:
    print([name for name in ("torch", "numba", "sklearn", "pandas") if name in sys.modules], file=sys.stderr)
"""


def helped(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *words, "--help"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True, env=dict(os.environ),
    )  # fmt: skip
    assert done.stderr == "[]\n", "help loads nothing that takes long"
    return done.stdout


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")  # readline, which pytest loads, may have set it to the width of a terminal
        yield helped("sampler=rff", "epochs=7")


def meaning_of(key: str, page: str) -> str:
    """Return what follows a key and its value, up to the next key."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"  {key} ")]
    return " ".join(line.split()[2:])


def test_every_group_and_key_has_a_clause(page: str) -> None:
    assert set(OF_GROUPS) == set(CHOICES)
    for group, about in OF_GROUPS.items():
        assert f"  {group}: {about}" in page
        assert all(path.stem in page for path in (CONF / group).glob("*.yaml"))
    fields = {field.name for field in dataclasses.fields(RunConfig)} - {*CHOICES, "unused"}
    shown = {line.split()[0].partition(".")[0] for line in page.splitlines() if line.startswith("  ") and line.strip()}
    assert fields <= shown, fields - shown
    keys = [line.split()[0] for line in page.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    keys = [key for key in keys if "." in key or key in fields]
    assert len(keys) > 35
    for key in keys:
        assert meaning_of(key, page), f"{key} has no meaning"


def test_keys_are_those_of_the_options_chosen(page: str) -> None:
    assert "The keys of sampler=rff:" in page
    assert "random" in meaning_of("sampler.D", page)
    assert "sampler.K " not in page
    assert page.split("  epochs ")[1].split()[0] == "7"
    assert "The keys of sampler" not in helped("model=popularity", "dataset=ml100k"), "it has no classes to sample"


@pytest.mark.parametrize("columns", [80, pytest.param(110, marks=pytest.mark.slow)])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = helped()
    assert max(map(len, page.splitlines())) <= columns
    (place,) = [place for place, line in enumerate(page.splitlines()) if line.startswith("  max_steps ")]
    meaning = page.splitlines()[place + (columns == 80)]
    assert meaning.endswith("stop after this many steps, before the last epoch ends")


@pytest.mark.parametrize("content", [None, "{", "[1"])
def test_meanings_that_cannot_be_read_are_one_line(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meanings.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(meanings, "MEANINGS", file)
    meanings.written_meanings.cache_clear()
    with pytest.raises(RunnerError, match=r"meanings\.json cannot be read .*; make generated writes it anew"):
        meanings.written_meanings()
    meanings.written_meanings.cache_clear()
