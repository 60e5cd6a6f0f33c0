"""Every section of docs/reliability.md names tests, and there are such tests."""

import ast
import re

import pytest
from command_lines import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = re.findall(r"^- `(tests/[\w/]+\.py)::(\w+)`$", PAGE, flags=re.M)


def test_every_section_names_a_test() -> None:
    first, *sections = re.split(r"^## ", PAGE, flags=re.M)
    assert "Every statement of this page is tested" in first
    assert len(sections) >= 8
    assert [section.partition("\n")[0] for section in sections if "::test_" not in section] == []
    assert len(NAMED) == PAGE.count("::test_"), "each on a line of its own"


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(file: str, name: str) -> None:
    found = [node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in found
