"""The first screen: its rule is what committed tables say, it is short, and its generated parts are up to date."""

import csv
import math
import re
from pathlib import Path

import pytest
from claims import CLAIMS, rows_of, seconds_to_level
from command_lines import ROOT
from test_command_lines import script_named

from runner.errors import ConfigError, DataError
from runner.report.pages.opening import with_rule
from runner.report.spec.first_page import load_first_page

README = (ROOT / "README.md").read_text()
STATIC = ("uniform", "log_uniform", "unigram")
FLAT, POWER_LAW = "wordnet_related", (("curves", "wordnet_hypernym"), ("curves_medium", "synthetic_xc"))


def first(file: str, dataset: str, level: float) -> str:
    """Return the method that is first at a level."""
    seconds = seconds_to_level(CLAIMS["files"][file], dataset, level)
    return min(seconds, key=seconds.__getitem__)


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95, 0.98, 1.0])
def test_full_softmax_is_first_with_few_classes(level: float) -> None:
    assert first("curves", "delicious", level) == "full"


def test_unigram_draws_end_above_full_softmax_with_few_classes() -> None:
    rows = rows_of(CLAIMS["files"]["time"])
    ends = {r["method"]: float(r["ours"]) for r in rows if (r["dataset"], r["metric"]) == ("delicious", "P@1")}
    assert ends["unigram"] > ends["full"] + 1


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95, 0.98])
@pytest.mark.parametrize(("file", "dataset"), POWER_LAW)
def test_static_draws_are_first_where_frequencies_follow_a_power_law(file: str, dataset: str, level: float) -> None:
    assert first(file, dataset, level) in STATIC


def test_with_flat_frequencies_the_first_turns_round_between_95_and_98_percent() -> None:
    assert {first("curves", FLAT, level) for level in (0.8, 0.9, 0.95)} <= {*STATIC}
    assert {first("curves", FLAT, level) for level in (0.98, 1.0)} == {"lsh_embedding_shared"}
    at_98 = seconds_to_level(CLAIMS["files"]["curves"], FLAT, 0.98)
    assert all(at_98[method] == math.inf for method in STATIC)


def test_the_table_of_the_readme_names_who_is_first() -> None:
    names = {
        "full softmax": "full",
        "item-kNN, which counts": "item_knn",
        "shared LSH Embedding": "lsh_embedding_shared",
    }
    (entry,) = (table for table in CLAIMS["tables"] if table["page"] == "README.md")
    for label, where in entry["rows"].items():
        (row,) = re.findall(rf"^\| {label} \|(.*)\|$", README, flags=re.M)
        cells = [cell.strip() for cell in row.split("|")]
        for name, level in ((cells[3], 0.9), (cells[5], 0.98)):
            assert names.get(name, name.replace("-", "_")) == first(where["file"], where["dataset"], level), label


def test_the_readme_is_for_one_who_has_a_minute() -> None:
    assert len(README.split()) <= 700
    without_code = re.sub(r"^```.*?^```", "", README, flags=re.S | re.M)
    blocks = re.split(r"\n\s*\n|\n(?=- )", without_code)
    paragraphs = [block for block in blocks if not block.lstrip().startswith(("|", "#", "<!--"))]
    assert max(len(paragraph.strip().splitlines()) for paragraph in paragraphs) <= 4
    for block in re.findall(r"^```(?:sh|python)\n(.*?)^```", README, flags=re.S | re.M):
        assert len(block.splitlines()) <= 5


def test_pages_have_the_rule_of_the_file() -> None:
    stale = [path.name for path, text in script_named("make_first_page").written().items() if path.read_text() != text]
    assert stale == [], "make generated renews them"


def test_the_figure_is_of_the_committed_curves(tmp_path: Path) -> None:
    """Its picture may differ by matplotlib's version, its points may not."""
    picture, data = script_named("make_first_page").draw(tmp_path)
    assert picture.stat().st_size > 10_000
    assert data.read_text() == (ROOT / "results" / "tables" / "first_page.csv").read_text(), "make generated renews it"
    with data.open(newline="") as file:
        shown = {(row["figure"], row["dataset"]) for row in csv.DictReader(file)}
    assert len(shown) == 3, "a panel for each family"


def test_a_page_without_a_place_for_the_rule_and_a_wrong_key_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line '<!-- rule"):
        with_rule("# Title\n", load_first_page())
    file = tmp_path / "first_page.yaml"
    file.write_text("levels: x\nrule: [y]\nfigure: [{family: A, labell: b}]\n")
    with pytest.raises(ConfigError, match=r"^conf/first_page.yaml: figure\[0\]"):
        load_first_page(file)
