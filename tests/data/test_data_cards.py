"""Cards and conf/dataset: every one valid, and mistakes in them named."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from runner.data import KINDS, CardConfig, SyntheticXcConfig, XmcFilesConfig
from runner.data.card import card_names, load_card
from runner.data.download import hash_file
from runner.data.places import CARDS_ROOT
from runner.errors import ConfigError, DataError

CONF = sorted((CARDS_ROOT.parent / "conf" / "dataset").glob("*.yaml"))
# kinds of data that have dataclasses elsewhere are not this file's business
CONF_XC = [p for p in CONF if yaml.safe_load(p.read_text()).get("kind") in KINDS]
NAMES = [
    "amazon670k",
    "amazon_uniform",
    "amazoncat13k",
    "delicious",
    "delicious200k",
    "odp",
    "wiki325k",
    "wordnet_hypernym",
    "wordnet_related",
]


def test_expected_cards_and_configs_exist() -> None:
    assert set(NAMES) <= set(card_names())
    assert {*NAMES, "xmc", "synthetic_xc"} <= {path.stem for path in CONF_XC}


@pytest.mark.parametrize("name", NAMES)
def test_card_is_valid(name: str) -> None:
    card = load_card(name)
    assert card.name == name
    assert card.citation.startswith("@")
    assert card.licence
    assert card.sources or card.embedded or card.derived
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
    constants = {name: (load_card(name).propensity_a, load_card(name).propensity_b) for name in NAMES}
    assert constants["amazon670k"] == (0.6, 2.6)
    assert constants["wiki325k"] == (0.5, 0.4)
    assert constants["amazoncat13k"] == constants["wordnet_related"] == (0.55, 1.5)


@pytest.mark.parametrize("path", CONF_XC, ids=lambda path: path.stem)
def test_config_builds_its_dataclass(path: Path) -> None:
    keys = yaml.safe_load(path.read_text())
    config = KINDS[keys["kind"]](**keys)
    assert config.kind == keys["kind"]
    if keys["kind"] == "synthetic_xc":  # the YAML lists every key, so that a user sees what there is
        assert config == SyntheticXcConfig()
        assert set(keys) == set(SyntheticXcConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("licence:", "license:"), "unknown key 'license'"),
        (lambda text: text.replace("licence: none\n", ""), "key 'licence' is missing"),
        (lambda text: text.replace("num_train: 3", "num_train: three"), "expected: num_train: must be int"),
        (lambda text: text.replace("redistribute: true", "redistribute: 1"), "redistribute: must be bool"),
        (
            lambda text: text.replace("format: xmc", "format: csv"),
            "format: 'csv' is not one of xmc, libsvm, vw",
        ),
        (lambda text: text.replace("feature_start: 0", "feature_start: 2"), "must be 0 or 1"),
        (lambda text: text.replace(", test: Toy/toy_test.txt", ""), "either train and test, or data"),
        (lambda text: text.replace("name: toy\n", "name: other\n"), "must be the folder's name 'toy'"),
        (lambda text: text + "sources: [{layout: x, files: []}]\n", "source layout 'x' is not one of toy"),
        (lambda text: text + "sources: none\n", "sources: must be a list"),
        (lambda text: text + "embedded: [1]\n", r"embedded\[0\]: must be a mapping"),
        (lambda text: text + "derived: {base: a, num_classes: 1, seed: 0}\n", "either layouts or derived"),
        (lambda text: text + "a: [\n", "not YAML"),
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


def test_config_mistakes() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.name: no card 'amazon'; choose one of amazon670k, "):
        CardConfig(name="amazon")
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        XmcFilesConfig().build()
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        XmcFilesConfig(path="/nowhere/at/all").build()
