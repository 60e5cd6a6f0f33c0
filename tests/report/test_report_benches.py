"""What the bench has measured stands on the page, in its paper's part; what it has not is listed with the command."""

import json
import re
from pathlib import Path

import pytest

from runner.report.numbers.papers import Claim, Paper, judge, load_papers, verdicts
from runner.report.pages.benches import bench_numbers, bench_sections, not_measured
from runner.report.pages.page import Report, html_page, markdown_page, with_links_into
from runner.report.spec.tables import BenchSpec, bench_names, load_bench

TIMES = BenchSpec(name="times", title="Times & draws", kind="kernels", seconds=9, paper="midx")
MADE = {
    "commit": "0123456789abcdef", "patch": None, "started": "2026-01-02T03:04:05+0000", "cpu": "Toy CPU", "threads": 2,
    "cores": 4, "versions": {"torch": "2.0"},
}  # fmt: skip
REPORT = {
    "name": "times", "kind": "sampling", "overrides": [], "draws": 7, "notes": ["A `note`."], "classes": [10],
    "provenance": MADE, "sizes": [{"classes": 10, "results": [{"method": "full", "status": "skipped: <2> GB"}]}],
}  # fmt: skip


@pytest.fixture
def measured(results_dir: Path) -> Path:
    """Write a report with a picture; return the folder of the rendered page."""
    report = TIMES.report(results_dir)
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps(REPORT))
    report.with_suffix(".png").write_bytes(b"picture")
    folder = results_dir / "out" / "small"
    folder.mkdir(parents=True)
    return folder


def page_of(results_dir: Path, folder: Path) -> Report:
    return Report(title="T", found={}, papers=load_papers(), benches=bench_sections([TIMES], results_dir, folder))


def test_a_report_stands_folded_in_its_paper_s_part(measured: Path, results_dir: Path) -> None:
    report = page_of(results_dir, measured)
    text, html = markdown_page(report), html_page(report)
    assert "## Adaptive Sampled Softmax" in text
    assert "<details><summary>Times &amp; draws</summary>" in text
    told = "Measured on 2026-01-02 on Toy CPU, 2 of 4 cores; commit 0123456789."
    assert f"{told} `make reproduce TABLE=times` measures it on this machine.  \nToy CPU, 2 threads; draws 7; " in text
    assert "# Bench: times" not in text
    assert "\n#### 10 classes\n" in text, "a heading of the report is none of the page"
    assert "| full    |  skipped: <2> GB |" in text
    assert told in html
    assert "<td>skipped: &lt;2&gt; GB</td>" in html
    assert "<li>A <code>note</code>.</li>" in html
    assert "data:image/png;base64," in html
    assert not re.findall(r'(?:src|href)="(?!data:image/png;base64,|#)', html), "it needs no other file"


def test_its_picture_is_found_from_the_rendered_and_from_the_committed_page(measured: Path, results_dir: Path) -> None:
    text = markdown_page(page_of(results_dir, measured))
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert (measured / picture).is_file()
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", with_links_into(text, "tables/small"))
    assert (results_dir / picture).is_file()


def test_what_was_not_measured_is_listed_with_its_command(results_dir: Path) -> None:
    assert bench_sections([TIMES], results_dir, results_dir) == ()
    assert not_measured([TIMES], results_dir) == ["Times & draws: not measured; `make reproduce TABLE=times` does so"]


def test_nothing_is_missing_once_it_is_measured(measured: Path, results_dir: Path) -> None:
    assert not_measured([TIMES], results_dir) == []


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"provenance": {"cpu": "x"}}', json.dumps({**REPORT, "kind": 0})])
def test_a_damaged_report_is_named(damaged: str, measured: Path, results_dir: Path) -> None:
    TIMES.report(results_dir).write_text(damaged)
    assert bench_sections([TIMES], results_dir, measured) == (), "the page does not fail for it"
    (line,) = not_measured([TIMES], results_dir)
    assert line.startswith("Times & draws: ")
    assert "times.json: is no report of the bench; `make reproduce TABLE=times` writes it again" in line


def test_claims_are_judged_by_what_was_measured(measured: Path, results_dir: Path) -> None:
    without = [{"images": 10, "results": [{"method": "x"}]}]
    TIMES.report(results_dir).write_text(json.dumps({**REPORT, "sizes": without}))
    assert bench_numbers([TIMES], results_dir) == {}, "a report without classes has no numbers to judge by"
    spread = {"median": 2.0, "lowest": 1.0, "highest": 4.0}
    results = [
        {"method": "full", "status": "measured", "draw_ms": spread, "published_speedup": None},
        {"method": "rff_D50", "status": "measured", "draw_ms": {**spread, "median": 5.0}, "times_full": 0.5},
    ]
    TIMES.report(results_dir).write_text(
        json.dumps({"provenance": MADE, "sizes": [{"classes": 10000, "results": results}]})
    )
    found = bench_numbers([TIMES], results_dir)

    def verdict(**bound: object) -> str:
        claim = Claim(says="", table="times", methods=("rff_D50",), **bound)
        (only,) = verdicts(Paper(name="p", short="", title="", authors="", about="", claims=(claim,)), found)
        return f"{only.holds}: {only.sentence}"

    shown = "RF-softmax (D=50) on 10,000 classes"
    assert verdict(column="times_full", at_least=1.0) == f"does not hold: {shown}: 0.5 (needed ≥ 1)"
    assert verdict(column="draw_ms", below="full", unit=" ms") == f"does not hold: {shown}: 5 ms (needed ≤ 2 ms)"
    told = verdict(column="draw_ms", below="full", times=2.0)
    assert told == f"undecided: {shown}: 5 (needed ≤ 4, within the deviation)"
    for damaged in ({"sizes": [3]}, {"sizes": [{"results": results}]}, {"provenance": {}}, {"sizes": None}):
        TIMES.report(results_dir).write_text(
            json.dumps({"provenance": MADE, "sizes": [{"classes": 10000, "results": results}], **damaged})
        )
        assert bench_numbers([TIMES], results_dir) == {}, damaged
    TIMES.report(results_dir).unlink()
    assert bench_numbers([TIMES], results_dir) == {}


def test_every_measured_table_belongs_to_a_paper() -> None:
    papers = {paper.name for paper in load_papers()}
    assert {load_bench(name).paper for name in bench_names()} <= papers


@pytest.mark.parametrize(("cores_busy", "verdict"), [(0.1, "holds"), (0.3, "undecided"), (None, "holds")])
def test_what_was_timed_on_a_busy_machine_decides_nothing(
    cores_busy: float | None, verdict: str, tmp_path: Path
) -> None:
    """A tenth of two cores is 0.2. Reports without times do not count what others took."""
    result = {"method": "rff_D50", "loss_ms": {"median": 2.0, "lowest": 1.9, "highest": 2.1}, "status": "finished"}
    other = {**result, "method": "exact", "loss_ms": {"median": 3.0, "lowest": 2.9, "highest": 3.1}}
    size = {"classes": 1000, "cores_busy_with_others": cores_busy, "results": [result, other]}
    spec = load_bench("rf_softmax_table2")
    report = spec.report(tmp_path)
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps({"sizes": [size], "provenance": {"cores": 2}}))
    claim = Claim(says="It is faster", table=spec.name, column="loss_ms", methods=("rff_D50",), below="exact")
    assert judge(claim, *bench_numbers([spec], tmp_path)[spec.name]).holds == verdict
