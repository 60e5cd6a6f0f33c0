"""This module lays out the report: one page of all papers' claims, tables and figures, and a summary in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from runner.report.grids import PlannedRun
from runner.report.layout import html_table, html_text, markdown_table
from runner.report.papers import Paper, Verdict
from runner.report.records import how_to_prepare, status_of

_COLOURS = {"holds": "holds", "does not hold": "fails"}
_OTHERS = "others"  # tables that belong to no paper


@dataclass(frozen=True, kw_only=True)
class Section:
    """A rendered table or figure. ``files``: its pictures and its Markdown, if it has one."""

    name: str
    title: str
    paper: str
    html: str
    notes: tuple[str, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the methods of one data set cost and reach, for the table that helps to choose."""

    title: str
    caption: str
    frame: pd.DataFrame


def html_page(
    title: str,
    sections: Sequence[Section],
    papers: Sequence[Paper],
    found: Mapping[str, Sequence[Verdict]],
    choices: Sequence[Choice],
    missing: Sequence[str],
) -> str:
    """Return one self-contained page. ``found``: verdicts by paper. ``missing``: what could not be run, and the way."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        papers=[_paper(paper, sections, found) for paper in _with_others(papers, sections)],
        choices=[
            {"title": choice.title, "caption": choice.caption, "table": Markup(html_table(choice.frame))}
            for choice in choices
        ],
        missing=[Markup(html_text(line)) for line in missing],
    )


def _with_others(papers: Sequence[Paper], sections: Sequence[Section]) -> list[Paper]:
    """Return the papers that have a section, and one without claims for sections that belong to none."""
    named = {section.paper for section in sections}
    shown = [paper for paper in papers if paper.name in named]
    if named - {paper.name for paper in papers}:
        shown.append(
            Paper(name=_OTHERS, short="Our own", title="Our own tables and figures", authors="", about="", claims=())
        )
    return shown


def _sections_of(paper: Paper, sections: Sequence[Section], papers: Iterable[str]) -> list[Section]:
    known = set(papers)
    return [
        section
        for section in sections
        if section.paper == paper.name or (paper.name == _OTHERS and section.paper not in known)
    ]


def _paper(paper: Paper, sections: Sequence[Section], found: Mapping[str, Sequence[Verdict]]) -> dict[str, Any]:
    return {
        "name": paper.name,
        "short": paper.short,
        "title": paper.title,
        "authors": paper.authors,
        "about": paper.about,
        "verdicts": [
            {
                "says": verdict.claim.says,
                "holds": verdict.holds,
                "colour": _COLOURS.get(verdict.holds, "open"),
                "sentence": verdict.sentence,
                "table": verdict.claim.table,
            }
            for verdict in found.get(paper.name, ())
        ],
        "sections": [Markup(section.html) for section in _sections_of(paper, sections, found)],
    }


def summary(
    title: str,
    sections: Sequence[Section],
    papers: Sequence[Paper],
    found: Mapping[str, Sequence[Verdict]],
    choices: Sequence[Choice],
    missing: Sequence[str],
) -> str:
    """Return the same as Markdown, with tables linked and figures shown beside their notes."""
    parts = [f"# {title}"]
    if choices:
        parts.append("## Which sampler should I use?")
        for choice in choices:
            parts += [
                f"### {choice.title}",
                *([choice.caption] if choice.caption else []),
                markdown_table(choice.frame),
            ]
    for paper in _with_others(papers, sections):
        parts += [f"## {paper.title}", *([f"{paper.authors}. {paper.about}"] if paper.about else [])]
        if judged := found.get(paper.name, ()):
            rows = [[v.claim.says, v.holds, v.sentence or "–", v.claim.table] for v in judged]
            parts.append(markdown_table(pd.DataFrame(rows, columns=["Claim", "Here", "Numbers", "Table"])))
        for section in _sections_of(paper, sections, found):
            tables = [path for path in section.files if path.suffix == ".md"]
            pictures = [path for path in section.files if path.suffix == ".png"]
            title = f"[{section.title}]({tables[0].name})" if tables else section.title
            parts.append(f"### {title}")
            parts += [f"![{section.title}]({path.name})" for path in pictures]
            if pictures and section.notes:
                parts.append("\n".join(f"- {note}" for note in section.notes))
    if missing:
        parts += ["## What could not be run here", "\n".join(f"- {line}" for line in missing)]
    return "\n\n".join(parts) + "\n"


def missing_lines(runs: Iterable[PlannedRun], labels: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why runs could not be made here, with the command that helps."""
    reasons: dict[str, set[str]] = {}
    for run in runs:
        status = status_of(run)
        if status.startswith("skipped"):
            command = how_to_prepare(run)
            reason = f"data are not prepared; `{command}` does so" if command else status.removeprefix("skipped: ")
            reasons.setdefault(reason, set()).add(labels.get(run.dataset, run.dataset))
    return [f"{', '.join(sorted(names))}: {reason}" for reason, names in reasons.items()]
