"""Wrap what is printed to a terminal between words. What is printed elsewhere, such as to a log, keeps its lines.

Where the encoding lacks a sign, another is printed in its place.
"""

import codecs
import io
import os
import shutil
import sys
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


_PLAIN = {
    "±": "+-", "–": "-", "—": "-", "×": "x", "²": "2", "…": "...", "†": "*", "‡": "**", "→": "->", "≤": "<=", "≥": ">=",
}  # fmt: skip


def print_anything() -> None:
    """Let standard output and error take every text: what their encoding lacks is printed by plainer signs.

    An ASCII locale, as cron and clusters have it, would otherwise end a table with an error at its first ±. Names of
    files that are not text keep their bytes.
    """
    codecs.register_error("plain", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    if all("\udc80" <= sign <= "\udcff" for sign in lacking):  # bytes of a name that is not text
        return lacking.encode("ascii", "surrogateescape"), error.end
    plain = "".join(_PLAIN.get(sign, sign) for sign in lacking)
    return plain.encode("ascii", "backslashreplace").decode(), error.end
