"""Judge the papers' claims by the committed tables of larger profiles, which have more seeds and more data sets.

A page's own verdicts are of the runs that it shows. What these leave undecided, larger tables may decide: a block with
their verdicts follows. It stands between two comments, so that ``make generated`` and ``make publish`` can renew it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from runner.report.numbers.papers import CellsOfTable, Paper, Verdict, load_papers, tally, verdicts
from runner.report.pages.layout import markdown_table
from runner.report.spec.grids import PROFILES
from runner.report.spec.tables import load_table, table_names

END = "<!-- claims by larger tables: end -->"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A verdict by the committed table of a larger profile."""

    verdict: Verdict
    profile: str


def evidence(profile: str, folder: Path) -> dict[str, Sequence[Evidence]]:
    """Return by paper the verdicts of the largest profile above ``profile`` whose committed table measured a claim.

    ``folder``: the committed tables, with a folder for each profile.
    """
    larger = PROFILES[PROFILES.index(profile) + 1 :][::-1]
    tables = {name: _committed_tables(folder / name) for name in larger}
    found: dict[str, Sequence[Evidence]] = {}
    for paper in load_papers():
        by_profile = {name: verdicts(paper, tables[name]) for name in larger}
        judged = (_largest(place, by_profile) for place in range(len(paper.claims)))
        found[paper.name] = [one for one in judged if one is not None]
    return found


def _largest(place: int, by_profile: Mapping[str, Sequence[Verdict]]) -> Evidence | None:
    measured = ((name, found[place]) for name, found in by_profile.items() if found[place].holds != "not measured")
    return next((Evidence(verdict=verdict, profile=name) for name, verdict in measured), None)


def _committed_tables(folder: Path) -> dict[str, CellsOfTable]:
    """Return the committed cells of each table of numbers in the folder, with the labels of methods and data sets."""
    found: dict[str, CellsOfTable] = {}
    for name in table_names():
        path = folder / f"{name}.csv"
        if path.is_file() and {"metric", "ours"} <= {*pd.read_csv(path, nrows=0).columns}:
            grid = load_table(name).grid
            methods = {method.name: method.label for method in grid.methods}
            datasets = {dataset.name: dataset.label for dataset in grid.datasets}
            found[name] = (pd.read_csv(path, dtype={"status": str}), methods, datasets, {})
    return found


def summary(found: Sequence[Evidence]) -> str:
    """Return in a sentence how many claims the larger tables found to hold; empty if they judge none."""
    return tally([one.verdict for one in found], "by the largest committed tables") if found else ""


def block(paper: Paper, found: Sequence[Evidence], tables: str) -> str:
    """Return the verdicts as Markdown between the comments. ``tables``: the page's path to the committed tables."""
    begin = _begin(paper)
    if not found:
        return f"{begin}\n{END}"
    rows = [[one.verdict.claim.says, one.verdict.holds, one.verdict.sentence, _link(one, tables)] for one in found]
    frame = pd.DataFrame(rows, columns=["Claim", "By more runs", "Numbers", "Table"])
    return f"{begin}\n\n**{summary(found)}**\n\n{markdown_table(frame)}\n\n{END}"


def with_evidence(page: str, folder: Path, profile: str = PROFILES[0]) -> str:
    """Return a committed page with its blocks renewed by the tables in the folder beside it."""
    found = evidence(profile, folder)
    for paper in load_papers():
        before, begin, rest = page.partition(_begin(paper))
        _, end, after = rest.partition(END)
        if begin and end:
            page = before + block(paper, found[paper.name], folder.name) + after
    return page


def _begin(paper: Paper) -> str:
    return f"<!-- claims of {paper.name} by larger tables: make generated writes them from results/tables -->"


def _link(one: Evidence, tables: str) -> str:
    table = one.verdict.table
    return f"[{table}, {one.profile}]({tables}/{one.profile}/{table}.md)"
