"""This module shows on the page of all papers the tables that the bench measures (``conf/table/bench``)."""

import itertools
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from runner.errors import DataError
from runner.report.layout import folded, html_table, html_text, picture_html
from runner.report.tables import BenchSpec

_HEADING = re.compile(r"^#+ +")


@dataclass(frozen=True, kw_only=True)
class BenchSection:
    """A bench report as a folded section of the page, in HTML and in Markdown."""

    name: str
    paper: str
    html: str
    markdown: str


def bench_sections(
    specs: Sequence[BenchSpec], results_dir: Path, folder: Path, *, small: bool = False
) -> tuple[BenchSection, ...]:
    """Return the reports that are there; ``folder`` is that of the Markdown page, which shows their pictures.

    With ``small``, a report at laptop size stands in the place of that of full size if ``is_measured``. A report that
    is damaged is left out, as a page must not fail for it; ``not_measured`` names it.
    """
    found = []
    for spec in specs:
        with suppress(DataError):
            if _shown(spec, results_dir, small).is_file():
                found.append(_section(spec, results_dir, folder, small))
    return tuple(found)


def is_measured(spec: BenchSpec, results_dir: Path) -> bool:
    """Tell whether the report at laptop size was measured to its end, with the arguments that are now asked for."""
    report = spec.small_report(results_dir)
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
        asked = found["provenance"]["command"] == " ".join(spec.small_command(results_dir)[1:])
        return bool(asked) and "seconds" in found and report.with_suffix(".md").is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _shown(spec: BenchSpec, results_dir: Path, small: bool) -> Path:
    return spec.small_report(results_dir) if small and is_measured(spec, results_dir) else spec.report(results_dir)


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


def _command(spec: BenchSpec) -> str:
    return f"make reproduce TABLE={spec.name}"


def _section(spec: BenchSpec, results_dir: Path, folder: Path, small: bool) -> BenchSection:
    report = _shown(spec, results_dir, small)
    made = f"{_made(spec, report)} `{_command(spec)}` measures it on this machine."
    if report == spec.small_report(results_dir):
        asked = " ".join(spec.small_command(results_dir)[1:-2])  # without the place of the report
        made = f"{_made(spec, report)} At laptop size: `{asked}`; `{_command(spec)}` measures it at full size."
    try:
        text = report.with_suffix(".md").read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{report.with_suffix('.md')}: {error.strerror}; `{_command(spec)}` writes it again") from None
    _, _, text = text.strip().partition("\n")  # the title stands in the summary
    picture = report.with_suffix(".png")
    html = [f'<p class="made">{html_text(made)}</p>', _as_html(text)]
    markdown = [made, re.sub(r"^#+ ", "#### ", text.strip(), flags=re.MULTILINE)]
    if picture.is_file():
        html.insert(1, picture_html(picture, spec.title))
        place = Path(os.path.relpath(picture, folder)).as_posix()
        markdown.insert(1, f"![{spec.title}]({place})")
    summary = html_text(spec.title)
    inside = f"<details><summary>{summary}</summary>" + "\n".join(html) + "</details>"
    return BenchSection(
        name=spec.name,
        paper=spec.paper,
        html=f'<section id="{spec.name}">{inside}</section>',
        markdown=folded(summary, "\n\n".join(markdown)),
    )


def _made(spec: BenchSpec, report: Path) -> str:
    """Return a sentence with the machine, the commit and the day."""
    try:
        origin = json.loads(report.read_text(encoding="utf-8"))["provenance"]
        commit = str(origin["commit"] or "unknown")[:10] + (" + changes" if origin["patch"] else "")
        where = f"{origin['cpu']}, {origin['threads']} of {origin['cores']} cores"
        day = str(origin["started"])[:10]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{report}: is no report of the bench; `{_command(spec)}` writes it again") from None
    return f"Measured on {day} on {where}; commit {commit}."


# ---------------------------------------------------------------- HTML of the bench's Markdown


def _as_html(markdown: str) -> str:
    """Turn what the bench writes into HTML: headings, paragraphs, lists and pipe tables."""
    parts = []
    for kind, group in itertools.groupby(markdown.splitlines(), _kind):
        lines = [line for line in group if line]
        if kind == "table":
            parts.append(html_table(_table(lines)))
        elif kind == "list":
            parts.append("<ul>" + "".join(f"<li>{html_text(line[2:])}</li>" for line in lines) + "</ul>")
        elif kind == "heading":
            parts += [f"<h4>{html_text(_HEADING.sub('', line))}</h4>" for line in lines]
        else:
            parts += [f"<p>{html_text(line)}</p>" for line in lines]
    return "\n".join(parts)


def _kind(line: str) -> str:
    return {"|": "table", "-": "list", "#": "heading"}.get(line[:1], "text")


def _table(lines: Sequence[str]) -> pd.DataFrame:
    head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return pd.DataFrame(rows, columns=head)
