"""Wrap what is printed to a terminal between words. What is printed elsewhere, such as to a log, keeps its lines."""

import shutil
import textwrap
from typing import TextIO


def fitted(text: str, stream: TextIO) -> str:
    """Return the text as it is to be printed to the stream: on a terminal, lines that are too long go on below."""
    if not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, columns, subsequent_indent=" " * 4, break_on_hyphens=False) if len(line) > columns else line
        for line in text.split("\n")
    )
