"""Verdicts on the papers' claims follow from the numbers of our tables, and every claim names cells that exist."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.errors import ConfigError
from runner.report import papers as module
from runner.report.columns import panels_of
from runner.report.grids import expand
from runner.report.page import Report, html_page, markdown_page
from runner.report.papers import Claim, judge, load_papers
from runner.report.render import render
from runner.report.tables import load_table

CELLS = pd.DataFrame(
    [
        ("d", "mine", "P@1", 50.0, 0.5, "finished"), ("d", "other", "P@1", 40.0, 0.5, "finished"),
        ("e", "mine", "P@1", 40.2, 0.5, "finished"), ("e", "other", "P@1", 40.0, 0.5, "finished"),
        ("f", "mine", "P@1", 30.0, math.nan, "finished"), ("f", "other", "P@1", 40.0, math.nan, "finished"),
        ("g", "mine", "P@1", math.nan, math.nan, "not run"), ("g", "other", "P@1", 40.0, 0.5, "finished"),
        ("d", "mine", "seconds", math.nan, math.nan, "Fail"), ("d", "other", "seconds", 7.0, math.nan, "finished"),
    ],
    columns=["dataset", "method", "metric", "ours", "deviation", "status"],
).assign(seeds=3)  # fmt: skip
METHODS = {"mine": "Mine", "other": "Other"}
DATASETS = {name: name.upper() for name in "defg"}


def claim(**more: object) -> Claim:
    return Claim(**{"says": "It is so", "table": "t", "column": "P@1", "methods": ("mine",), **more})


def one_row(method: str, ours: float, status: str, seeds: int = 3) -> dict[str, object]:
    about = {"dataset": "d", "metric": "P@1", "deviation": math.nan, "seeds": seeds}
    return {**about, "method": method, "ours": ours, "status": status}


def test_a_single_seed_is_told() -> None:
    cells = pd.DataFrame([one_row("mine", 50.0, "finished", seeds=1)])
    assert judge(claim(at_least=40.0), cells, METHODS, DATASETS).sentence == "Mine on D: 50 (needed ≥ 40, one seed)"


def test_a_claim_is_judged_on_each_data_set() -> None:
    verdict = judge(claim(above="other"), CELLS, METHODS, DATASETS)
    assert [case.holds for case in verdict.cases] == ["holds", "undecided", "does not hold", "not measured"]
    assert verdict.holds == "holds in 1 of 3 cases"
    assert verdict.sentence.startswith("Mine on D: 50 (needed ≥ 40); Mine on E: 40.2 (needed ≥ 40, within the dev")
    assert " on G" not in verdict.sentence


def test_bounds_are_numbers_or_multiples_of_another_method() -> None:
    one = CELLS[CELLS["dataset"] == "f"]
    assert judge(claim(above="other", times=0.75), one, METHODS, DATASETS).holds == "holds"
    assert judge(claim(above="other", times=0.8), one, METHODS, DATASETS).holds == "does not hold"
    assert judge(claim(at_least=30.0), one, METHODS, DATASETS).holds == "holds", "an equal number keeps the bound"
    assert judge(claim(at_most=29.0), one, METHODS, DATASETS).holds == "does not hold"
    assert judge(claim(below="other"), one, METHODS, DATASETS).holds == "holds"


def test_what_training_did_not_reach_does_not_hold_and_what_was_not_run_decides_nothing() -> None:
    failed = judge(claim(column="seconds", below="other"), CELLS, METHODS, DATASETS)
    assert failed.holds == "does not hold"
    assert failed.sentence == "Mine on D: never (needed ≤ 7)"
    assert judge(claim(above="other"), CELLS[CELLS["dataset"] == "g"], METHODS, DATASETS).holds == "not measured"
    diverged = one_row("mine", 50.0, "finished"), one_row("other", math.nan, "diverged")
    assert judge(claim(above="other"), pd.DataFrame(diverged), METHODS, DATASETS).holds == "not measured"
    assert judge(claim(above="missing"), CELLS, METHODS, DATASETS).holds == "not measured"
    assert judge(claim(above="other"), None, {}, {}).holds == "not measured"


@pytest.mark.slow
def test_every_claim_names_a_column_and_methods_of_a_table(results_dir: Path) -> None:
    papers = load_papers()
    assert [paper.name for paper in papers] == ["lns", "lgd", "rf_softmax", "lsh_softmax", "midx"]
    columns: dict[str, set[str]] = {}
    for paper in papers:
        for one in paper.claims:
            spec = load_table(one.table)
            if one.table not in columns:
                dataset = spec.grid.profile("small").datasets[0].name
                runs = expand(spec.grid, "small", results_dir, datasets=[dataset])
                columns[one.table] = {column.name for panel in panels_of(spec, runs) for column in panel.columns}
            assert one.column in columns[one.table], one
            methods = {method.name for method in spec.grid.methods}
            assert {*one.methods, *filter(None, [one.above, one.below])} <= methods, one


@pytest.mark.parametrize(("wrong", "right", "hint"), [
    ("at_least: 10", "at_lest: 10", r"^conf/papers.yaml: unknown key 'lns\.claims\[0\]\.at_lest'; did you mean"),
    ("at_least: 10", "at_least: 10, at_most: 3", r"^conf/papers.yaml: lns.*give one of at_least, at_most, above"),
])  # fmt: skip
def test_a_mistake_names_the_file(
    wrong: str, right: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "papers.yaml"
    changed.write_text(module.FILE.read_text().replace(wrong, right))
    monkeypatch.setattr(module, "FILE", changed)
    with pytest.raises(ConfigError, match=hint):
        load_papers()


def test_the_page_shows_verdicts_what_is_missing_and_how_to_choose(
    write_tables: Callable[..., Path], write_run: Callable[..., Path], results_dir: Path, grid_text: str
) -> None:
    table = "title: Toy\nkind: numbers\ncolumns: [{name: P@1, metric: test/p@1}]\ngrid: toy\nhelps_to_choose: Classes\n"
    spec = load_table("toy", write_tables(grid=grid_text, toy=table))
    for run in expand(spec.grid, "small", results_dir):
        write_run(run, [0.2, 0.4], p1=0.25 if run.method == "nce" else 0.4)
    *_, readme, page = render([spec], "small", results_dir)
    html = page.read_text()
    assert "A Tale of Two Efficient" in html
    assert "An epoch takes less time than with full softmax" in html
    assert "not measured" in html
    assert "Which sampler should I use?" in html
    assert "-37.5" in html, "NCE's P@1 is 37.5 % below full softmax's"
    assert "logits become normalised" in html
    assert "python scripts/prepare_dataset.py amazon670k" in html, "the paper's set is missing"
    assert "What each table took" in html
    assert not re.findall(r'(?:src|href)="(?!data:image/png;base64,|#)', html), "it needs no other file"
    text = readme.read_text()
    assert "## Which sampler should I use?" in text
    assert "\n### Toy\n" in text
    assert "| An epoch takes less time than with full softmax" in text
    assert "python scripts/prepare_dataset.py amazon670k" in text
    assert "## What each table took" in text
    assert "- `toy`: 3\n" in text, "a cell of each method has a number"


def test_text_from_files_is_escaped() -> None:
    report = Report(title="a < b", found={}, missing=("x <script> `code`",))
    page = html_page(report)
    assert "a &lt; b" in page
    assert "x &lt;script&gt; <code>code</code>" in page
    assert "- x <script> `code`\n" in markdown_page(report)
