"""docs/options.md is what scripts/make_options.py makes, and says of every key what it means."""

import re

import pytest
from command_lines import ROOT
from test_command_lines import script_named

from runner.config import CONF


@pytest.fixture(scope="module")
def page() -> str:
    return script_named("make_options").page()


def test_the_page_is_up_to_date(page: str) -> None:
    assert (ROOT / "docs" / "options.md").read_text() == page, "run .venv/bin/python scripts/make_options.py"


def test_every_key_has_a_meaning(page: str) -> None:
    assert re.findall(r"^\| `(\S+)` \| .* \|  \|$", page, flags=re.M) == []


def test_every_option_is_there(page: str) -> None:
    """Every file of every group is a heading of its group's section; only preset=none has nothing to say."""
    for section in page.split("\n## ")[2:]:
        group = section.partition("\n")[0]
        named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^### (.+)$", section, flags=re.M))))
        assert named == {path.stem for path in (CONF / group).glob("*.yaml")} - {"none"}
