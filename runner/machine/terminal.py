"""Wrap what is printed to a terminal between words. What is printed elsewhere, such as to a log, keeps its lines."""

import os
import shutil
import textwrap
from typing import TextIO


def fitted(text: str, stream: TextIO) -> str:
    """Return the text as it is to be printed to the stream: on a terminal, lines that are too long go on below."""
    if not stream.isatty():
        return text
    columns = width_of(stream)
    wrapper = textwrap.TextWrapper(  # a path that is longer than the terminal stays whole, so that it can be copied
        columns, subsequent_indent=" " * 4, break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(wrapper.fill(line) if len(line) > columns else line for line in text.split("\n"))


def width_of(stream: TextIO) -> int:
    """Return the number of characters in a line of the terminal that the stream prints to; COLUMNS overrides it."""
    try:
        own = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # it is no terminal
        own = 0
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) else own or shutil.get_terminal_size().columns
