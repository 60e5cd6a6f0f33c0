"""What is made of the config classes and of the log is what the scripts make: conf/, options, meanings, the index."""

import re
from pathlib import Path

import pytest
from command_lines import ROOT
from test_command_lines import script_named

from runner.commands.meanings import written_meanings
from runner.config import CONF, GROUPS


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    return script_named("make_options").written()


def test_files_are_up_to_date(made: dict[Path, str]) -> None:
    stale = [str(path) for path, text in made.items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run .venv/bin/python scripts/make_options.py"


def test_every_file_of_a_group_is_made(made: dict[Path, str]) -> None:
    files = {path for group in GROUPS for path in (CONF / group).glob("*.yaml")}
    assert files - made.keys() == set(), "no class has this option: delete its file"


def test_every_key_has_a_meaning() -> None:
    options = [(group, name, keys) for group, named in written_meanings().items() for name, keys in named.items()]
    assert [f"{group}={name} {key}" for group, name, keys in options for key, says in keys.items() if not says] == []


def test_every_option_is_on_the_page() -> None:
    """Every file of every group is a heading of its group's section; only preset=none has nothing to say."""
    page = (ROOT / "docs" / "options.md").read_text()
    for section in page.split("\n## ")[2:]:
        group = section.partition("\n")[0]
        named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^### (.+)$", section, flags=re.M))))
        assert named == {path.stem for path in (CONF / group).glob("*.yaml")} - {"none"}


def test_the_log_has_an_index_and_its_entries_are_ordered() -> None:
    """Every second heading of a page of the log is an entry with a date, newest first, and has an anchor of its own."""
    log = script_named("make_log_index")
    stale = [str(path) for path, text in log.written().items() if path.read_text() != text]
    assert stale == [], "run .venv/bin/python scripts/make_log_index.py"
    for page in sorted(log.PAGES.glob("*.md")):
        entries = log.entries_of(page)
        assert len(entries) == page.read_text().count("\n## "), f"{page.name}: an entry is '## YYYY-MM-DD: title'"
        dates = [date for date, _ in entries if date != "Earlier"]
        assert dates == sorted(dates, reverse=True), page.name
        anchors = [log.anchor(f"{date}: {title}") for date, title in entries]
        assert len(set(anchors)) == len(anchors), page.name
        assert [anchor for anchor in anchors if "--" in anchor] == [], "the site and repositories differ in these"
