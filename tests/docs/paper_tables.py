"""The tables that open the papers' pages: their rows in docs/claims.yaml, and verdicts by the report's own rules."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from claims import CLAIMS, Table, Value, agrees, as_shown, merged, rows_of, tables_of, value_of

from runner.report.numbers.papers import Claim, Verdict, judge, load_papers

HEADER = ["Claim", "Printed", "Ours", "Verdict", "Why"]
PAGES = sorted({entry["page"] for entry in CLAIMS["papers"]})
_VALUE = re.compile(r"(?<!\w-)(?<![\w@.^])(?:\d+(?:,\d{3})*(?:\.\d+)?(?: ± \d+(?:\.\d+)?)?|Fail\b)")


def entries_of(page: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a paper's page by the claim, the first cell of a row."""
    return {entry["row"]: entry for entry in CLAIMS["papers"] if entry["page"] == page}


def opening_of(page: str) -> Table:
    """Return the table that a paper's page opens with."""
    return tables_of(page)[0]


def verdict_of(entry: Mapping[str, Any]) -> str:
    """Return the verdict on a claim of conf/papers.yaml (by its words), or on one that stands in the entry.

    Without ``file`` the cases of ``compare`` are judged: sources of two numbers, the first of which is to be above.
    """
    if "compare" in entry:
        cells = pd.DataFrame([_cell(f"{place}", key, entry, source) for place, pair in enumerate(entry["compare"])
                              for key, source in zip(("first", "second"), pair, strict=True)])  # fmt: skip
        claim = Claim(says="", table="", column="", methods=("first",), above="second")
    else:
        cells, claim = _cells_of(entry["file"]), _claim_of(entry["claim"], entry["page"])
    if "datasets" in entry:
        cells = cells[cells["dataset"].isin([str(name) for name in entry["datasets"]])]
    names: dict[str, str] = {name: name for column in ("method", "dataset") for name in cells[column]}
    verdict: Verdict = judge(claim, cells, names, names)
    return verdict.holds


def _cell(dataset: str, method: str, entry: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    value = value_of(merged(entry.get("where", {}), source))
    seeds = 1 if math.isnan(value.deviation) else 3
    return {"dataset": dataset, "method": method, "metric": "", "ours": value.number, "deviation": value.deviation,
            "status": value.status, "seeds": seeds}  # fmt: skip


def _claim_of(claim: str | Mapping[str, Any], page: str) -> Claim:
    if isinstance(claim, str):
        (paper,) = (paper for paper in load_papers() if page.endswith(f"/{paper.name.replace('_', '-')}.md"))
        (found,) = (known for known in paper.claims if known.says == claim)
        return found
    return Claim(says="", table="", **{**claim, "methods": tuple(claim["methods"])})


def _cells_of(file: str) -> pd.DataFrame:
    """Return a committed table in long form; a bench's numbers of classes take the place of data sets."""
    path = CLAIMS["files"][file]
    cells = pd.DataFrame(rows_of(path))
    if path.endswith(".json") or "metric" not in cells:
        cells = cells.rename(columns={"sampler": "method", "classes": "dataset"})
        cells = cells.rename(columns=lambda name: name.removesuffix(".median"))
        cells = cells.melt(["dataset", "method"], var_name="metric", value_name="ours")
        cells = cells.assign(deviation=math.nan, status="finished", seeds=1)
    for column in ("ours", "deviation", "seeds"):
        cells[column] = pd.to_numeric(cells[column], errors="coerce")
    return cells


def renewed(cell: str, sources: Sequence[Mapping[str, Any] | None], where: Mapping[str, Any]) -> str:
    """Return the cell with each number as its source has it today; ``None`` is a number that nobody measured.

    Raises AssertionError if there are not as many numbers as sources.
    """
    found = _VALUE.findall(cell)
    assert len(found) == len(sources), f"{len(found)} numbers in '{cell}', {len(sources)} sources"
    values = iter(sources)

    def number(match: re.Match[str]) -> str:
        source = next(values)
        if source is None:
            return match[0]
        value: Value = value_of(merged(where, source))
        return match[0] if agrees(match[0], value) else as_shown(match[0], value)

    return _VALUE.sub(number, cell)


def row_today(entry: Mapping[str, Any], row: Sequence[str]) -> list[str]:
    """Return a row of an opening table as it should be by today's committed tables."""
    claim, printed, ours, _, why = row
    where = entry.get("where", {})
    return [
        claim,
        renewed(printed, entry.get("printed", ()), where),
        renewed(ours, entry.get("ours", ()), where),
        verdict_of(entry),
        why,
    ]
