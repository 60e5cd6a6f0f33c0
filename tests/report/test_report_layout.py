"""Printed tables equal golden Markdown, LaTeX and CSV read back, and the HTML page is self-contained."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.report.figures import plots
from runner.report.numbers.cells import cells
from runner.report.numbers.columns import OF_EVERY_RUN, Column
from runner.report.numbers.records import record_of
from runner.report.pages import layout
from runner.report.pages.latex import to_latex
from runner.report.render import render, runs_shown
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec

Specs = dict[str, TableSpec]


@pytest.fixture
def shown(
    toy: Specs, results_dir: Path, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> list[PlannedRun]:
    """Full softmax and NCE finished on the stand-in, LSH Label failed; on Amazon-670K only full softmax finished."""
    runs = runs_shown(toy["convergence"].grid, "small", results_dir)
    write_run(pick(runs, "full"), [0.3, 0.5, 0.6], p1=0.61234, seconds=30)
    write_run(pick(runs, "nce"), [0.1, 0.2, 0.25], p1=0.26, seconds=3)
    write_run(pick(runs, "lsh_label"), [0.1], status="failed", error="OSError: a | b")
    write_run(pick(runs[3:], "full"), [0.2, 0.35, 0.38], p1=0.38)
    return runs


GOLDEN = """\
# Toy Table 2

Made by `make`  
4 runs of 2026-01-02; commit 0123456789; Toy CPU, 2 of 2 cores

## WordNet hypernyms

not a data set of the paper: no published numbers; 4 epochs, batch 256, adam lr 0.003, seed 0

| Method       | Epochs to 50 % | Epochs to 90 % | P@1 (%) |       Runs |
| ------------ | -------------: | -------------: | ------: | ---------: |
| Full softmax |           1.00 |           3.00 |   61.23 | <full-run> |
| LSH Label    |         failed |         failed |  failed | <lshl-run> |
| NCE          |           Fail |           Fail |   26.00 | <nce--run> |

## Amazon-670K

4 epochs, batch 256, adam lr 0.003, seed 0
"""


@pytest.mark.parametrize(("unit", "decimals", "ours", "deviation", "printed"), [
    ("x", 2, 1667.704, math.nan, "1,668x"), ("x", 2, 999.126, math.nan, "999.13x"), ("x", 2, 0.054, math.nan, "0.05x"),
    ("", 4, 3486.911, math.nan, "3,487"), ("", 4, 3486.911, 12.3456, "3,487 ± 12"), ("", 4, 0.5984, math.nan, "0.5984"),
    ("", 4, 3486.911, 0.0123, "3,486.9110 ± 0.0123"), ("s", 1, 3486.911, math.nan, "3,486.9"),
])  # fmt: skip
def test_large_ratios_and_errors_have_no_decimals(
    unit: str, decimals: int, ours: float, deviation: float, printed: str
) -> None:
    column = Column(name="n", label="N", unit=unit, decimals=decimals, measure=lambda record, to: None)
    cell = pd.Series({"ours": ours, "deviation": deviation, "lowest": ours, "highest": ours, "median": ours})
    assert layout._ours_text(cell, column) == printed


def test_rows_a_second_have_three_digits() -> None:
    cell = pd.Series({"ours": 201_658_680.4, "deviation": 1_234_567.8, "lowest": 2e8, "highest": 3e8, "median": 2e8})
    assert layout._ours_text(cell, OF_EVERY_RUN["units_per_second"]) == "202,000,000 ± 1,230,000"


def test_markdown_is_as_agreed(toy: Specs, shown: list[PlannedRun]) -> None:
    spec = toy["convergence"]
    text = layout.to_markdown(layout.document(spec, cells(spec, shown), shown, "make"))
    for run, name in zip(shown, ("<full-run>", "<lshl-run>", "<nce--run>"), strict=False):
        text = text.replace(record_of(run).short_id, name, 1)
    assert text.startswith(GOLDEN)
    assert "| Full softmax |           1.00 |                      2.00 |                      -1.00 |" in text
    assert "*skipped: data not prepared (python scripts/prepare_dataset.py amazon670k)*" in text
    assert "failed: OSError: a \\| b" in text, "a pipe must not end a cell"
    assert text.rstrip().endswith(f"{shown[3].run_id} |"), "the last table traces every run"


def test_without_a_number_of_ours_there_is_one_published_column(
    toy: Specs, shown: list[PlannedRun], results_dir: Path
) -> None:
    """The section says once why ours is missing and which commands make it, in all three forms."""
    shutil.rmtree(shown[3].config.run_dir)
    folder = results_dir / "out" / "small"
    *_, page = render([toy["convergence"]], "small", results_dir)
    text = (folder / "toy2.md").read_text()
    table = text.partition("## Amazon-670K")[2].partition("\n## ")[0]
    assert "| Method       | Epochs to 50 %, published | Epochs to 90 %, published | P@1 (%), published |" in table
    assert "| Full softmax |                      2.00 |                      6.00 |              37.50 |" in table
    told = (
        "Published numbers only: data are not prepared here; `python scripts/prepare_dataset.py amazon670k` prepares"
        " them, and then `make reproduce TABLE=toy2 PROFILE=paper` makes our runs."
    )
    assert table.count(told) == 1
    assert table.count("not prepared") == 1
    assert "difference" not in text
    assert "make reproduce TABLE=toy2 PROFILE=paper</code> makes our runs" in page.read_text()
    assert "<td>37.50</td>" in page.read_text()
    tex = (folder / "toy2.tex").read_text()
    assert r"\texttt{make reproduce TABLE=toy2 PROFILE=paper} makes our runs" in tex
    assert "difference" not in tex


@pytest.mark.parametrize("outcome", ["failed", "Fail", "diverged (1 of 3 seeds)"])
def test_what_failed_or_never_got_there_is_no_missing_number(toy: Specs, shown: list[PlannedRun], outcome: str) -> None:
    spec = toy["convergence"]
    frame = cells(spec, shown)
    frame.loc[frame["dataset"] == "amazon670k", ["ours", "difference"]] = math.nan
    frame.loc[(frame["dataset"] == "amazon670k") & (frame["method"] == "full"), "status"] = outcome
    text = layout.to_markdown(layout.document(spec, frame, shown, "make"))
    assert "P@1 (%), difference" in text
    assert "Published numbers only" not in text


def test_published_numbers_are_printed_like_ours(toy: Specs, shown: list[PlannedRun]) -> None:
    frame = cells(toy["convergence"], shown)
    frame.loc[frame["published"].notna(), "published"] = 1617934.0
    text = layout.to_markdown(layout.document(toy["convergence"], frame, shown, "make"))
    assert "1,617,934.00" in text
    assert "e+06" not in text


def test_nothing_is_a_negative_zero(toy: Specs, shown: list[PlannedRun]) -> None:
    frame = cells(toy["convergence"], shown)
    frame.loc[frame["ours"].notna(), ["ours", "difference"]] = -0.0004
    text = layout.to_markdown(layout.document(toy["convergence"], frame, shown, "make"))
    assert "-0.00" not in text
    assert "| 0.00 |" in re.sub(" +", " ", text)
    assert "+0.00" in text, "a difference"


def test_csv_reads_back_with_full_statuses(toy: Specs, shown: list[PlannedRun], results_dir: Path) -> None:
    spec = toy["convergence"]
    render([spec], "small", results_dir)
    path = results_dir / "out" / "small" / "toy2.csv"
    read, long = pd.read_csv(path), cells(spec, shown)
    assert read["ours"].to_numpy() == pytest.approx(long["ours"].to_numpy(), nan_ok=True)
    assert read["status"].tolist() == long["status"].tolist()
    row = read.query("dataset == 'amazon670k' and method == 'full' and metric == 'P@1'").iloc[0]
    assert (row["ours"], row["published"], row["difference"]) == (38.0, 37.5, 0.5)
    assert row["run_ids"] == shown[3].run_id


def test_page_is_self_contained_and_shows_every_section(toy: Specs, shown: list[PlannedRun], results_dir: Path) -> None:
    paths = render(list(toy.values()), "small", results_dir)
    page = paths[-1].read_text()
    assert paths[-1].name == "report.html"
    assert all(path.stat().st_size > 0 for path in paths)
    for spec in toy.values():
        assert f'<section id="{spec.name}">' in page
    assert not re.findall(r'(?:src|href)="(?!data:image/png;base64,|#)', page)
    assert page.count("data:image/png;base64,") == 3, "NCE's proposal on the stand-in, curves, frequencies"
    assert page.count("<td>61.23</td>") == 2, "P@1 of full softmax in both tables"
    assert page.count('<th colspan="3">P@1 (%)</th>') == 2, "ours, published and the difference in both tables"


@pytest.mark.slow
def test_figures_are_png_and_svg_and_reproducible(toy: Specs, shown: list[PlannedRun], tmp_path: Path) -> None:
    for kind in ("distribution", "curves", "frequency"):
        first = plots.draw(toy[kind], shown, tmp_path / "a")
        second = plots.draw(toy[kind], shown, tmp_path / "b")
        assert first
        for one, other in zip(first, second, strict=True):
            assert one.read_bytes().startswith(b"\x89PNG")
            svg = one.with_suffix(".svg").read_text()
            assert "<svg" in svg
            assert svg == other.with_suffix(".svg").read_text()


def test_no_finished_run_no_figure(toy: Specs, planned: Callable[..., list[PlannedRun]], results_dir: Path) -> None:
    runs = planned(toy["curves"].grid, "small")
    assert plots.draw(toy["curves"], runs, results_dir) == []
    page = render([toy["curves"], toy["convergence"]], "small", results_dir)[-1].read_text()
    assert "Not drawn: no finished run yet." in page
    assert "No runs yet." in page


def test_different_machines_are_pointed_out(
    toy: Specs,
    planned: Callable[..., list[PlannedRun]],
    pick: Callable[..., PlannedRun],
    write_run: Callable[..., Path],
) -> None:
    runs = planned(toy["speed"].grid, "small")
    write_run(pick(runs, "full"), [0.5])
    assert not any("do not compare" in line for line in layout.how_made([record_of(runs[0])], "make"))
    write_run(pick(runs, "nce"), [0.5], cpu="Other CPU")
    made = layout.how_made([record_of(pick(runs, "full")), record_of(pick(runs, "nce"))], "make")
    assert any("do not compare" in line for line in made)


def test_several_seeds_are_printed_with_their_deviation(
    toy: Specs,
    planned: Callable[..., list[PlannedRun]],
    pick: Callable[..., PlannedRun],
    write_run: Callable[..., Path],
) -> None:
    runs = planned(toy["convergence"].grid, "medium")
    for seed, p1 in ((0, 0.60), (1, 0.62)):
        write_run(pick(runs, "full", seed), [0.5], p1=p1)
    spec = toy["convergence"]
    document = layout.document(spec, cells(spec, runs), runs, "make")
    assert "61.00 ± 1.41" in layout.to_markdown(document)
    assert r"61.00 \pm 1.41" in to_latex(document)
    assert "seeds 0, 1" in layout.to_markdown(document)


def test_thousands_of_a_deviation_have_a_comma_too(
    toy: Specs,
    planned: Callable[..., list[PlannedRun]],
    pick: Callable[..., PlannedRun],
    write_run: Callable[..., Path],
) -> None:
    runs = planned(toy["convergence"].grid, "medium")
    for seed, p1 in ((0, 30.0), (1, 50.0)):
        write_run(pick(runs, "full", seed), [0.5], p1=p1)
    document = layout.document(toy["convergence"], cells(toy["convergence"], runs), runs, "make")
    assert "4,000.00 ± 1,414.21" in layout.to_markdown(document)
    assert r"4000.00 \pm 1414.21" in to_latex(document)


def test_where_means_say_little_there_are_medians(
    toy: Specs,
    planned: Callable[..., list[PlannedRun]],
    pick: Callable[..., PlannedRun],
    write_run: Callable[..., Path],
) -> None:
    spec = toy["convergence"]
    runs = planned(spec.grid, "medium")
    for method, found in (("full", (0.40, 0.41)), ("nce", (0.02, 0.30))):
        for seed, p1 in enumerate(found):
            write_run(pick(runs, method, seed), [0.5], p1=p1)
    frame = cells(spec, runs)
    text = layout.to_markdown(layout.document(spec, frame, runs, "make"))
    assert "40.50 ± 0.71" in text
    assert "16.00 (2.00–30.00)" in text
    assert "Where the deviation is half the mean or more" in text
    row = frame.query("method == 'nce' and metric == 'P@1'").iloc[0]
    assert row[["ours", "median", "lowest", "highest"]].tolist() == pytest.approx([16, 16, 2, 30])
