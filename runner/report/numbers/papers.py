"""Read what each paper claims, conf/papers.yaml, and compute from our numbers whether it holds here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd

from runner.config import CONF
from runner.errors import ConfigError, require
from runner.options.yaml_files import read
from runner.report.numbers.learning import NEVER_LEARNT
from runner.report.numbers.records import BUSY
from runner.report.spec.yaml_files import build, items, mapping

FILE = CONF / "papers.yaml"
# The long form, the labels of methods and of data sets, and the numbers of classes by data set.
CellsOfTable = tuple[pd.DataFrame, Mapping[str, str], Mapping[str, str], Mapping[str, int]]
Holds = Literal["holds", "does not hold", "undecided", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The words for a claim's numbers in the sentence above a paper's claims.

    ``found``: what came out, with the fields ``{method}``, ``{value}``, ``{bound}`` and ``{inverse}`` (1 / value).
    ``never``: the same for a method that did not get there in training, with ``{method}``. ``promise`` follows "the
    paper's". ``methods`` are those of the claim that are the paper's own; by default all.
    """

    found: str
    never: str
    promise: str
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, words in (("found", self.found), ("never", self.never)):
            try:
                words.format(method="", value=1.0, bound=1.0, inverse=1.0)
            except (KeyError, ValueError, IndexError) as error:
                raise ConfigError(f"{key}: {error} is no field; use method, value, bound and inverse") from None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim compares a column of a table, for each method and data set, with a number or with another method.

    One of ``at_least``, ``at_most`` (numbers), ``above`` and ``below`` (methods, whose number ``times`` multiplies) is
    set. With one seed a difference smaller than ``one_seed``, a share of the bound, decides nothing. ``table`` is made
    from runs or measured by the bench; where it was not measured, the column of the same name in ``or_table`` is
    judged. ``unit`` follows the numbers, such as " %". ``headline`` makes it one of those whose numbers stand above the
    paper's claims.
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
    one_seed: float = 0.02
    or_table: str = ""
    unit: str = ""
    headline: Headline | None = None

    def __post_init__(self) -> None:
        bounds = [self.at_least is not None, self.at_most is not None, bool(self.above), bool(self.below)]
        require(sum(bounds) == 1, "claims: give one of at_least, at_most, above and below")
        require(self.times == 1.0 or bool(self.above or self.below), "claims: times goes with above or below")
        strange = set(self.headline.methods if self.headline else ()) - set(self.methods)
        require(not strange, f"headline.methods: {', '.join(sorted(strange))} is no method of the claim")

    @property
    def is_lower_bound(self) -> bool:
        return self.at_least is not None or bool(self.above)

    def too_near(self, case: "Case") -> str:
        """Return how near an undecided value is to its bound."""
        return f"within {100 * self.one_seed:g} %" if case.has_one_seed else "within the deviation"


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

    ``name``: the method's in the grid. ``has_one_seed``: deviations over seeds are not known. ``num_classes``: of the
    data set; None if it has none.
    """

    name: str
    method: str
    dataset: str
    value: float
    bound: float
    holds: Holds
    has_one_seed: bool
    num_classes: int | None = None

    @property
    def has_no_seconds(self) -> bool:
        """Whether it is undecided because others used the machine while its seconds were taken."""
        return self.holds == "undecided" and (math.isnan(self.value) or math.isnan(self.bound))

    @property
    def place(self) -> str:
        """Where it was measured: the data set, with the number of its classes."""
        return self.dataset + (f" ({self.num_classes:,} classes)" if self.num_classes is not None else "")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim with all its cases; ``sentence`` says what came out, with the numbers, and ``table`` where they stand."""

    claim: Claim
    cases: tuple[Case, ...]
    table: str

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
        """The numbers of every case that was measured, and the cases whose seconds were taken on a busy machine."""
        parts = []
        for case in self.cases:
            if case.has_no_seconds:
                parts.append(f"{case.method} on {case.dataset}: others used the machine")
            elif case.holds != "not measured":
                sign = "≥" if self.claim.is_lower_bound else "≤"
                remark = f", {self.claim.too_near(case)}" if case.holds == "undecided" else ""
                remark += ", one seed" if case.has_one_seed else ""
                found = "never" if math.isinf(case.value) else self._number(case.value)
                parts.append(
                    f"{case.method} on {case.dataset}: {found} (needed {sign} {self._number(case.bound)}{remark})"
                )
        return "; ".join(parts)

    def _number(self, value: float) -> str:
        """Return a number with four digits and its unit."""
        return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}") + self.claim.unit


def load_papers() -> tuple[Paper, ...]:
    """Read conf/papers.yaml; ConfigError names the file and key of a mistake."""
    papers = []
    for name, raw in read(FILE).items():
        where = f"conf/papers.yaml: {name}."
        values = dict(mapping(raw, f"conf/papers.yaml: {name}"))
        claims = items(values.get("claims"), f"{where}claims")
        values["claims"] = tuple(_claim(claim, f"{where}claims[{place}].") for place, claim in enumerate(claims))
        papers.append(build(Paper, {**values, "name": name}, where))
    return tuple(papers)


def _claim(raw: Mapping[str, Any], where: str) -> Claim:
    values = {**raw, "methods": tuple(raw.get("methods", ()))}
    if "headline" in raw:
        headline = mapping(raw["headline"], f"{where}headline")
        words = {**headline, "methods": tuple(headline.get("methods", ()))}
        values["headline"] = build(Headline, words, f"{where}headline.")
    return build(Claim, values, where)


def judge(
    claim: Claim,
    cells: pd.DataFrame | None,
    methods: Mapping[str, str],
    datasets: Mapping[str, str],
    classes: Mapping[str, int] = MappingProxyType({}),
    *,
    table: str = "",
) -> Verdict:
    """Return the verdict on a claim by the cells of a table, by default of its own.

    ``cells``: the table's numbers in long form, None if it is not rendered. ``methods`` and ``datasets``: printed
    names. ``classes``: the number of classes of each data set that has some. A number that was not
    reached in training (``Fail``) does not keep a lower bound; what has not been run decides nothing. A difference
    smaller than the deviations over seeds is undecided, and with one seed one smaller than the claim's ``one_seed``.
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
                        name=method,
                        method=methods[method],
                        dataset=datasets[dataset],
                        value=value,
                        bound=bound,
                        holds=holds,
                        has_one_seed=rows[method]["seeds"] == 1,
                        num_classes=classes.get(dataset),
                    )
                )
    return Verdict(claim=claim, cases=tuple(cases), table=table or claim.table)


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
        others = [mine, rows.get(claim.above or claim.below, {})]
        return value, bound, "undecided" if any(_is_busy(row) for row in others) else "not measured"
    gap = value - bound if claim.is_lower_bound else bound - value
    if math.isinf(value):
        return value, bound, "does not hold"
    if abs(gap) < max(math.hypot(spread, its_spread), claim.one_seed * abs(bound) if mine["seeds"] == 1 else 0):
        return value, bound, "undecided"
    return value, bound, "holds" if gap >= 0 else "does not hold"


def _is_busy(row: Mapping[str, Any]) -> bool:
    """Return whether the row has no seconds because others used the machine."""
    return str(row.get("status", "")).startswith(BUSY)


def _number(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return our number and its deviation over seeds; inf for what training did not reach, nan for what was not run."""
    if pd.isna(row["ours"]):
        failed = str(row["status"]).startswith(("Fail", "not reached", "diverged", NEVER_LEARNT))
        return (math.inf if failed else math.nan), 0.0
    return float(row["ours"]), 0.0 if pd.isna(row["deviation"]) else float(row["deviation"])


def verdicts(paper: Paper, tables: Mapping[str, CellsOfTable]) -> Sequence[Verdict]:
    """Return the verdict on every claim of a paper, by the cells of the tables that are rendered or measured."""
    return [_judge_by_first(claim, tables) for claim in paper.claims]


def _judge_by_first(claim: Claim, tables: Mapping[str, CellsOfTable]) -> Verdict:
    """Judge by the claim's table or, where it was not measured, by the other one if that was."""
    nothing: tuple[None, dict[str, str], dict[str, str], dict[str, int]] = (None, {}, {}, {})
    found = [judge(claim, *tables.get(name, nothing), table=name) for name in (claim.table, claim.or_table) if name]
    return next((verdict for verdict in found if verdict.holds != "not measured"), found[0])


# ---------------------------------------------------------------- in a sentence


def summary(found: Sequence[Verdict], profile: str) -> str:
    """Return what came of a paper's claims: how many hold, and the numbers of its headline; empty without claims.

    ``profile``: of the runs, for the command that measures what is missing.
    """
    if not found:
        return ""
    return " ".join([tally(found), *_headlines(found, profile)])


def tally(found: Sequence[Verdict], by: str = "on the sets trained here") -> str:
    """Count the claims by verdict, such as ``3 of 5 claims hold on the sets trained here, 1 does not.``"""
    counts = dict.fromkeys(("holds", "in some cases", "does not hold", "undecided", "not measured"), 0)
    for verdict in found:
        counts[verdict.holds if verdict.holds in counts else "in some cases"] += 1
    total = len(found)
    if counts["not measured"] == total:
        return "The one claim was not measured." if total == 1 else f"None of {total} claims was measured."
    holding = counts.pop("holds")
    parts = [f"{holding} of {total} claim{_s(total)} {_one(holding, 'holds', 'hold')} {by}"]
    words = {
        "in some cases": ("holds in some cases only", "hold in some cases only"),
        "does not hold": ("does not", "do not"),
        "undecided": ("is undecided", "are undecided"),
        "not measured": ("was not measured", "were not measured"),
    }
    parts += [f"{count} {_one(count, *words[name])}" for name, count in counts.items() if count]
    return ", ".join(parts) + "."


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _one(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural


def _headlines(found: Sequence[Verdict], profile: str) -> list[str]:
    """Return the numbers of the first headline that was measured, after a sentence for each that was not."""
    sentences: list[str] = []
    for verdict in found:
        headline = verdict.claim.headline
        if headline is None:
            continue
        own = headline.methods or verdict.claim.methods
        measured = [case for case in verdict.cases if case.holds != "not measured" and not case.has_no_seconds]
        cases = [case for case in measured if case.name in own]
        if cases:
            return [*sentences, *_at_best_and_worst(verdict.claim, headline, cases)]
        command = f"make reproduce TABLE={verdict.claim.table} PROFILE={profile}"
        sentences.append(f"Its claim “{verdict.claim.says}” was not measured: `{command}` does so.")
    return sentences


def _at_best_and_worst(claim: Claim, headline: Headline, cases: Sequence[Case]) -> list[str]:
    """Return a sentence on the case that favours the claim most and, if others ended otherwise, on the worst."""

    def favour(case: Case) -> float:
        if math.isinf(case.value):
            return -math.inf
        gap = case.value - case.bound if claim.is_lower_bound else case.bound - case.value
        return gap / abs(case.bound) if case.bound else gap

    ordered = sorted(cases, key=favour, reverse=True)
    shown = {"At best, ": ordered[0], "At worst, ": ordered[-1]}
    if ordered[0].holds == ordered[-1].holds:
        shown = {"At best, " if len(cases) > 1 else "": ordered[0]}
    return [begin + _in_words(claim, headline, case) for begin, case in shown.items()]


def _in_words(claim: Claim, headline: Headline, case: Case) -> str:
    never = math.isinf(case.value)
    inverse = math.nan if never or not case.value else 1 / case.value
    words = headline.never if never else headline.found
    said = words.format(method=case.method, value=case.value, bound=case.bound, inverse=inverse)
    holds = f"is undecided, {claim.too_near(case)}," if case.holds == "undecided" else case.holds
    one = ", one seed" if case.has_one_seed else ""
    return f"{said}; the paper's {headline.promise} {holds} on {case.place}{one}."
