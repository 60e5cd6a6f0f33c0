"""Print a table: as Markdown, or on a terminal that is too narrow for that, with its cells on several lines."""

import re
import textwrap
from typing import TextIO

import pandas as pd

from runner.machine.terminal import width_of
from runner.report.pages.layout import markdown_table

_GAP = "  "


def screen_table(frame: pd.DataFrame, stream: TextIO) -> str:
    """Return the table as it is to be printed to the stream: on a terminal that is too narrow, with cells wrapped."""
    table = markdown_table(frame)
    if not stream.isatty():
        return table
    columns = width_of(stream)
    return table if len(table.partition("\n")[0]) <= columns else wrapped_table(frame, columns)


def wrapped_table(frame: pd.DataFrame, columns: int) -> str:
    """Return the table with cells wrapped, so that lines have at most so many characters; columns of numbers end alike.

    If words are too long for that, each row becomes a block of lines that name what they hold.
    """
    rows = [[str(value) for value in row] for row in [list(frame.columns), *frame.to_numpy().tolist()]]
    cells = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in cells]
    whole = [max(_longest_word(title), *map(len, below)) for title, *below in cells]  # only titles are wrapped
    narrowest = [max(map(_longest_word, column)) for column in cells]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > columns:
        shrinkable = [i for i in range(len(widths)) if widths[i] > whole[i]]
        shrinkable = shrinkable or [i for i in range(len(widths)) if widths[i] > narrowest[i]]
        if not shrinkable:
            return "\n".join(_block(rows[0], row, columns) for row in rows[1:])
        widths[max(shrinkable, key=lambda i: widths[i])] -= 1
    numeric = [all(not cell or cell[0].isdigit() or cell[0] in "-–" for cell in column[1:]) for column in cells]
    lines = []
    for row in rows:
        wrapped = [_Words(width).wrap(cell) for cell, width in zip(row, widths, strict=True)]
        for height in range(max(map(len, wrapped))):
            parts = [cell[height] if height < len(cell) else "" for cell in wrapped]
            aligned = [
                part.rjust(width) if right else part.ljust(width)
                for part, width, right in zip(parts, widths, numeric, strict=True)
            ]
            lines.append(_GAP.join(aligned).rstrip())
        if row is rows[0]:
            lines.append(_GAP.join("-" * width for width in widths))
    return "\n".join(lines)


class _Words(textwrap.TextWrapper):
    """Wrap between words, and within names of settings and runs; numbers and dates stay whole."""

    wordsep_re = re.compile(r"(\s+|(?<=\w[-.=])(?=[A-Za-z]))")

    def __init__(self, width: int) -> None:
        super().__init__(width, break_long_words=False)


def _longest_word(cell: str) -> int:
    return max(map(len, _Words(1).wrap(cell)), default=1)


def _block(titles: list[str], row: list[str], columns: int) -> str:
    """Return a row as its first cell and, below, its other cells after their titles; empty ones are left out."""
    about = [f"{title}: {cell}" for title, cell in zip(titles[1:], row[1:], strict=True) if cell not in ("", "–")]
    indent = " " * 4
    return f"{row[0]}\n{textwrap.fill('; '.join(about), columns, initial_indent=indent, subsequent_indent=indent)}"
