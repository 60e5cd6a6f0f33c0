"""A family of data is one room and one line: what families share knows none of them, and no room knows another."""

import ast
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import runner.data
from runner.config import compose
from runner.data import KINDS, CardConfig
from runner.data.shared.card import Card, Layout, Size
from runner.data.shared.cards import load_card, origin_of
from runner.data.shared.family import FAMILIES, Family, family_of
from runner.data.shared.manifests import Dataset, Manifest, combine
from runner.data.shared.prepare import prepare_card
from runner.data.shared.store import read_manifest, write_column
from runner.data.shared.verify import map_ids
from runner.errors import ConfigError, DataError

ROOT = Path(runner.data.__file__).parent


def imported(path: Path) -> set[str]:
    """Return the rooms of the data package, and other packages of the runner, that a file imports anywhere."""
    modules = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    parts = [module.split(".") for module in modules if module is not None and module.startswith("runner.")]
    return {part[2] if part[1] == "data" and len(part) > 2 else part[1] for part in parts}


def test_each_family_is_a_room() -> None:
    assert {path.parent.name for path in ROOT.glob("*/family.py")} == {*FAMILIES, "shared"}
    for name in FAMILIES:
        assert family_of(name).card.family == name
    assert {kind.family for name, kind in KINDS.items() if name != "card"} == FAMILIES.keys()


@pytest.mark.parametrize("room", [*FAMILIES, "shared"])
def test_rooms_import_what_they_share_and_no_other_room(room: str) -> None:
    found = set().union(*(imported(path) for path in (ROOT / room).glob("*.py")))
    assert len(found) > 2, "the imports were read"
    assert found <= {room, "shared", "errors", "options", "contracts", "home", "rng", "machine", "kernels"}


# ---- a family of one's own: the lengths of the lines of a file ----


@dataclass(frozen=True, kw_only=True)
class LengthsLayout(Layout):
    data: str

    def file_names(self) -> dict[str, str]:
        return self.given("data")

    def problem(self) -> str | None:
        return None


@dataclass(frozen=True, kw_only=True)
class ExpectedLengths:
    num_lines: int


@dataclass(frozen=True, kw_only=True)
class LengthsCard(Card):
    family: ClassVar[str] = "lengths"

    expected: ExpectedLengths
    layouts: tuple[LengthsLayout, ...]

    @property
    def size(self) -> Size:
        return Size(unit="lines", train=self.expected.num_lines)


@dataclass(frozen=True, kw_only=True)
class LengthsDataset(Dataset):
    lengths: list[int]


@dataclass(frozen=True, kw_only=True)
class LengthsManifest(Manifest):
    family: str = "lengths"
    lines: int

    @property
    def size(self) -> Size:
        return Size(unit="lines", train=self.lines)

    def in_words(self) -> str:
        return f"{self.lines} lines"

    def checksum_of(self, digests: dict[str, str]) -> str:
        return combine(digests["lengths.npy"])

    def open(self, folder: Path) -> LengthsDataset:
        lengths = map_ids(folder / "lengths.npy", self.lines, below=100).tolist()
        return LengthsDataset(name=self.name, checksum=self.checksum, variant=self.variant, lengths=lengths)


def convert(card: Card, layout: Layout, files: dict[str, tuple[Path, ...]], folder: Path) -> LengthsManifest:
    import numpy as np

    lengths = [len(line) for line in files["data"][0].read_text().splitlines()]
    digest = write_column(folder / "lengths.npy", "<i4", np.array(lengths))
    return LengthsManifest(
        **vars(origin_of(card, layout, files)), lines=len(lengths), checksum=combine(digest), notes=[]
    )


HEAD = """
family: lengths
name: {name}
title: Toy
description: A toy.
licence: none
redistribute: true
citation: none
expected: {{num_lines: 2}}
counts_source: this test
"""


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch, make_card: Callable[..., Path]) -> None:
    module = types.ModuleType("lengths_family")
    module.FAMILY = Family(card=LengthsCard, manifest=LengthsManifest, convert=convert, holds_out="no")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lengths_family", module)
    monkeypatch.setitem(FAMILIES, "lengths", "lengths_family")
    make_card("layouts: [{name: plain, data: lines.txt}]\n", head=HEAD)


def test_a_new_family_is_prepared_verified_and_opened(lengths: None, tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "lines.txt").write_text("four\nfifth\n")
    assert prepare_card("toy", given=tmp_path).in_words() == "2 lines"
    dataset = CardConfig(name="toy").build()
    assert isinstance(dataset, LengthsDataset)
    assert (dataset.name, dataset.variant, dataset.lengths) == ("toy", "plain", [4, 5])
    (folder,) = (path.parent for path in data_dir.rglob("manifest.json"))
    assert isinstance(read_manifest(folder), LengthsManifest)
    (folder / "lengths.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"lengths\.npy is damaged.*prepare_dataset\.py toy --force"):
        CardConfig(name="toy").build()


def test_a_new_familys_cards_are_checked(lengths: None, make_card: Callable[..., Path]) -> None:
    assert load_card("toy").size.train == 2
    with pytest.raises(ConfigError, match="toy holds lengths, of which no share is held out"):
        CardConfig(name="toy", valid_share=0.1)
    with pytest.raises(ConfigError, match="holds lengths"):
        compose(["dataset=ptb", "dataset.name=toy"])
    make_card("layouts: [{name: plain}]\n", head=HEAD)
    with pytest.raises(DataError, match=r"layouts\[0\]: key 'data' is missing"):
        load_card("toy")
