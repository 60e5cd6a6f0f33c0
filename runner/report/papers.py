"""This module reads what each paper claims, conf/papers.yaml, and computes from our numbers whether it holds here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from runner.config import CONF
from runner.errors import require
from runner.report.yaml_files import build, items, mapping, read

FILE = CONF / "papers.yaml"
CellsOfTable = tuple[pd.DataFrame, Mapping[str, str], Mapping[str, str]]  # long form, methods' and data sets' labels
Holds = Literal["holds", "does not hold", "undecided", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim compares a column of a table, for each method and data set, with a number or with another method.

    One of ``at_least``, ``at_most`` (numbers), ``above`` and ``below`` (methods, whose number ``times`` multiplies) is
    set.
    """

    says: str
    table: str
    column: str
    methods: tuple[str, ...]
    at_least: float | None = None
    at_most: float | None = None
    above: str = ""
    below: str = ""
    times: float = 1.0

    def __post_init__(self) -> None:
        bounds = [self.at_least is not None, self.at_most is not None, bool(self.above), bool(self.below)]
        require(sum(bounds) == 1, "claims: give one of at_least, at_most, above and below")
        require(self.times == 1.0 or bool(self.above or self.below), "claims: times goes with above or below")

    @property
    def is_lower_bound(self) -> bool:
        return self.at_least is not None or bool(self.above)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: its name in grids, what people call it, what it is about, and what it claims."""

    name: str
    short: str
    title: str
    authors: str
    about: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A claim on one method and data set. ``value`` and ``bound`` are nan where nothing was measured.

    ``has_one_seed``: there are no deviations over seeds that could make a small difference undecided.
    """

    method: str
    dataset: str
    value: float
    bound: float
    holds: Holds
    has_one_seed: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim with all its cases; ``sentence`` says what came out, with the numbers."""

    claim: Claim
    cases: tuple[Case, ...]

    @property
    def holds(self) -> str:
        """``holds``, ``does not hold``, ``holds in 2 of 3 cases``, ``undecided`` or ``not measured``."""
        measured = [case for case in self.cases if case.holds != "not measured"]
        if not measured:
            return "not measured"
        positive = sum(case.holds == "holds" for case in measured)
        if positive == len(measured):
            return "holds"
        if all(case.holds == "does not hold" for case in measured):
            return "does not hold"
        if positive == 0:
            return "undecided"
        return f"holds in {positive} of {len(measured)} cases"

    @property
    def sentence(self) -> str:
        """The numbers of every case that was measured."""
        parts = []
        for case in self.cases:
            if case.holds != "not measured":
                sign = "≥" if self.claim.is_lower_bound else "≤"
                remark = ", within the deviation over seeds" if case.holds == "undecided" else ""
                remark += ", one seed" if case.has_one_seed else ""
                found = "never" if math.isinf(case.value) else f"{case.value:.4g}"
                parts.append(f"{case.method} on {case.dataset}: {found} (needed {sign} {case.bound:.4g}{remark})")
        return "; ".join(parts)


def load_papers() -> tuple[Paper, ...]:
    """Read conf/papers.yaml; ConfigError names the file and key of a mistake."""
    papers = []
    for name, raw in read(FILE).items():
        where = f"conf/papers.yaml: {name}."
        values = dict(mapping(raw, f"conf/papers.yaml: {name}"))
        claims = items(values.get("claims"), f"{where}claims")
        values["claims"] = tuple(
            build(Claim, {**claim, "methods": tuple(claim.get("methods", ()))}, f"{where}claims[{place}].")
            for place, claim in enumerate(claims)
        )
        papers.append(build(Paper, {**values, "name": name}, where))
    return tuple(papers)


def judge(claim: Claim, cells: pd.DataFrame | None, methods: Mapping[str, str], datasets: Mapping[str, str]) -> Verdict:
    """Return the verdict on a claim.

    ``cells``: the table's numbers in long form (``runner.report.cells``), None if it is not rendered. ``methods`` and
    ``datasets``: printed names. A number that was not reached in training (``Fail``) does not keep a lower bound; what
    has not been run decides nothing. A difference smaller than the deviations over seeds is undecided.
    """
    cases = []
    for dataset in [] if cells is None else cells["dataset"].unique():
        part = cells[(cells["dataset"] == dataset) & (cells["metric"] == claim.column)] if cells is not None else None
        assert part is not None
        rows = {str(row["method"]): row for row in part.to_dict("records")}
        for method in claim.methods:
            if method in rows:
                value, bound, holds = _compare(claim, rows[method], rows)
                cases.append(
                    Case(
                        method=methods[method],
                        dataset=datasets[dataset],
                        value=value,
                        bound=bound,
                        holds=holds,
                        has_one_seed=rows[method]["seeds"] == 1,
                    )
                )
    return Verdict(claim=claim, cases=tuple(cases))


def _compare(
    claim: Claim, mine: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]
) -> tuple[float, float, Holds]:
    value, spread = _number(mine)
    bound, its_spread = claim.at_least if claim.at_least is not None else claim.at_most, 0.0
    if bound is None:
        other = rows.get(claim.above or claim.below)
        bound, its_spread = (math.nan, 0.0) if other is None else _number(other)
        bound, its_spread = claim.times * bound, claim.times * its_spread
    if math.isinf(bound) and claim.is_lower_bound:
        bound = math.nan  # a method that failed is nothing to be above of
    if math.isnan(value) or math.isnan(bound):
        return value, bound, "not measured"
    gap = value - bound if claim.is_lower_bound else bound - value
    if math.isinf(value):
        return value, bound, "does not hold"
    if abs(gap) < math.hypot(spread, its_spread):
        return value, bound, "undecided"
    return value, bound, "holds" if gap >= 0 else "does not hold"


def _number(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return our number and its deviation over seeds; inf for what training did not reach, nan for what was not run."""
    if pd.isna(row["ours"]):
        failed = str(row["status"]).startswith(("Fail", "not reached", "diverged"))
        return (math.inf if failed else math.nan), 0.0
    return float(row["ours"]), 0.0 if pd.isna(row["deviation"]) else float(row["deviation"])


def verdicts(paper: Paper, tables: Mapping[str, CellsOfTable]) -> Sequence[Verdict]:
    """Return the verdict on every claim of a paper, by the cells of the tables that are rendered."""
    nothing: tuple[None, dict[str, str], dict[str, str]] = (None, {}, {})
    return [judge(claim, *tables.get(claim.table, nothing)) for claim in paper.claims]
