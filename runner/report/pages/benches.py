"""Show on the page of all papers the tables that the bench measures (``conf/table/bench``)."""

import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from runner.errors import DataError
from runner.methods.catalogue import known_methods
from runner.report.numbers.papers import CellsOfTable
from runner.report.numbers.records import BUSY, BUSY_SHARE
from runner.report.pages.bench_tables import document
from runner.report.pages.layout import folded, html, markdown_body
from runner.report.spec.tables import BenchSpec


@dataclass(frozen=True, kw_only=True)
class BenchSection:
    """A bench report as a folded section of the page, in HTML and in Markdown."""

    name: str
    paper: str
    html: Markup
    markdown: str


def bench_sections(
    specs: Sequence[BenchSpec], results_dir: Path, folder: Path, *, small: bool = False
) -> tuple[BenchSection, ...]:
    """Return the reports that are there; ``folder`` is that of the Markdown page, which shows their pictures.

    With ``small``, a report at laptop size stands in the place of that of full size if it was measured. A damaged
    report is left out, as a page must not fail for it; ``not_measured`` names it.
    """
    found = []
    for spec in specs:
        with suppress(DataError):
            if _shown(spec, results_dir, small).is_file():
                found.append(_section(spec, results_dir, folder, small))
    return tuple(found)


def _shown(spec: BenchSpec, results_dir: Path, small: bool) -> Path:
    return spec.small_report(results_dir) if small and spec.is_measured(results_dir) else spec.report(results_dir)


def not_measured(specs: Sequence[BenchSpec], results_dir: Path, *, small: bool = False) -> list[str]:
    """Return a line for each table that the bench has not measured, or whose report is damaged, with the command.

    ``small``: as in ``bench_sections``.
    """
    lines = []
    for spec in specs:
        if not _shown(spec, results_dir, small).is_file():
            lines.append(f"{spec.title}: not measured; `{_command(spec)}` does so")
            continue
        try:
            _section(spec, results_dir, results_dir, small)
        except DataError as error:
            lines.append(f"{spec.title}: {error}")
    return lines


def bench_numbers(specs: Sequence[BenchSpec], results_dir: Path, *, small: bool = False) -> dict[str, CellsOfTable]:
    """Return by table, as cells, what the bench measured of each method and number of classes.

    The deviation of a number is half the distance from the lowest repetition to the highest. ``small``: as in
    ``bench_sections``. What was measured while others used the machine has a status instead of numbers. Left out are
    reports that are missing or damaged, and those that have no classes.
    """
    found: dict[str, CellsOfTable] = {}
    for spec in specs:
        try:
            told = json.loads(_shown(spec, results_dir, small).read_text(encoding="utf-8"))
            rows = [row for size in told["sizes"] for row in _rows(size, told["provenance"]["cores"])]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if not rows:
            continue
        cells = pd.DataFrame(rows)
        methods = {name: _label(name) for name in cells["method"].unique()}
        found[spec.name] = (cells, methods, {name: f"{name} classes" for name in cells["dataset"].unique()}, {})
    return found


def _rows(size: Mapping[str, Any], cores: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each number that was measured of each method at one number of classes."""
    is_busy = (size.get("cores_busy_with_others") or 0) > BUSY_SHARE * cores
    for result in size["results"]:
        for metric, value in result.items():
            spread = math.nan
            if isinstance(value, dict) and {"median", "lowest", "highest"} <= {*value}:
                spread = (value["highest"] - value["lowest"]) / 2
                value = value["median"]
            if isinstance(value, int | float):
                yield {
                    "dataset": f"{size['classes']:,}", "method": result["method"], "metric": metric,
                    "ours": math.nan if is_busy else value, "deviation": spread,
                    "status": BUSY if is_busy else result["status"], "seeds": math.nan,
                }  # fmt: skip


def _label(name: str) -> str:
    """Return the catalogue's label of a method, such as "RF-softmax (D=50)" of ``rff_D50``, or else its name."""
    known = known_methods()
    base, _, count = name.rpartition("_D")
    if base in known and count.isdecimal():
        return f"{known[base].label} (D={count})"
    return known[name].label if name in known else name


def _command(spec: BenchSpec) -> str:
    return f"make reproduce TABLE={spec.name}"


def _section(spec: BenchSpec, results_dir: Path, folder: Path, small: bool) -> BenchSection:
    report = _shown(spec, results_dir, small)
    made = f"`{_command(spec)}` measures it on this machine."
    if report == spec.small_report(results_dir):
        asked = shlex.join(spec.small_command(results_dir)[1:-2])  # without the place of the report
        made = f"At laptop size: `{asked}`; `{_command(spec)}` measures it at full size."
    try:
        told = json.loads(report.read_text(encoding="utf-8"))
        doc = document(told)
        doc = replace(doc, name=spec.name, title=spec.title, made=(f"{_made(told['provenance'])} {made}", *doc.made))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise DataError(f"{report}: is no report of the bench; `{_command(spec)}` writes it again") from None
    picture = report.with_suffix(".png")
    pictures = [picture] if picture.is_file() else []
    markdown = markdown_body(doc, "###")
    if pictures:
        place = Path(os.path.relpath(picture, folder)).as_posix()
        markdown.insert(1, f"![{spec.title}]({place})")
    return BenchSection(
        name=spec.name,
        paper=spec.paper,
        html=html("bench", doc=doc, pictures=pictures),
        markdown=folded(spec.title, "\n\n".join(markdown)),
    )


def _made(origin: Mapping[str, Any]) -> str:
    """Return a sentence with the machine, the commit and the day."""
    commit = str(origin["commit"] or "unknown")[:10] + (" + changes" if origin["patch"] else "")
    where = f"{origin['cpu']}, {origin['threads']} of {origin['cores']} cores"
    return f"Measured on {str(origin['started'])[:10]} on {where}; commit {commit}."
