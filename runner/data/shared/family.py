"""Define what a family of data is, and find it by its name.

Nothing else in this folder knows which families there are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from runner.data.shared.card import Card
from runner.data.shared.manifests import Dataset, Manifest

# The module of each family, whose FAMILY is a Family; modules are imported when they are needed.
FAMILIES = {
    "rows": "runner.data.rows.family",
    "text": "runner.data.text.family",
    "regression": "runner.data.regression.family",
    "pairs": "runner.data.pairs.family",
    "sequences": "runner.data.sequences.family",
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Say how data of one kind are described, converted to a prepared folder, and opened.

    ``card``: what the family's cards say; their layouts name the files.
    ``manifest``: what its manifests say; they open the folders.
    ``convert(card, layout, files, folder)`` converts published files, by field of the layout, to a folder. Raises
    DataError for files that are damaged or hold another set than the card describes.
    ``derive(card, base, folder)`` computes a set from the prepared set that its card names as its base.
    ``dataset`` is what its manifests open, for families whose runs rank without their examples.
    ``holds_out``: whether tasks hold a share of the training rows out for validation.
    """

    card: type[Card]
    manifest: type[Manifest]
    convert: Callable[[Any, Any, dict[str, tuple[Path, ...]], Path], Manifest]
    derive: Callable[[Any, Any, Path], Manifest] | None = None
    dataset: type[Dataset] | None = None
    holds_out: Literal["always", "maybe", "no"]


def family_of(name: str) -> Family:
    """Return the family of a name in FAMILIES."""
    family: Family = import_module(FAMILIES[name]).FAMILY
    return family
