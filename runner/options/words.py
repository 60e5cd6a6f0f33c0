"""Read the words of a command line that Hydra's grammar has no place for, such as paths with blanks and accents."""

import re
from collections.abc import Iterable
from contextlib import suppress

_OF_TEXT = re.compile(r"dataset\.(path|test_path|columns|text|labels|separator)")  # keys whose values are text
_ASSIGNMENT = re.compile(r"(\+{0,2}[\w.]+)=((?!\s*$)[^\[{'\"].*)", re.DOTALL)


def readable(words: Iterable[str]) -> list[str]:
    """Return the words as Hydra reads them: what it cannot read gets the quotes that Hydra wants.

    So a path may have blanks, commas and letters of any alphabet. Lists, mappings, what is in quotes already and sweeps
    (several values and -m) stay. What still cannot be read is left for others to explain.
    """
    given = list(words)
    sweeps = any(word in ("-m", "--multirun") for word in given)
    return [_readable(word, sweeps) for word in given]


def _readable(word: str, sweeps: bool) -> str:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    if (found := _ASSIGNMENT.fullmatch(word)) is None or "${" in word or not _is_text(word):
        return word
    key, value = found[1], found[2]
    try:
        override = parser.parse_override(word)
        several = override.is_sweep_override()
        if not _OF_TEXT.fullmatch(key):
            return word
        if not (
            not sweeps or key == "dataset.columns" if several else isinstance(override.value(), bool | int | float)
        ):
            return word
    except HydraException:
        if sweeps and "," in value:
            return word
    except (ValueError, RecursionError):  # a number of too many digits
        return word
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    with suppress(HydraException):
        parser.parse_override(f"{key}='{escaped}'")
        return f"{key}='{escaped}'"
    return word


def _is_text(word: str) -> bool:
    """Return whether the shell gave a word in UTF-8."""
    with suppress(UnicodeEncodeError):
        word.encode()
        return True
    return False
