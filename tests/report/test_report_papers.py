"""Verdicts on the papers' claims follow from the numbers of our tables, and every claim names cells that exist."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from runner.errors import ConfigError
from runner.report.numbers import papers as module
from runner.report.numbers.columns import panels_of
from runner.report.numbers.papers import (
    CellsOfTable,
    Claim,
    Headline,
    Paper,
    Verdict,
    judge,
    load_papers,
    summary,
    verdicts,
)
from runner.report.numbers.records import BUSY
from runner.report.pages.benches import bench_numbers
from runner.report.pages.page import Report, html_page, markdown_page, missing_lines
from runner.report.render import render
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import TableSpec, bench_names, load_bench, load_table

RESULTS = Path(__file__).parents[2] / "results"

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


def test_a_small_difference_decides_nothing_with_one_seed() -> None:
    cells = pd.DataFrame([one_row("mine", 40.7, "finished", seeds=1)])
    near, far, below = (judge(claim(at_least=bound), cells, METHODS, DATASETS) for bound in (40.0, 39.8, 41.3))
    assert (near.holds, far.holds, below.holds) == ("undecided", "holds", "undecided")
    assert near.sentence == "Mine on D: 40.7 (needed ≥ 40, within 2 %, one seed)"
    assert judge(claim(at_least=40.0), cells.assign(seeds=3), METHODS, DATASETS).holds == "holds"


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


def test_seconds_of_a_busy_machine_decide_nothing() -> None:
    busy, quiet = one_row("mine", math.nan, f"{BUSY} (1 of 3 seeds)"), one_row("other", 7.0, "finished")
    for rows in ((busy, quiet), ({**quiet, "method": "mine"}, {**busy, "method": "other"})):
        verdict = judge(claim(below="other"), pd.DataFrame(rows), METHODS, DATASETS)
        assert (verdict.holds, verdict.sentence) == ("undecided", "Mine on D: others used the machine")
        assert summary([replace(verdict, claim=replace(verdict.claim, headline=SOONER))], "small").startswith("0 of 1")


def test_numbers_have_their_unit_and_commas() -> None:
    cells = pd.DataFrame([one_row("mine", 12345.6, "finished"), one_row("other", 40.0, "finished")])
    told = judge(claim(above="other", unit=" %"), cells, METHODS, DATASETS).sentence
    assert told == "Mine on D: 12,346 % (needed ≥ 40 %)"


def test_another_table_is_judged_where_the_first_was_not_measured() -> None:
    both = claim(at_least=45.0, or_table="u")
    paper = Paper(name="p", short="P", title="", authors="", about="", claims=(both,))
    first, second = ((CELLS[CELLS["dataset"] == name], METHODS, DATASETS, {}) for name in "df")

    def judged_by(**tables: CellsOfTable) -> tuple[str, str]:
        (verdict,) = verdicts(paper, tables)
        return verdict.table, verdict.holds

    assert judged_by(t=first, u=second) == ("t", "holds")
    assert judged_by(u=second) == ("u", "does not hold")
    assert judged_by() == ("t", "not measured")


# ---------------------------------------------------------------- in a sentence

SOONER = Headline(
    found="{method} reached it in {inverse:.2f} of its time ({value:.1f}, {bound:g})",
    never="{method} never reached it",
    promise="≥ 10 x",
)


def judged(*values: float, headline: Headline | None = SOONER, seeds: int = 3, **more: object) -> Verdict:
    """Judge the claim ``at least 10`` on a method with these values, on as many data sets."""
    rows = [
        {**one_row("mine", value, "Fail" if math.isnan(value) else "finished", seeds), "dataset": dataset}
        for value, dataset in zip(values, "defg", strict=False)
    ]
    bound = claim(at_least=10.0, headline=headline, **more)
    return judge(bound, pd.DataFrame(rows), METHODS, DATASETS, {"d": 13575})


def not_run(**more: object) -> Verdict:
    return judge(claim(at_least=10.0, **more), None, {}, {})


def test_a_sentence_counts_claims_and_tells_the_headline_s_numbers() -> None:
    found = [judged(4.8), *3 * [judged(20.0, headline=None)], not_run()]
    assert summary(found, "small") == (
        "3 of 5 claims hold on the sets trained here, 1 does not, 1 was not measured. Mine reached it in 0.21 of its"
        " time (4.8, 10); the paper's ≥ 10 x does not hold on D (13,575 classes)."
    )


def test_every_verdict_is_counted() -> None:
    undecided = judge(claim(above="other"), CELLS[CELLS["dataset"] == "e"], METHODS, DATASETS)
    mixed = judged(20.0, 5.0, headline=None)
    found = [mixed, mixed, undecided, judged(5.0, headline=None), judged(5.0, headline=None), not_run(), not_run()]
    assert summary(found, "small") == (
        "0 of 7 claims hold on the sets trained here, 2 hold in some cases only, 2 do not, 1 is undecided,"
        " 2 were not measured."
    )
    assert summary([judged(20.0, headline=None)], "small") == "1 of 1 claim holds on the sets trained here."
    assert summary([not_run(), not_run()], "small") == "None of 2 claims was measured."
    assert summary([not_run()], "small") == "The one claim was not measured."
    assert summary([], "small") == ""


def test_a_headline_tells_its_best_case_and_a_worst_one_that_ended_otherwise() -> None:
    assert summary([judged(20.0, 40.0)], "small").endswith(
        "here. At best, Mine reached it in 0.03 of its time (40.0, 10); the paper's ≥ 10 x holds on E."
    )
    text = summary([judged(20.0, math.nan, seeds=1)], "small")
    assert "At best, Mine reached it in 0.05 of its time (20.0, 10); the paper's ≥ 10 x holds on D (13,575" in text
    assert text.endswith("At worst, Mine never reached it; the paper's ≥ 10 x does not hold on E, one seed.")


def test_a_headline_that_was_not_measured_is_named_before_the_next_one() -> None:
    text = summary([not_run(headline=SOONER), judged(20.0)], "medium")
    assert "Its claim “It is so” was not measured: `make reproduce TABLE=t PROFILE=medium` does so. Mine reac" in text
    shown = {"at_least": 10.0, "methods": ("mine", "other")}
    other = Claim(
        says="", table="t", column="P@1", headline=Headline(found="{method}", never="", promise="", methods=("other",)),
        **shown,
    )  # fmt: skip
    rows = pd.DataFrame([one_row("mine", 50.0, "finished"), one_row("other", 40.0, "finished")])
    text = summary([judge(other, rows, METHODS, DATASETS)], "small")
    assert "Other; the paper's" in text, "a method that is not the paper's own does not speak for it"
    assert "Mine" not in text


@pytest.mark.slow
def test_every_claim_names_a_column_and_methods_of_a_table(results_dir: Path) -> None:
    papers = load_papers()
    assert [paper.name for paper in papers] == ["lns", "lgd", "rf_softmax", "lsh_softmax", "midx"]
    columns: dict[str, set[str]] = {}
    for paper in papers:
        assert any(one.headline for one in paper.claims), paper.name
        for one in paper.claims:
            if one.table in bench_names():
                found = bench_numbers([load_bench(one.table)], RESULTS)[one.table][0]
                assert one.column in set(found["metric"]), one
                assert {*one.methods, *filter(None, [one.above, one.below])} <= set(found["method"]), one
                continue
            spec = load_table(one.table)
            if one.or_table:
                other = load_table(one.or_table)
                assert one.column in {column.name for column in other.columns}, one
                assert {*one.methods} <= {method.name for method in other.grid.methods}, one
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
    ("{inverse:.2f} of full", "{inverted:.2f} of full", r"^conf/papers.yaml: lns.*'inverted' is no field; use method"),
    ("methods: [lgd_printed, lgd]}", "methods: [lgd_prited]}", r"^conf/papers.yaml: lgd.*lgd_prited is no method of"),
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
    *_, readme, page = render([spec], "small", results_dir, not_planned=[spec, load_table("lgd_figure5")])
    html = page.read_text()
    assert "<code>make reproduce TABLE=lgd_figure5 PROFILE=small</code> does so" in html
    assert "TABLE=toy" not in html.partition('id="missing"')[2], "it is on the page"
    assert "A Tale of Two Efficient" in html
    assert "An epoch takes less time than with full softmax" in html
    assert "not measured" in html
    told = "None of 7 claims was measured. Its claim “An epoch is 10.3 times as fast as with full softmax"
    assert told in html
    assert "<code>make reproduce TABLE=lns_table3 PROFILE=small</code> does so" in html
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
    assert "**None of 7 claims was measured. Its claim “An epoch is 10.3 times as fast as with full softmax" in text
    assert "python scripts/prepare_dataset.py amazon670k" in text
    assert "## What each table took" in text
    assert "- `toy`: 3\n" in text, "a cell of each method has a number"


def test_data_sets_that_are_missing_for_one_reason_stay_apart(
    toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels such as "PTB, LSTM" have commas of their own."""
    monkeypatch.setattr("runner.report.pages.page.status_of", lambda _: "skipped: no library")
    runs = planned(toy["convergence"].grid, "small")[:2]
    runs = [replace(run, dataset=name) for run, name in zip(runs, "ab", strict=True)]
    monkeypatch.setattr("runner.report.pages.page.how_to_prepare", lambda _: "")
    assert missing_lines(runs, {"a": "PTB", "b": "PTB, LSTM"}) == ["PTB; PTB, LSTM: no library"]


def test_text_from_files_is_escaped() -> None:
    report = Report(title="a < b", found={}, missing=("x <script> `code`",))
    page = html_page(report)
    assert "a &lt; b" in page
    assert "x &lt;script&gt; <code>code</code>" in page
    assert "- x <script> `code`\n" in markdown_page(report)
