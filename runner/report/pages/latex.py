"""Write printed tables as LaTeX that fits a text column: booktabs, siunitx, and notes by threeparttable.

Columns of numbers are aligned at the point. A table that is too wide goes on below, with its first column again. Run
ids are left out, because they stand in the Markdown and the CSV of the same name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from runner.report.pages.layout import Block, Document, two_levels

PACKAGES = ("booktabs", "siunitx", "threeparttable")
_WIDEST = 82  # letters of footnotesize that a column of text holds, with the gaps
_GAP = 2
_HEAD = 12  # letters of a line of a heading, where it can be broken
_SETUP = (
    r"\sisetup{group-separator={,},group-minimum-digits=4,group-digits=integer,separate-uncertainty=true,"
    r"table-align-text-after=false,detect-weight=true,mode=text}"
)
_NUMBER = re.compile(
    r"(?P<bold>\*\*)?(?P<number>[+-]?[\d,]*\.?\d+)x?(?P<mark> ?[†‡])?(?: ± (?P<deviation>[\d,]*\.?\d+))?(?:\*\*)?"
)
_BOLD = re.compile(r"\*\*([^*<>]+)\*\*")
_LATEX = {
    "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$", "–": "--", "—": "---", "×": r"$\times$", "≤": r"$\leq$",
    "≥": r"$\geq$", "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
} | {sign: f"\\{sign}" for sign in "%_&#${}"}  # fmt: skip
_SPECIAL = re.compile("[" + "".join(map(re.escape, _LATEX)) + "]")


def latex_text(text: str) -> str:
    """Turn plain text into LaTeX source; `code` becomes typewriter, **text** bold."""
    escaped = _SPECIAL.sub(lambda match: _LATEX[match[0]], text)
    escaped = _BOLD.sub(r"\\textbf{\1}", escaped)
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", escaped)


def to_latex(doc: Document) -> str:
    """Return the tables, to be \\input in a document that loads ``PACKAGES``."""
    needs = "".join(f"\\usepackage{{{name}}}" for name in PACKAGES)
    parts = [f"% {line}" for line in (doc.title, *doc.made, f"Needs {needs}")]
    for number, block in enumerate(doc.blocks, start=1):
        parts.append(_table(doc, block, f"tab:{doc.name}-{number}"))
    if doc.notes:  # of all tables, and too long for a float
        parts.append("\\par\\noindent{\\footnotesize " + " ".join(map(latex_text, doc.notes)) + "\\par}")
    return "\n".join(parts) + "\n"


def _table(doc: Document, block: Block, label: str) -> str:
    caption = f"{doc.title}. {block.title}" + (f" ({block.caption})" if block.caption else "") + "."
    frame = block.frame.drop(columns="Runs", errors="ignore")
    tables = [_tabular(part) for part in _parts(frame)]
    listed = "\n".join(rf"\item {latex_text(note)}" for note in block.footnotes)
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}" + _SETUP,
            r"\begin{threeparttable}",
            rf"\caption{{{latex_text(caption)}}}\label{{{label}}}",
            "\n\n\\medskip\n".join(tables),
            *([f"\\begin{{tablenotes}}\\scriptsize\n{listed}\n\\end{{tablenotes}}"] if listed else []),
            r"\end{threeparttable}",
            r"\end{table}",
        ]
    )


# ---------------------------------------------------------------- columns


@dataclass(frozen=True)
class _Column:
    """A column of a table as LaTeX: its alignment, its cells, and its width in letters."""

    alignment: str
    cells: tuple[str, ...]
    width: int


def _column(texts: Sequence[str]) -> _Column:
    """Align numbers at the point; words among them are centred. A column without any number is of text."""
    found = [_NUMBER.fullmatch(text) for text in texts]
    numbers = [match for match in found if match is not None]
    widest = max(len(text.replace("**", "")) for text in texts)
    if not numbers:
        return _Column("r", tuple(map(latex_text, texts)), widest)
    plain = [match["number"].replace(",", "") for match in numbers]
    whole = max(len(number.lstrip("+-").partition(".")[0]) for number in plain)
    broken = max(len(number.partition(".")[2]) for number in plain)
    deviations = [match["deviation"].replace(",", "") for match in numbers if match["deviation"]]
    sign = "+" if any(number[0] in "+-" for number in plain) else ""
    shape = f"{sign}{whole}.{broken}" if broken else f"{sign}{whole}"
    if deviations:  # siunitx counts the digits of the last places, without a point
        shape += f"({max(len(deviation.replace('.', '').lstrip('0')) or 1 for deviation in deviations)})"
    marks = r",table-space-text-post={\textsuperscript{$\dagger$}}" if any(match["mark"] for match in numbers) else ""
    cells = [_cell(match) if match else f"{{{latex_text(text)}}}" for text, match in zip(texts, found, strict=True)]
    return _Column(f"S[table-format={shape}{marks}]", tuple(cells), widest)


def _cell(match: re.Match[str]) -> str:
    number = match["number"].replace(",", "")
    if match["deviation"]:
        number += f" \\pm {match['deviation'].replace(',', '')}"
    mark = f"{{\\textsuperscript{{{latex_text(match['mark'].strip())}}}}}" if match["mark"] else ""
    return (r"\bfseries " if match["bold"] else "") + number + mark


def _parts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Split a frame that is too wide into some that are not; the columns of one published number stay together."""
    groups: dict[str, list[str]] = {}
    for name in map(str, frame.columns[1:]):
        groups.setdefault(re.sub(", (published|difference)$", "", name), []).append(name)
    first = str(frame.columns[0])

    def width(names: Sequence[str]) -> int:
        return sum(max(_column(frame[name].tolist()).width, _heading_width(name)) + _GAP for name in names)

    own = max(map(len, frame[first].astype(str)))
    parts: list[list[str]] = [[]]
    for names in groups.values():
        if parts[-1] and own + width([*parts[-1], *names]) > _WIDEST:
            parts.append([])
        parts[-1] += names
    return [frame[[first, *names]] for names in parts]


def _lines(heading: str) -> list[str]:
    """Break a heading into lines, at spaces."""
    lines: list[str] = []
    for word in heading.split():
        if lines and len(lines[-1]) + 1 + len(word) <= _HEAD:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _heading_width(name: str) -> int:
    return max(map(len, _lines(re.sub(".*, (?=published$|difference$)", "", name))))


def _heading(text: str) -> str:
    """Return a heading of several lines; braces keep siunitx from reading it as a number."""
    stacked = r" \\ ".join(latex_text(line) for line in _lines(text))
    return rf"{{\shortstack{{{stacked}}}}}"


def _tabular(frame: pd.DataFrame) -> str:
    columns = [_column(frame[name].astype(str).tolist()) for name in frame.columns[1:]]
    first = frame.columns[0]
    cells = {first: [latex_text(str(text)) for text in frame[first]]}
    cells |= {name: list(column.cells) for name, column in zip(frame.columns[1:], columns, strict=True)}
    shown = two_levels(pd.DataFrame(cells))
    if isinstance(shown.columns, pd.MultiIndex):
        pairs = [(latex_text(str(above)), _heading(str(below))) for above, below in shown.columns]
        shown = shown.set_axis(pd.MultiIndex.from_tuples(pairs), axis=1)
    else:
        shown = shown.set_axis([_heading(str(name)) for name in shown.columns], axis=1)
    alignment = "l" + "".join(column.alignment for column in columns)
    text: str = shown.style.hide(axis="index").to_latex(column_format=alignment, hrules=True, multicol_align="c")
    return text.rstrip()
