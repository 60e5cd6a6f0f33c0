"""Read the sources of the Linux kernel from their archive, one file after the other.

Any version will do, as a tar of any compression that `extract` knows. What is read says its version itself.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from runner.data.shared.card import Card, Layout
from runner.data.shared.cards import origin_of
from runner.data.shared.extract import read_members
from runner.data.shared.files import progress_bar
from runner.data.shared.manifests import Origin
from runner.errors import DataError

_MAKEFILE = "Makefile"
_VERSION = re.compile(rb"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *= *([\w.-]*) *$", re.MULTILINE)


class LinuxSources:
    """Read one archive; `version` is known after all files were read."""

    def __init__(self, archive: Path, endings: tuple[str, ...]) -> None:
        self.archive, self.endings = archive, endings
        self.version = ""

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path, below the archive's one folder, and the content of each file with one of the endings.

        Raises DataError for a damaged archive and for one that does not hold the kernel.
        """
        with progress_bar(self.archive) as progress:
            for name, content in read_members(self.archive, self._is_wanted, progress=progress):
                if (path := _below_top(name)) == _MAKEFILE:
                    self.version = _version_in(content)
                else:
                    yield path, content
        if not self.version:
            raise DataError(f"{self.archive}: no Makefile names a version of Linux; is this another archive?")

    def _is_wanted(self, name: str) -> bool:
        return name.endswith(self.endings) or _below_top(name) == _MAKEFILE


def sources_origin(card: Card, layout: Layout, sources: LinuxSources) -> Origin:
    """Return the origin of what was made of sources; its variant is the layout's name and the version found."""
    origin = origin_of(card, layout, {"archive": (sources.archive,)})
    return replace(origin, variant=f"{layout.name}-{sources.version}")


def _below_top(name: str) -> str:
    return name.removeprefix("./").partition("/")[2]


def _version_in(makefile: bytes) -> str:
    """Return the version that the kernel's Makefile states, "" if it states none."""
    parts = {key: value.decode() for key, value in _VERSION.findall(makefile)}
    if not parts.keys() >= {b"VERSION", b"PATCHLEVEL"}:
        return ""
    numbers = ".".join(parts[key] for key in (b"VERSION", b"PATCHLEVEL", b"SUBLEVEL") if parts.get(key))
    return numbers + parts.get(b"EXTRAVERSION", "")
