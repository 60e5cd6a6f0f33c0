"""Read ``docs/claims.yaml``, the numbers of Markdown pages, and the cells of committed files that both refer to."""

import csv
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
import yaml
from command_lines import ROOT

CLAIMS = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text())
OPERATIONS = {
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "ratio": lambda a, b: a / b,
    "percent_of": lambda a, b: 100 * a / b,
    "percent_above": lambda a, b: 100 * (a / b - 1),
    "percent_below": lambda a, b: 100 * (1 - a / b),
    "lowest_of": min,
    "highest_of": max,
}
_NOT_FILTERS = {"file", "column", "in", "seeds", "times", "distinct"}
_WHOLE = r"(?<!\w-)(?<![\w@.,^])\d+(?:,\d{3})*(?![\w^]|[.,]\d)"
_NUMBER = re.compile(r"(?<!\w-)(?<![\w@.^])\d+(?:,\d{3})*(?:\.\d+)?")  # neither P@1 nor the 100 of MovieLens-100K
_LOGGED = re.compile(r"(?<![\w.^])\d*(?:,\d{3})*\.?\d+")  # the log writes .5 too
_BRACKETED = re.compile(r"\[([^\]]+)\]")
_HIDDEN = re.compile(r"!\[[^\]]*\]\([^)]*\)|`[^`]*`|\]\([^)]*\)")  # pictures, code, and where links lead
_SENTENCE = re.compile(r"\S.*?(?:[.!?:;](?=\s)|$)", flags=re.M)
_TABLE_OR_HEADING = re.compile(r"^[|#].*$", flags=re.M)
_FENCED = re.compile(r"^```.*?^```", flags=re.S | re.M)
_LOG = re.compile(r"\]\(([\w./-]*\blog(?:\.md|/[\w-]+\.md))(?:#([\w-]+))?\)")  # the page and its entry's anchor
_ENTRY = re.compile(r"^## (.+)$", flags=re.M)
_FAILED = ("Fail", "not reached")
_MADE = re.compile(r"^<!-- who is first: make .*?^<!-- who is first: end -->$", flags=re.S | re.M)


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
    """Return the Markdown tables of a page (a path below the root) that people write."""
    found, heading, open_table = [], "", False
    for line in _MADE.sub("", _FENCED.sub("", (ROOT / page).read_text())).splitlines():
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
def rows_of(path: str) -> list[dict[str, str]]:
    """Return the rows of a CSV, or the results of a bench report (JSON), each with what its size says, as text.

    What is nested has dotted names, as in ``draw_ms.median``.
    """
    if path.endswith(".json"):
        report = json.loads((ROOT / path).read_text())
        flat = [
            pd.json_normalize(size | result).to_dict("records")[0]
            for size in report["sizes"]
            for result in size.get("results", [{}])
        ]
        return [{str(key): "" if value is None else str(value) for key, value in row.items()} for row in flat]
    with (ROOT / path).open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def prose_of(page: str) -> str:
    """Return a page without blocks, tables and headings, a line for each paragraph."""
    text = _TABLE_OR_HEADING.sub("", _FENCED.sub("", (ROOT / page).read_text()))
    return "\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))


def unexplained(text: str, page: str) -> list[str]:
    """Return the numbers of a text, with the words around, that no entry for this page covers.

    Numbers within code and the targets of links are left out, and so are those of a sentence that links to the log
    and that the page or the entry of the log there has.
    """
    visible = _HIDDEN.sub(lambda found: " " * len(found[0]), text)
    covered = [*_covered(text, page), *_logged(text, visible, page)]
    return [
        f"{text[max(found.start() - 40, 0) : found.start()]}»{found[0]}«{text[found.end() : found.end() + 30]}"
        for found in _NUMBER.finditer(visible)
        if not any(start <= found.start() < end for start, end in covered)
    ]


def _covered(text: str, page: str) -> Iterator[tuple[int, int]]:
    """Yield where the numbers in brackets of sentences stand, and settings."""
    for entry in CLAIMS["sentences"]:
        if entry.get("page", page) == page:
            parts = _BRACKETED.split(entry["text"])
            pattern = "".join(f"({re.escape(part)})" if k % 2 else re.escape(part) for k, part in enumerate(parts))
            for found in re.finditer(pattern, text):
                yield from (found.span(k + 1) for k in range(len(parts) // 2))
    for setting in CLAIMS["settings"]:
        yield from (found.span() for found in setting_pattern(setting["text"]).finditer(text))


def _logged(text: str, visible: str, page: str) -> Iterator[tuple[int, int]]:
    """Yield where the numbers of sentences stand that link to the log, if what they link to has these numbers."""
    for sentence in _SENTENCE.finditer(text):
        history = " ".join(log_of(page, *link) for link in _LOG.findall(sentence[0]))
        known = {_plain(number) for number in _LOGGED.findall(history)}
        yield from (
            found.span()
            for found in _NUMBER.finditer(visible, sentence.start(), sentence.end())
            if _plain(found[0]) in known
        )


@cache
def log_of(page: str, target: str, anchor: str) -> str:
    """Return what a page's link to the log leads to: an entry, a page of entries, or, from the index, all of them."""
    path = (ROOT / page).parent / target
    text = "\n".join(each.read_text() for each in sorted(path.with_suffix("").glob("*.md"))) or path.read_text()
    entries = dict(zip(*[iter(_ENTRY.split(text)[1:])] * 2, strict=True))
    return next((entry for title, entry in entries.items() if anchor_of(title) == anchor), "") if anchor else text


def anchor_of(heading: str) -> str:
    """Return the anchor that the site and repositories give to a heading."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def _plain(number: str) -> str:
    return number.replace(",", "").lstrip("0") or "0"


def setting_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a setting's text, in which ``#`` stands for any whole number."""
    return re.compile(re.escape(text).replace(r"\#", _WHOLE))


def without_brackets(text: str) -> tuple[str, list[str]]:
    """Return the text of a sentence's entry as its page has it, and the numbers that stand in brackets."""
    return _BRACKETED.sub(r"\1", text), _BRACKETED.findall(text)


def merged(*specs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge sources, the later overriding the earlier; ``in`` overrides for the file that comes out."""
    result: dict[str, Any] = {}
    for spec in specs:
        result |= spec
    return result | result.get("in", {}).get(result.get("file"), {})


def value_of(spec: Mapping[str, Any]) -> Value:
    """Look a source up. Raises AssertionError unless exactly one row fits, or as many as ``seeds`` says."""
    for name, combine in OPERATIONS.items():
        if name in spec:
            common = {key: value for key, value in spec.items() if key not in (name, "times")}
            numbers = [value_of(merged(common, part)).number for part in spec[name]]
            return Value(combine(*numbers) * spec.get("times", 1), math.nan, "finished")
    filters = {key: str(value) for key, value in spec.items() if key not in _NOT_FILTERS}
    path, column = CLAIMS["files"][spec["file"]], spec.get("column", "ours")
    fitting = [row for row in rows_of(path) if all(row.get(key) == value for key, value in filters.items())]
    if "distinct" in spec:
        return Value(len({word for row in fitting for word in row[spec["distinct"]].split()}), math.nan, "finished")
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


def as_shown(old: str, value: Value) -> str:
    """Return the value as the old text shows its own: as many decimals, with its deviation and its unit.

    What has no number becomes its status, ``Fail``, ``inf`` or ``nan``, for the reader to mend.
    """
    if math.isnan(value.number):
        return "Fail" if agrees("Fail", value) else "nan"
    if math.isinf(value.number):
        return "inf"
    unit = next((unit for unit in (" %", "x") if old.endswith(unit)), "")
    parts = old.removesuffix(unit).split(" ± ")
    if parts[0] in ("Fail", "inf"):
        parts = ["0.0"]  # a status becomes a number
    shown = [
        f"{number:,.{len(part.partition('.')[2])}f}"
        for part, number in zip(parts, (value.number, value.deviation), strict=False)
    ]
    return " ± ".join(shown) + unit


def _rounded(number: float, like: str) -> str:
    return f"{number:.{len(like.partition('.')[2])}f}"
