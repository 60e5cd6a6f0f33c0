"""Lay long-form cells out as printed tables: Markdown and HTML of the same blocks."""

import base64
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from runner.report.numbers.cells import NOT_TRIED, runs_table
from runner.report.numbers.columns import Column, Panel, panels_of
from runner.report.numbers.records import FINISHED, NOT_RUN, RunRecord, how_to_prepare, record_of
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec

_REMARKED = "†"
_CHANGED = "‡"
_NOTHING = "–"
_SKIPPED = "skipped: "


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block is one printed table. ``frame`` holds text only. Without a title, it belongs to the block before."""

    title: str
    caption: str
    frame: pd.DataFrame
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document is a table of conf/table as printed: how it was made, its blocks, its notes and its runs.

    ``pictures`` lie in the folder of the page, and stand before the blocks.
    """

    name: str
    title: str
    made: tuple[str, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]
    runs: pd.DataFrame
    pictures: tuple[Path, ...] = ()


def document(
    spec: TableSpec,
    long: pd.DataFrame,
    runs: Sequence[PlannedRun],
    command: str,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> Document:
    """Lay out ``long`` (see ``cells``) with one block per data set and panel.

    ``elsewhere``: by data set, the command that makes its runs, where ``command`` does not.
    """
    blocks = []
    for dataset in long["dataset"].unique():
        mine = [run for run in runs if run.dataset == dataset]
        for index, panel in enumerate(panels_of(spec, runs)):
            part = long[(long["dataset"] == dataset) & (long["panel"] == index)]
            if index > 0 and part["ours"].isna().all():
                continue  # panels after the first have no published numbers, so without runs they would be empty
            if _is_only_published(part):
                blocks.append(_published_block(spec, panel, part, mine, elsewhere.get(dataset, command)))
            else:
                blocks.append(block(spec, panel, part, mine))
    with_folder = [run for run in runs if record_of(run).status != NOT_RUN]
    records = [record_of(run) for run in with_folder]
    notes = [*spec.notes]
    if (long["seeds"] > 1).any():
        notes.append("Ours is the mean ± standard deviation over the seeds.")
    if long.apply(_is_skewed, axis=1).any():
        notes.append("Where the deviation is half the mean or more, it is the median (lowest–highest) of the seeds.")
    return Document(
        name=spec.name,
        title=spec.title,
        made=how_made(records, command),
        blocks=tuple(blocks),
        notes=tuple(notes),
        runs=runs_table(spec.grid, with_folder),
    )


def _is_only_published(part: pd.DataFrame) -> bool:
    """Tell whether something is published of a data set, and not one of our runs was made or could be made."""
    tried = ~part["status"].isin([NOT_RUN, NOT_TRIED]) & ~part["status"].str.startswith(_SKIPPED)
    return bool(_printed(part)) and not tried.any()


def _printed(part: pd.DataFrame) -> set[str]:
    """Return the names of the columns in which the paper prints a number or a word for some method."""
    return set(part[part["published"].notna() | (part["published_note"] != "")]["metric"])


def _published_block(
    spec: TableSpec, panel: Panel, part: pd.DataFrame, runs: Sequence[PlannedRun], command: str
) -> Block:
    """Lay out what the paper prints of a data set that was not measured here; the caption says how to measure it."""
    printed = _printed(part)
    shown = {column.name: f"{_with_unit(column)}, published" for column in panel.columns if column.name in printed}
    columns = {column.name: column for column in panel.columns}
    rows = []
    for method in spec.grid.methods:
        cells = {cell["metric"]: cell for _, cell in part[part["method"] == method.name].iterrows()}
        texts = {shown[name]: _published_text(cells[name], columns[name]) for name in shown if name in cells}
        if any(text != _NOTHING for text in texts.values()):
            rows.append({"Method": method.label, **texts})
    return Block(
        title=spec.grid.dataset(str(part["dataset"].iloc[0])).label,
        caption=f"Published numbers only: {_why_not_measured(part, runs, command)}.",
        frame=pd.DataFrame(rows),
    )


def _why_not_measured(part: pd.DataFrame, runs: Sequence[PlannedRun], command: str) -> str:
    """Say why there is no number of ours, and name the commands that make one."""
    prepare = next(filter(None, map(how_to_prepare, runs)), None)
    if prepare is not None:
        return f"data are not prepared here; `{prepare}` prepares them, and then `{command}` makes our runs"
    reasons = {str(s).removeprefix(_SKIPPED) for s in part["status"] if str(s).startswith(_SKIPPED)}
    why = "; ".join(sorted(reasons)) if reasons else "ours have not been run here"
    return f"{why}; `{command}` makes our runs"


def block(spec: TableSpec, panel: Panel, part: pd.DataFrame, runs: Sequence[PlannedRun]) -> Block:
    """Lay out the columns of a panel for one data set.

    ``part``: the data set's cells of this panel (see ``cells``). ``runs``: its planned runs.
    """
    shown = spec.grid.dataset(str(part["dataset"].iloc[0]))
    heading = shown.label + (f" – {panel.title}" if panel.title else "")
    printed = _printed(part)
    rows: list[dict[str, str]] = []
    remarks: list[str] = []
    for method in spec.grid.methods:
        line = part[part["method"] == method.name]
        if line.empty:
            continue
        row = {"Method": method.label}
        numbers = line["ours"].dropna().tolist()
        best = panel.best(numbers) if panel.best and len(numbers) > 1 else None
        for column in panel.columns:
            cell = line[line["metric"] == column.name].iloc[0]
            text = _ours_text(cell, column)
            row[_with_unit(column)] = f"**{text}**" if cell["ours"] == best else text
            if not cell["stand_in"] and column.name in printed:
                row[f"{_with_unit(column)}, published"] = _published_text(cell, column)
                row[f"{_with_unit(column)}, difference"] = _number(cell["difference"], column, sign=True)
        made = [record_of(run) for run in runs if run.method == method.name]
        if panel.columns[0].point is None:  # otherwise every column has runs of its own, too many for a cell
            row["Runs"] = " ".join(_run_text(record) for record in made if record.status != NOT_RUN) or "–"
        rows.append(row)
    if any(record_of(run).has_changes for run in runs):
        remarks.append(f"{_CHANGED} made by code with changes that were not committed; force=true makes the run again.")
    for remark, methods in _remarks(part).items():
        labels = ", ".join(method.label for method in spec.grid.methods if method.name in methods)
        remarks.append(f"{_REMARKED} {labels}: {remark}.")
    statuses = [s for s in part["status"].unique() if s not in (FINISHED, NOT_RUN) and ":" in s]
    captions = [_settings(runs)] if runs else []
    if shown.published is None and spec.published is not None:
        captions.insert(0, "not a data set of the paper: no published numbers")
    return Block(title=heading, caption="; ".join(captions), frame=pd.DataFrame(rows), footnotes=(*remarks, *statuses))


def _run_text(record: RunRecord) -> str:
    return record.short_id + (_CHANGED if record.has_changes else "")


def _remarks(part: pd.DataFrame) -> dict[str, list[str]]:
    """Return the methods of each remark on a chosen value."""
    if "remark" not in part:
        return {}
    found: dict[str, list[str]] = {}
    for method, remark in zip(part["method"], part["remark"], strict=True):
        if remark:
            found.setdefault(remark, []).append(method)
    return found


def _settings(runs: Sequence[PlannedRun]) -> str:
    """Describe the runs' common settings; a number that differs between methods is given as a range."""

    def span(values: Iterable[float]) -> str:
        ordered = sorted(values)
        low, high = ordered[0], ordered[-1]
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    configs = [run.config for run in runs]
    seeds = sorted({run.seed for run in runs})
    many = "seeds " + ", ".join(map(str, seeds)) if len(seeds) > 1 else f"seed {seeds[0]}"
    optimizer = f"{configs[0].optimizer.name} lr {span(config.optimizer.lr for config in configs)}"
    decays = {config.training.decay for config in configs}
    if decays != {None}:
        optimizer += " falling to " + " or ".join(f"{decay or 1:.0%}" for decay in sorted(decays, key=lambda d: d or 1))
    epochs = span(config.epochs for config in configs)
    batch = span(config.batch_size for config in configs)
    return f"{epochs} epoch{'' if epochs == '1' else 's'}, batch {batch}, {optimizer}, {many}"


def how_made(records: Sequence[RunRecord], command: str) -> tuple[str, ...]:
    """Return lines with the command, and with commits, machines, threads and dates from the runs' provenance."""
    made = [attempt for record in records for attempt in record.attempts if attempt]
    lines = [f"Made by `{command}`"]
    if not made:
        return (*lines, "No runs yet.")
    days, machines = days_and_machines(records)
    commits = sorted({str(item["commit"] or "unknown")[:10] + (" + changes" if item["patch"] else "") for item in made})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
    lines.append(f"{runs} of {when}; commit {', '.join(commits)}; {'; '.join(machines)}")
    if len(machines) > 1:
        lines.append("The runs come from different machines or thread counts: their seconds do not compare.")
    return tuple(lines)


def days_and_machines(records: Iterable[RunRecord]) -> tuple[list[str], list[str]]:
    """Return in order the days when any attempt at the runs began, and the machines with their threads."""
    made = [attempt for record in records for attempt in record.attempts if attempt]
    days = {str(item["started"])[:10] for item in made}
    return sorted(days), sorted({f"{item['cpu']}, {item['threads']} of {item['cores']} cores" for item in made})


def _with_unit(column: Column) -> str:
    return column.label if column.unit_in_label else f"{column.label} ({column.unit})"


def _number(value: float, column: Column, *, sign: bool = False, decimals: int | None = None) -> str:
    if pd.isna(value):
        return _NOTHING
    if column.is_setting:
        return f"{value:g}"
    decimals = _decimals(value, column) if decimals is None else decimals
    value = round(_rounded(value, column), decimals) + 0.0  # the sum turns -0.0 into 0.0
    sign = sign or column.signed
    return f"{value:{'+' if sign else ''},.{decimals}f}" + ("x" if column.unit == "x" and not sign else "")


def _decimals(value: float, column: Column, deviation: float = math.nan) -> int:
    """Return the decimals to print: none from 1,000 on of a ratio or a bare number, if its deviation shows without."""
    is_long = abs(value) >= 1000 and column.unit in ("", "x")
    return 0 if is_long and not deviation < 1 else column.decimals


def _rounded(value: float, column: Column) -> float:
    return float(f"{value:.{column.digits}g}") if column.digits else value


def _ours_text(cell: pd.Series, column: Column) -> str:
    if pd.isna(cell["ours"]):
        return str(cell["status"]).partition(":")[0]
    if _is_skewed(cell):
        low, high = (_number(cell[name], column) for name in ("lowest", "highest"))
        return f"{_number(cell['median'], column)} ({low}–{high})"
    deviation = cell["deviation"]
    decimals = _decimals(cell["ours"], column, deviation)
    text = _number(cell["ours"], column, decimals=decimals)
    if cell.get("remark"):
        text += f" {_REMARKED}"
    return text if pd.isna(deviation) else f"{text} ± {_rounded(deviation, column):,.{decimals}f}"


def _is_skewed(cell: pd.Series) -> bool:
    """Tell whether a mean of positive numbers says little, because its deviation is half of it or more."""
    return bool(cell["lowest"] >= 0 and cell["ours"] > 0 and cell["deviation"] >= 0.5 * cell["ours"])


def _published_text(cell: pd.Series, column: Column) -> str:
    if pd.isna(cell["published"]):
        return str(cell["published_note"]) or _NOTHING
    return _number(cell["published"], column)


# ---------------------------------------------------------------- Markdown


def markdown_table(frame: pd.DataFrame) -> str:
    """Return a pipe table; every column but the first is right-aligned."""
    texts: list[list[object]] = [list(frame.columns), *frame.to_numpy().tolist()]
    rows = [[str(value).replace("|", "\\|") for value in row] for row in texts]
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(frame.shape[1])]
    lines = []
    for row in rows:
        padded = [
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(padded)} |")
    rule = [f"{'-' * width}" if i == 0 else f"{'-' * (width - 1)}:" for i, width in enumerate(widths)]
    lines.insert(1, f"| {' | '.join(rule)} |")
    return "\n".join(lines)


def to_markdown(doc: Document) -> str:
    """Return the whole document as Markdown."""
    parts = _markdown_parts(doc, "#")
    if len(doc.runs):
        parts += ["## Runs", *_about_runs(doc), markdown_table(doc.runs)]
    return "\n\n".join(parts) + "\n"


def to_markdown_fragment(doc: Document) -> str:
    """Return the whole document as a section of a Markdown page, with its runs folded up."""
    parts = _markdown_parts(doc, "###")
    if len(doc.runs):
        parts.append(folded("Runs behind these numbers", "\n\n".join([*_about_runs(doc), markdown_table(doc.runs)])))
    return "\n\n".join(parts)


def _markdown_parts(doc: Document, heading: str) -> list[str]:
    return [f"{heading} {doc.title}", *markdown_body(doc, heading)]


def markdown_body(doc: Document, heading: str) -> list[str]:
    """Return how it was made, the blocks and the notes; ``heading``: the signs of the document's own."""
    parts = ["  \n".join(doc.made), *(picture_markdown(picture, doc.title) for picture in doc.pictures)]
    for block in doc.blocks:
        parts += [f"{heading}# {block.title}"] if block.title else []
        parts += [block.caption] if block.caption else []
        parts.append(markdown_table(block.frame))
        parts.extend(f"*{note}*" for note in block.footnotes)
    if doc.notes:
        parts.append("\n".join(f"- {note}" for note in doc.notes))
    return parts


def _about_runs(doc: Document) -> list[str]:
    in_cells = any("Runs" in block.frame for block in doc.blocks)
    return ["`Runs` above are the ends of these run ids."] if in_cells else []


def folded(summary: str, markdown: str) -> str:
    """Return Markdown that a reader unfolds by a click on its summary."""
    return str(html("folded_markdown", summary=summary, markdown=markdown))


def picture_markdown(picture: Path, title: str) -> str:
    """Show a picture that lies in the folder of the page."""
    return f"![{title}]({picture.name})"


# ---------------------------------------------------------------- HTML

_LONGEST_NUMBER = 30  # characters of a cell with a number, its deviation and what it was compared with
_MARKED = re.compile(r"(`[^`]*`|\*\*[^*]+\*\*)")


def two_levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Put the columns ``X``, ``X, published`` and ``X, difference`` under one heading X, if any are published."""
    names = [str(name) for name in frame.columns]
    grouped = {name.removesuffix(", published") for name in names if name.endswith(", published")}
    if not grouped:
        return frame
    pairs = []
    for name in names:
        heading, _, part = name.rpartition(", ")
        pairs.append((heading, part) if heading in grouped else (name, "ours") if name in grouped else ("", name))
    return frame.set_axis(pd.MultiIndex.from_tuples(pairs), axis=1)


def _headings(frame: pd.DataFrame) -> list[list[tuple[str, int]]]:
    """Return the one or two lines of a table's head: names, each with the number of columns that it spans."""
    columns = two_levels(frame).columns
    last = [(str(name), 1) for name in columns.get_level_values(-1)]
    if columns.nlevels == 1:
        return [last]
    return [[(name, len([*same])) for name, same in itertools.groupby(columns.get_level_values(0))], last]


def _columns_of_text(frame: pd.DataFrame) -> list[bool]:
    """Tell for each column whether it has sentences, which begin at the left, and no numbers."""
    columns = (frame.iloc[:, place] for place in range(frame.shape[1]))
    return [bool(column.astype(str).str.len().max() > _LONGEST_NUMBER) for column in columns]


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(["html.j2"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters["marked_words"] = lambda words: _MARKED.split(str(words))  # every second part is marked
TEMPLATES.filters["headings"] = _headings
TEMPLATES.filters["columns_of_text"] = _columns_of_text
TEMPLATES.filters["base64"] = lambda picture: base64.b64encode(picture.read_bytes()).decode()


def html(macro: str, **arguments: object) -> Markup:
    """Return what a macro of ``sections.html.j2`` makes of its arguments, whose text it escapes."""
    return Markup(getattr(TEMPLATES.get_template("sections.html.j2").module, macro)(**arguments))
