"""Fixtures of the data tests: prepared data are written to a temporary folder, never beside the cards."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.data.shared import places
from runner.data.shared.cards import load_card


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "datasets"
    monkeypatch.setenv("DATASETS_DIR", str(folder))
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    return folder


CARD = """
name: {name}
title: Toy
description: A toy.
licence: none
redistribute: true
citation: none
propensity_a: 0.5
propensity_b: 0.4
expected:
  {{num_features: 6, num_classes: 4, num_train: 3, num_test: 2, labels_per_row: 1.0, features_per_row: 2.0}}
counts_source: this test
"""
TEXT_CARD = """
family: text
name: {name}
title: Toy
description: A toy.
licence: none
redistribute: true
citation: none
expected: {{num_classes: 5, train_tokens: 9, valid_tokens: null, test_tokens: 3}}
counts_source: this test
"""
TEXT_BODY = """
layouts:
  - {name: toy, train: Toy/train.txt, valid: Toy/valid.txt, test: Toy/test.txt}
"""
XMC_BODY = """
layouts:
  - {name: toy, format: xmc, feature_start: 0, label_start: 0,
     train: Toy/toy_train.txt, test: Toy/toy_test.txt}
"""


@pytest.fixture
def make_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that writes <name>/card.yaml to a temporary folder of cards and returns the card's folder."""
    root = tmp_path / "cards"
    monkeypatch.setattr(places, "CARDS_ROOT", root)

    def make(body: str = XMC_BODY, name: str = "toy", head: str = CARD) -> Path:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "card.yaml").write_text(head.format(name=name) + body)
        load_card.cache_clear()
        return folder

    return make


@pytest.fixture
def make_text_card(make_card: Callable[..., Path]) -> Callable[..., Path]:
    """Return the function of make_card for a text, whose card states 5 types, 9 training tokens and 3 test tokens."""

    def make(body: str = TEXT_BODY, name: str = "toy") -> Path:
        return make_card(body, name, head=TEXT_CARD)

    return make


@pytest.fixture(autouse=True)
def _forget_cards() -> object:
    yield
    load_card.cache_clear()
