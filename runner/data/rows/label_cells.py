"""Read the names of a row's labels from one cell, in any way that people write lists.

A cell may hold a list (JSON lines, Parquet), the text of one as pandas, NumPy or JSON write it (``['a', 'b']``,
``['a' 'b']``, ``["a", "b"]``), or names with a separator between them. Blanks around a name do not count, and within a
name they become single spaces. An empty cell, null and NaN are no label.
"""

import ast
import json
import re
from collections.abc import Iterable
from typing import Any

SEPARATORS = ("|", ";", ",")  # looked for in this order
ALONE = "none"  # the setting that takes every cell as one name
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ENTRY = re.compile(rf"\s*({_QUOTED}|[^\s,'\"\[\](){{}}]+)\s*,?")
_LIST = re.compile(rf"\[.*\]|[({{]\s*(?:{_QUOTED}).*[)}}]", re.DOTALL)  # pandas writes tuples and sets as Python does
_EMPTY = {"", "nan", "none", "null", "[]", "()", "{}", "set()"}  # lower case


def is_list(cell: str) -> bool:
    """Return whether the text of a cell is a list."""
    return _LIST.fullmatch(cell.strip()) is not None


def names_in(cell: Any, separator: str | None) -> list[str]:
    """Return the names in a cell, each once. ``separator``: None takes text that is no list as one name.

    Raises ValueError, which says what is wrong.
    """
    if isinstance(cell, str):
        text = cell.strip()
        if text.lower() in _EMPTY:
            return []
        found: Iterable[Any] = _listed(text) if is_list(text) else text.split(separator) if separator else [text]
    elif isinstance(cell, list | tuple):
        found = cell
    else:
        found = [cell]
    return list(dict.fromkeys(name for name in map(_name, found) if name))


def separator_in(cells: Iterable[Any]) -> tuple[str, str] | None:
    """Return the separator that most cells of text have, and a cell that has it; None if no cell has one.

    Of two that as many cells have, the first of ``SEPARATORS`` is taken.
    """
    counts, examples = dict.fromkeys(SEPARATORS, 0), dict[str, str]()
    for cell in cells:
        if not isinstance(cell, str) or is_list(cell):
            continue
        for separator in SEPARATORS:
            if separator in cell:
                counts[separator] += 1
                examples.setdefault(separator, cell)
    best = max(SEPARATORS, key=counts.__getitem__)
    return (best, examples[best]) if counts[best] else None


def _name(value: Any) -> str:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{str(value)[:40]!r} is not the name of a label; a cell holds names or a list of names")
    return " ".join(str(value).split())


def _listed(text: str) -> list[Any]:
    """Return the entries of the text of a list. Raises ValueError."""
    try:
        found = json.loads(text)
        if isinstance(found, list):
            return found
    except (ValueError, RecursionError):
        pass
    inner, entries, at = text[1:-1], [], 0
    while inner[at:].strip():
        entry = _ENTRY.match(inner, at)
        if entry is None:
            raise ValueError(f"{text[:40]!r} begins like a list, but cannot be read as one; write it as JSON does")
        word = entry[1]
        try:
            entries.append(ast.literal_eval(word) if word[0] in "'\"" else word)
        except (ValueError, SyntaxError):
            raise ValueError(f"{word[:40]!r} in a list is no quoted name; write it as JSON does") from None
        at = entry.end()
    return [entry for entry in entries if not (isinstance(entry, str) and entry.lower() in ("nan", "none"))]
