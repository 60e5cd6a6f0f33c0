"""Lay out the report: one page of all papers' claims, tables and figures, as HTML and as Markdown.

Both come from the same data by a template each. The HTML page needs no other file. The Markdown page is for reading in
a repository: it shows the pictures that lie beside it, or, published, those of ``results/tables``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from runner.report.numbers.papers import Paper, Verdict, summary
from runner.report.numbers.records import how_to_prepare, status_of
from runner.report.pages.benches import BenchSection
from runner.report.pages.evidence import Evidence, block
from runner.report.pages.evidence import summary as by_larger
from runner.report.pages.layout import TEMPLATES, folded, markdown_table
from runner.report.pages.opening import CAPTION, Opening
from runner.report.spec.grids import PlannedRun

TO_PUBLISH = "to-publish.md"  # the Markdown page without reports of the bench that are not committed
_COLOURS = {"holds": "holds", "does not hold": "fails"}
_TABLES = "../../tables"  # the committed tables, from the folder of a rendered page
_OTHERS = "others"  # tables that belong to no paper
_PICTURE = re.compile(r"(!?\[[^\]\n]*\])\(([\w.-]+)\)")  # a picture or a file that lies beside the page
_CLIMBS = re.compile(r"(!?\[[^\]\n]*\])\(\.\./\.\./")  # from the folder of the rendered page to that of all results


@dataclass(frozen=True, kw_only=True)
class Section:
    """A rendered table or figure, as a section in HTML and in Markdown.

    ``files``: its pictures, numbers and printed forms. ``outcomes``: the number of its rows that runs to their end
    stand behind (``runner.report.pages.publish.outcomes``).
    """

    name: str
    title: str
    paper: str
    html: Markup
    markdown: str
    files: tuple[Path, ...]
    outcomes: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the methods of one data set cost and reach, for the table that helps to choose; ``verdict``: in a line."""

    title: str
    caption: str
    frame: pd.DataFrame
    verdict: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the pages show. ``found``: verdicts by paper. ``larger``: those by committed tables of larger profiles.
    ``missing``: what could not be run, and the way to run it.
    ``took``: what the runs behind each table took (``footprint``). ``benches``: what the bench measured. ``days`` and
    ``machines``: of the runs. ``waiting``: how many tables and figures are still to come.
    """

    title: str
    profile: str = "small"
    opening: Opening | None = None
    waiting: int = 0
    sections: tuple[Section, ...] = ()
    papers: tuple[Paper, ...] = ()
    found: Mapping[str, Sequence[Verdict]]
    larger: Mapping[str, Sequence[Evidence]] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    missing: tuple[str, ...] = ()
    benches: tuple[BenchSection, ...] = ()
    took: pd.DataFrame = field(default_factory=pd.DataFrame)
    days: Sequence[str] = ()
    machines: Sequence[str] = ()

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of outcomes of runs behind each table and figure."""
        return {section.name: section.outcomes for section in self.sections}

    @property
    def all_sections(self) -> list[Section | BenchSection]:
        """What is made from runs, then what the bench measured."""
        return [*self.sections, *self.benches]


def html_page(report: Report) -> str:
    """Return one page that needs no other file."""
    return _rendered("page.html.j2", report)


def markdown_page(report: Report) -> str:
    """Return the same page as Markdown, which shows pictures that lie beside it."""
    return _rendered("page.md.j2", report)


def with_links_into(page: str, folder: str) -> str:
    """Return a Markdown page that moved two folders up, where links to files beside it lead into a folder instead."""
    return _CLIMBS.sub(r"\1(", _PICTURE.sub(lambda link: f"{link[1]}({folder}/{link[2]})", page))


def facts(report: Report) -> str:
    """Return as JSON what other programs ask of the page, which is written beside it.

    It holds the number of outcomes of runs behind each table and figure, what the runs of each took, the days on which
    they were made, and the machines.
    """
    told = {
        "outcomes": report.outcomes,
        "took": report.took.to_dict("records"),
        "days": list(report.days),
        "machines": list(report.machines),
    }
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def _rendered(template: str, report: Report) -> str:
    return TEMPLATES.get_template(template).render(
        title=report.title,
        opening=report.opening,
        caption=CAPTION,
        here=len(report.sections),
        waiting=report.waiting,
        papers=[_paper(paper, report) for paper in _with_others(report)],
        choices=report.choices,
        missing=report.missing,
        took=report.took,
        outcomes=report.outcomes,
        markdown_table=markdown_table,
        folded=folded,
    )


def _with_others(report: Report) -> list[Paper]:
    """Return the papers that have a section, and one without claims for sections that belong to none."""
    named = {section.paper for section in report.all_sections}
    shown = [paper for paper in report.papers if paper.name in named]
    if named - {paper.name for paper in report.papers}:
        shown.append(
            Paper(name=_OTHERS, short="Our own", title="Our own tables and figures", authors="", about="", claims=())
        )
    return shown


def _paper(paper: Paper, report: Report) -> dict[str, Any]:
    known = {known.name for known in report.papers}
    verdicts = report.found.get(paper.name, ())
    rows = [[v.claim.says, v.holds, v.sentence or "–", v.table] for v in verdicts]
    larger = report.larger.get(paper.name, ())
    return {
        "name": paper.name,
        "short": paper.short,
        "title": paper.title,
        "authors": paper.authors,
        "about": paper.about,
        "summary": summary(verdicts, report.profile),
        "verdicts": [_coloured(verdict, verdict.table) for verdict in verdicts],
        "larger": [_coloured(one.verdict, f"{one.verdict.table}, {one.profile}") for one in larger],
        "by_larger": by_larger(larger),
        "larger_markdown": block(paper, larger, _TABLES),
        "claims": pd.DataFrame(rows, columns=["Claim", "Here", "Numbers", "Table"]),
        "sections": [
            _folded_behind(section, verdicts)
            for section in report.all_sections
            if section.paper == paper.name or (paper.name == _OTHERS and section.paper not in known)
        ],
    }


def _coloured(verdict: Verdict, table: str) -> dict[str, Any]:
    return {"verdict": verdict, "colour": _COLOURS.get(verdict.holds, "open"), "table": table}


def _folded_behind(section: Section | BenchSection, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return a section with the line that it is folded behind; the bench's are folded behind their titles already."""
    if isinstance(section, BenchSection):
        return {"html": section.html, "markdown": section.markdown, "verdict": ""}
    heading, _, body = section.markdown.partition("\n\n")
    verdict = _verdict_on(section, verdicts)
    return {
        "title": section.title,
        "html": section.html,
        "markdown": f"{heading}\n\n{folded(verdict, body)}",
        "verdict": verdict,
    }


def _verdict_on(section: Section, verdicts: Iterable[Verdict]) -> str:
    """Say in a line what a table decides of its paper's claims, or else whether it shows anything."""
    told = Counter(verdict.holds for verdict in verdicts if verdict.table == section.name)
    if told:
        return "; ".join(f"{count} claim{'s' * (count > 1)}: {holds}" for holds, count in told.items())
    return "decides no claim" if section.outcomes else "no finished run yet"


def missing_lines(runs: Iterable[PlannedRun], labels: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why runs could not be made here, with the command that helps."""
    reasons: dict[str, set[str]] = {}
    for run in runs:
        status = status_of(run)
        if status.startswith("skipped"):
            command = how_to_prepare(run)
            reason = f"data are not prepared; `{command}` does so" if command else status.removeprefix("skipped: ")
            reasons.setdefault(reason, set()).add(labels.get(run.dataset, run.dataset))
    return [f"{'; '.join(sorted(names))}: {reason}" for reason, names in reasons.items()]  # labels contain commas
