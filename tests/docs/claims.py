"""Read ``docs/claims.yaml``, the tables of Markdown pages, and the CSV cells that both refer to."""

import csv
import math
import re
import statistics
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import yaml
from command_lines import ROOT

CLAIMS = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text())
OPERATIONS = {
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "percent_above": lambda a, b: 100 * (a / b - 1),
}
_NOT_FILTERS = {"file", "column", "in", "seeds", "times"}
_NUMBER = re.compile(r"(?<![\w@.])\d[\d,]*(?:\.\d+)?")
_FENCED = re.compile(r"^```.*?^```", flags=re.S | re.M)
_FAILED = ("Fail", "not reached")


class Table(NamedTuple):
    """A Markdown table: the heading that it stands under, and the cells below its header, without the rule."""

    under: str
    rows: list[list[str]]


class Value(NamedTuple):
    """A CSV cell with its neighbours: the number (nan if there is none), its deviation and the status of its run."""

    number: float
    deviation: float
    status: str


@cache
def tables_of(page: str) -> list[Table]:
    """Return the Markdown tables of a page (a path below the root)."""
    found, heading, open_table = [], "", False
    for line in _FENCED.sub("", (ROOT / page).read_text()).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            open_table = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not open_table:
            found.append(Table(heading, []))
            open_table = True
        else:
            found[-1].rows.append(cells)
    return [table._replace(rows=table.rows[1:]) for table in found]


@cache
def csv_rows(path: str) -> list[dict[str, str]]:
    with (ROOT / path).open(newline="") as file:
        return list(csv.DictReader(file))


def merged(*specs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge sources, the later overriding the earlier; ``in`` overrides for the file that comes out."""
    result: dict[str, Any] = {}
    for spec in specs:
        result |= spec
    return result | result.get("in", {}).get(result.get("file"), {})


def value_of(spec: Mapping[str, Any]) -> Value:
    """Look a source up. Raises AssertionError unless exactly one row of the CSV fits, or as many as ``seeds`` says."""
    for name, combine in OPERATIONS.items():
        if name in spec:
            common = {key: value for key, value in spec.items() if key != name}
            first, second = (value_of(merged(common, part)).number for part in spec[name])
            return Value(combine(first, second), math.nan, "finished")
    filters = {key: str(value) for key, value in spec.items() if key not in _NOT_FILTERS}
    path, column = CLAIMS["files"][spec["file"]], spec.get("column", "ours")
    fitting = [row for row in csv_rows(path) if all(row[key] == value for key, value in filters.items())]
    assert len(fitting) == spec.get("seeds", 1), f"{path}: {len(fitting)} rows fit {filters}"
    numbers = [float(row[column] or "nan") * spec.get("times", 1) for row in fitting]
    if len(numbers) > 1:
        return Value(statistics.mean(numbers), statistics.stdev(numbers), "finished")
    (row,) = fitting
    return Value(numbers[0], float(row.get("deviation") or "nan"), row.get("status", ""))


def has_number(cell: str) -> bool:
    """Tell whether a cell of a table claims something that can be compared: a number, ``inf`` or ``Fail``."""
    return cell in ("inf", "Fail") or _NUMBER.search(cell) is not None


def agrees(text: str, value: Value) -> bool:
    """Tell whether a text is the value, rounded to as many decimals as the text shows."""
    if text == "Fail":
        return value.status.startswith(_FAILED)
    if text == "inf":
        return value.number == math.inf
    shown = text.replace(" %", "").removesuffix("x").split(" ± ")
    numbers = (value.number, value.deviation)
    return all(
        _rounded(number, like=part) == part.replace(",", "") for part, number in zip(shown, numbers, strict=False)
    )


def _rounded(number: float, like: str) -> str:
    return f"{number:.{len(like.partition('.')[2])}f}"
