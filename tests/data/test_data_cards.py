"""Every card and every file of conf/dataset is valid, and mistakes in them are named."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from runner.data import KINDS, CardConfig, TextFilesConfig, XmcFilesConfig
from runner.data.rows.card import load_rows_card
from runner.data.shared.cards import card_names, load_card, read_card
from runner.data.shared.files import hash_file
from runner.data.shared.places import CARDS_ROOT
from runner.errors import ConfigError, DataError

CONF = sorted((CARDS_ROOT.parent / "conf" / "dataset").glob("*.yaml"))
# Kinds of data whose dataclasses are registered elsewhere are not tested here.
CONF_KNOWN = [p for p in CONF if yaml.safe_load(p.read_text()).get("kind") in KINDS]
NAMES = [
    "amazon670k",
    "amazon_uniform",
    "amazoncat13k",
    "delicious",
    "delicious200k",
    "linux_calls",
    "odp",
    "usps",
    "wiki325k",
    "wordnet_hypernym",
    "wordnet_related",
]
TEXT_NAMES = ["billion_word", "linux_code", "linux_code_small", "ptb", "ptb_small", "text8", "wikitext2"]
REGRESSION_NAMES = ["keggundirected", "protein", "slice", "ujiindoorloc", "yearmsd"]
PAIRS_NAMES = ["mrpc", "rte"]
SEQUENCES_NAMES = ["amazon_books", "amazon_cds", "gowalla", "ml100k", "ml10m", "ml1m"]
FAMILY = {
    **dict.fromkeys(NAMES, "rows"),
    **dict.fromkeys(TEXT_NAMES, "text"),
    **dict.fromkeys(REGRESSION_NAMES, "regression"),
    **dict.fromkeys(PAIRS_NAMES, "pairs"),
    **dict.fromkeys(SEQUENCES_NAMES, "sequences"),
}


def test_expected_cards_and_configs_exist() -> None:
    assert set(FAMILY) == set(card_names())
    own = {"xmc", "text", "python_topics", "regression", "diabetes", "pairs", "interactions"}
    generated = {"synthetic_xc", "synthetic_regression", "synthetic_log"}
    assert {*FAMILY, *own, *generated} <= {path.stem for path in CONF_KNOWN}


@pytest.mark.parametrize("name", FAMILY)
def test_card_is_valid(name: str) -> None:
    card = load_card(name)
    assert card.name == name
    assert card.citation.startswith("@")
    assert card.licence
    assert card.family == FAMILY[name]
    keys = yaml.safe_load((CARDS_ROOT.parent / "conf" / "dataset" / f"{name}.yaml").read_text())
    assert CardConfig(**keys).family == card.family
    assert card.sources or card.embedded or card.base in card_names() or card.by_hand
    addresses = [url for source in card.sources for file in source.files for url in file.urls]
    assert len(addresses) == len(set(addresses))
    assert all(url.startswith(("http://", "https://", "gdrive:")) for url in addresses)
    for file in card.embedded:
        assert hash_file(CARDS_ROOT / name / file.name) == file.sha256
    if card.embedded:
        assert card.redistribute
        assert (CARDS_ROOT / name / "WORDNET_LICENSE.txt").is_file()


def test_only_redistributable_data_are_in_the_repository() -> None:
    for name in card_names():
        files = {path.name for path in (CARDS_ROOT / name).iterdir() if path.is_file()}
        if not load_card(name).redistribute:
            assert files == {"card.yaml"}


def test_propensity_constants() -> None:
    cards = {name: load_rows_card(name) for name in NAMES}
    constants = {name: (card.propensity_a, card.propensity_b) for name, card in cards.items()}
    assert constants["amazon670k"] == (0.6, 2.6)
    assert constants["wiki325k"] == (0.5, 0.4)
    assert constants["amazoncat13k"] == constants["wordnet_related"] == (0.55, 1.5)


@pytest.mark.parametrize("path", CONF_KNOWN, ids=lambda path: path.stem)
def test_config_builds_its_dataclass(path: Path) -> None:
    keys = yaml.safe_load(path.read_text())
    config = KINDS[keys["kind"]](**keys)
    assert config.kind == keys["kind"]
    if keys["kind"] != "card":  # the YAML lists every key, so that a user sees all of them
        defaults = KINDS[keys["kind"]](name=keys["name"])
        assert config == defaults
        assert keys == dataclasses.asdict(defaults)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("licence:", "license:"), "unknown key 'license'"),
        (lambda text: text.replace("licence: none\n", ""), "key 'licence' is missing"),
        (lambda text: text.replace("num_train: 3", "num_train: three"), "expected: num_train: must be int"),
        (lambda text: text.replace("redistribute: true", "redistribute: 1"), "redistribute: must be bool"),
        (
            lambda text: text.replace("format: xmc", "format: csv"),
            "format: 'csv' is not one of xmc, libsvm, vw, npz",
        ),
        (lambda text: text.replace("format: xmc", "format: npz"), "train_labels and test_labels belong to format npz"),
        (lambda text: text.replace("train: Toy", "train_labels: y, train: Toy"), "belong to format npz"),
        (lambda text: text.replace("feature_start: 0", "feature_start: 2"), "must be 0 or 1"),
        (lambda text: text.replace(", test: Toy/toy_test.txt", ""), "either train and test, or data"),
        (lambda text: text.replace("name: toy\n", "name: other\n"), "must be the folder's name 'toy'"),
        (lambda text: text + "sources: [{layout: x, files: []}]\n", "source layout 'x' is not one of toy"),
        (lambda text: text + "sources: none\n", "sources: must be a list"),
        (lambda text: text + "embedded: [1]\n", r"embedded\[0\]: must be a mapping"),
        (lambda text: text + "derived: {base: a, num_classes: 1, seed: 0}\n", "either layouts or derived"),
        (lambda text: text + "a: [\n", "not YAML"),
        (lambda text: text + "family: texts\n", "family: 'texts' is not one of rows, text, regression"),
        (lambda text: text + "family: text\n", "unknown key 'propensity_a'"),
    ],
)
def test_card_mistakes_are_one_line(make_card: Callable[..., Path], change: Callable[[str], str], message: str) -> None:
    path = make_card() / "card.yaml"
    assert load_card("toy").title == "Toy"
    path.write_text(change(path.read_text()))
    load_card.cache_clear()
    with pytest.raises(DataError, match=message) as caught:
        load_card("toy")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace(", test: Toy/test.txt", ""),
            "give either train, valid and test, or data and two cuts",
        ),
        (lambda text: text.replace(", test:", ", cuts: [1, 2], test:"), "give either train, valid and test, or data"),
        (
            lambda text: text.replace("train: Toy/train.txt, valid:", "data:").replace(", test: Toy/test.txt", ""),
            "two cuts",
        ),
        (
            lambda text: text.replace("train: Toy/train.txt, valid:", "data:").replace(
                "test: Toy/test.txt", "cuts: [2, 2]"
            ),
            "cuts must ascend",
        ),
        (lambda text: text.replace(", test:", ", train_files: 0, test:"), "train_files must be at least 1"),
        (lambda text: text.replace("num_classes: 5", "num_classes: null"), "num_classes: must be int"),
        (lambda text: text + "propensity_a: 0.5\n", "unknown key 'propensity_a'"),
        (
            lambda text: text + "derived: {base: a, train_lines: 1, valid_lines: 1, test_lines: 1}\n",
            "either layouts or derived",
        ),
    ],
)
def test_mistakes_in_text_cards_are_one_line(
    make_text_card: Callable[..., Path], change: Callable[[str], str], message: str
) -> None:
    path = make_text_card() / "card.yaml"
    assert load_card("toy").size.classes == 5
    path.write_text(change(path.read_text()))
    load_card.cache_clear()
    with pytest.raises(DataError, match=message) as caught:
        load_card("toy")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_rows_are_asked_of_a_card_of_rows() -> None:
    with pytest.raises(ConfigError, match="ptb holds text, not sparse rows"):
        load_rows_card("ptb")


def test_config_mistakes() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.name: no card 'amazon'; choose one of amazon670k, "):
        CardConfig(name="amazon")
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        XmcFilesConfig().build()
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        XmcFilesConfig(path="/nowhere/at/all").build()
    with pytest.raises(
        ConfigError, match=r"dataset\.path: give the folder that holds train.txt, valid.txt and test.txt"
    ):
        TextFilesConfig().build()
    with pytest.raises(ConfigError, match=r"dataset\.path: /nowhere/at/all is not a folder"):
        TextFilesConfig(path="/nowhere/at/all").build()
    with pytest.raises(ConfigError, match=r"dataset\.most_types must be null .* or lie in \[3, 2147483647\]"):
        TextFilesConfig(most_types=2)


@pytest.mark.parametrize("content", [b"\x80", b"name: 2001-99-99\n", b"name: \xff\xfe\n"])
def test_cards_that_are_no_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_bytes(content)
    with pytest.raises(DataError, match=r"card\.yaml: not YAML: ") as caught:
        read_card(tmp_path / "card.yaml")
    assert "\n" not in str(caught.value)
