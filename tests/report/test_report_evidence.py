"""Claims are also judged by the committed tables of larger profiles, and the committed page says what these decide."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from runner import REPOSITORY
from runner.report.numbers.papers import load_papers
from runner.report.pages.evidence import END, evidence, with_evidence

TABLES = REPOSITORY / "results" / "tables"
PAGE = (REPOSITORY / "results" / "REPRODUCTION.md").read_text()


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """Make a folder of committed tables with one table of profile medium."""
    (tmp_path / "tables" / "medium").mkdir(parents=True)
    shutil.copy(TABLES / "medium" / "midx_table9.csv", tmp_path / "tables" / "medium")
    return tmp_path / "tables"


def test_only_what_a_larger_table_measured_is_judged(committed: Path) -> None:
    found = evidence("small", committed)
    assert {name for name, judged in found.items() if judged} == {"midx"}
    assert [one.verdict.claim.table for one in found["midx"]] == ["midx_table9", "midx_table9"]
    assert {one.profile for one in found["midx"]} == {"medium"}
    assert "MIDX-pq on WordNet hypernyms" in found["midx"][0].verdict.sentence
    assert not any(evidence("medium", committed).values()), "medium is not larger than itself"


def test_the_largest_profile_decides(committed: Path) -> None:
    cells = pd.read_csv(committed / "medium" / "midx_table9.csv")
    cells.loc[cells["method"].str.startswith("midx"), "ours"] = 1.0
    (committed / "paper").mkdir()
    cells.to_csv(committed / "paper" / "midx_table9.csv", index=False)
    found = evidence("small", committed)["midx"]
    assert [(one.profile, one.verdict.holds) for one in found] == 2 * [("paper", "does not hold")]


def test_a_page_is_renewed_between_its_comments_alone(committed: Path) -> None:
    begin = "<!-- claims of midx by larger tables: make generated writes them from results/tables -->"
    page = with_evidence(f"before\n{begin}\nstale\n{END}\nafter\n", committed)
    assert re.match(rf"before\n{re.escape(begin)}\n\n\*\*\d of 2 claims holds? by the largest committed tables", page)
    assert page.endswith(f"{END}\nafter\n")
    assert "[midx_table9, medium](tables/medium/midx_table9.md)" in page
    assert "stale" not in page
    assert with_evidence(page, committed) == page


def test_the_committed_page_has_a_block_for_each_paper() -> None:
    begun = re.findall(r"<!-- claims of (\w+) by larger tables", PAGE)
    assert begun == [paper.name for paper in load_papers()]
    assert PAGE.count(END) == len(begun)


def test_what_the_page_leaves_undecided_a_larger_table_decides() -> None:
    """One seed leaves claims about NDCG undecided, and three seeds of profile medium do not."""
    own = PAGE.partition("\n## Adaptive Sampled Softmax")[2].partition("<!-- claims of midx")[0]
    undecided = set(re.findall(r"^\| (NDCG.+?) +\| +undecided \|", own, flags=re.M))
    decided = {one.verdict.claim.says for one in evidence("small", TABLES)["midx"] if one.verdict.holds != "undecided"}
    assert len(undecided) >= 4
    assert undecided <= decided
