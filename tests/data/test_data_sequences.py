"""Cards of logs: the published layouts in small, the filters that the cards state, damaged files, and the real logs."""

import gzip
import itertools
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.config import compose
from runner.data import CardConfig, SequencesDataset
from runner.data.sequences.card import SequencesCard
from runner.data.shared.cards import load_card
from runner.data.shared.places import prepared_dir
from runner.data.shared.prepare import prepare_card
from runner.errors import ConfigError, DataError, DataNotPrepared

MIRROR = os.environ.get("DATA_MIRROR")  # read here, because the fixtures remove it
PROTOCOL = {  # least rating, least events of a user and of an item, repeats
    "ml10m": (3.0, 10, 10, "all"),
    "gowalla": (None, 10, 10, "all"),
    "amazon_books": (None, 15, 15, "all"),
    "ml1m": (None, 10, 10, "all"),
    "ml100k": (None, 10, 10, "all"),
    "amazon_cds": (None, 1, 1, "all"),
}


def sequences_of(dataset: object) -> list[list[str]]:
    assert isinstance(dataset, SequencesDataset)
    names = [dataset.item_names[number] for number in dataset.items_E]
    return [names[a:b] for a, b in zip(dataset.indptr_U1[:-1], dataset.indptr_U1[1:], strict=True)]


def square(row: str, count: int = 10) -> str:
    """Return rows in which each of so many users has each of as many items, enough for a card's filters."""
    pairs = itertools.product(range(count), repeat=2)
    return "".join(row.format(user=user, item=item, time=100 * user + item) for user, item in pairs)


@pytest.mark.parametrize("name", PROTOCOL)
def test_cards_state_the_protocols(name: str) -> None:
    card = load_card(name)
    assert isinstance(card, SequencesCard)
    assert (card.min_rating, card.min_user, card.min_item, card.repeats) == PROTOCOL[name]
    assert card.size.unit == "events"
    assert card.size.train == card.expected.num_events


# ---- published layouts ----


@pytest.mark.parametrize(("name", "inside"), [("ml1m", "ml-1m/ratings.dat"), ("ml10m", "ml-10M100K/ratings.dat")])
def test_movielens_with_double_colons_in_its_archive(
    name: str, inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ml10m leaves out ratings below 3: here one of user 77, who has nine others, which are too few."""
    monkeypatch.setattr("runner.data.shared.prepare.checksum_problem", lambda path, file: None)
    rows = square("{user}::{item}::3::{time}\n")
    rows += "".join(f"77::{item}::{2.5 if item == 9 else 4.5}::99{item}\n" for item in range(10))
    with zipfile.ZipFile(tmp_path / f"{load_card(name).sources[0].files[0].name}", "w") as archive:
        archive.writestr(inside, rows)
        archive.writestr(inside.replace("ratings", "movies"), b"1::caf\xe9::Drama\n")
    manifest = prepare_card(name, given=tmp_path)
    assert manifest.variant == "grouplens"
    users = sequences_of(CardConfig(name=name).build())
    assert len(users) == (10 if name == "ml10m" else 11)
    assert users[0] == [str(item) for item in range(10)]


def test_movielens_100k_in_any_order(tmp_path: Path) -> None:
    rows = square("{user}\t{item}\t1\t{time}\n").splitlines(keepends=True)
    given = tmp_path / "ml100k"
    given.mkdir()
    (given / "u.data").write_text("".join(rows[::-1]) + "50\t1\t5\t3\n3\t60\t5\t4\n")
    manifest = prepare_card("ml100k", given=tmp_path)
    assert manifest.in_words() == "100 events of 10 users, 10 classes"
    assert manifest.notes == [
        "num_users is 10, the card expects 943",
        "num_items is 10, the card expects 1152",
        "num_events is 100, the card expects 97953",
    ]
    dataset = CardConfig(name="ml100k", split="last_item").build()
    assert isinstance(dataset, SequencesDataset)
    assert (dataset.valid_end_U - dataset.train_end_U).tolist() == [1] * 10
    assert sequences_of(dataset) == [[str(item) for item in range(10)]] * 10
    assert dataset.item_names == tuple(map(str, range(10)))


def test_gowalla_has_the_newest_first_and_repeats(tmp_path: Path) -> None:
    """Visits of the same place count, for the user and for the place; user 8 has one visit."""
    visits = [f"7\t2010-{month}-19T23:55:27Z\t30.23\t-97.79\t{month % 2}\n" for month in range(10, 13)] * 10
    once = "8\t2010-10-01T00:00:00Z\t1\t2\t1\n"
    with gzip.open(tmp_path / "loc-gowalla_totalCheckins.txt.gz", "wt") as file:
        file.write("".join(sorted(visits, reverse=True)) + once)
    manifest = prepare_card("gowalla", given=tmp_path)
    assert manifest.variant == "snap"
    assert sequences_of(CardConfig(name="gowalla").build()) == [["0"] * 10 + ["1"] * 10 + ["0"] * 10]


def test_amazon_books_is_csv_without_a_header(tmp_path: Path) -> None:
    rows = square("A{user},00{item},1.0,{time}\n", 15)
    (tmp_path / "ratings_Books.csv").write_text(rows + 'B"1,001,5.0,2\n')  # a quote is a character
    prepare_card("amazon_books", given=tmp_path)
    assert sequences_of(CardConfig(name="amazon_books").build()) == [[f"00{item}" for item in range(15)]] * 15


def test_amazon_cds_has_a_user_in_each_line(tmp_path: Path) -> None:
    (tmp_path / "sequences.txt").write_text("1 2 2\n\n30\n4 2\n")
    manifest = prepare_card("amazon_cds", given=tmp_path)
    assert manifest.in_words() == "6 events of 3 users, 4 classes"
    dataset = CardConfig(name="amazon_cds").build()
    assert sequences_of(dataset) == [["1", "2", "2"], ["30"], ["4", "2"]]
    assert isinstance(dataset, SequencesDataset)
    assert dataset.items_E.tolist() == [0, 1, 1, 2, 3, 1]


def test_a_card_without_an_address_says_how_to_get_it() -> None:
    with pytest.raises(DataError, match=r"amazon_cds: no source is known\. By hand: .*CDs_item_sequences\.pkl"):
        prepare_card("amazon_cds")


@pytest.mark.parametrize(("name", "file", "text", "says"), [
    ("ml100k", "u.data", "1\t2\t3\n", r"u\.data: line 1: 3 columns, but column 4 is used"),
    ("ml100k", "u.data", "1\t2\t3\t4\n1\t2\t3\n", "line 2: 3 columns, but the first line has 4"),
    ("ml100k", "u.data", "1\t2\t3\t4\n1\t\t3\t4\n", r"line 2: column 2 \(item\) is empty"),
    ("ml100k", "u.data", "1\t2\t3\t4\n", "no event is left: with min_user=10 and min_item=10 none of 1 events"),
    ("ml1m", "ratings.dat", "1::2::3::4\n\n1::2::3::x\n", r"line 3: column 4 \(time\): 'x' is not a number"),
    ("ml10m", "ratings.dat", "1::2::3::4\n1::2::x::4\n", r"line 2: column 3 \(rating\): 'x' is not a number; min_rat"),
    ("ml10m", "ratings.dat", "1::2::2.5::4\n", "all 1 ratings are below min_rating=3"),
    ("gowalla", "loc-gowalla_totalCheckins.txt", "1\tnow\t1\t2\t3\n", r"line 1: column 2 \(time\): 'now' is not a num"),
    ("amazon_cds", "sequences.txt", "\n", "the file is empty"),
    ("amazon_cds", "sequences.txt", b"1\n\xff\n", "line 2: byte 0xff is not UTF-8"),
    ("ml100k", "u.dat", "1\t2\t3\t4\n", r"holds no files of ml100k; wanted ml-100k/u\.data"),
])  # fmt: skip
def test_mistakes_are_one_line(name: str, file: str, text: str | bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=says) as caught:
        prepare_card(name, given=tmp_path)
    assert "\n" not in str(caught.value)
    assert not prepared_dir(name).exists(), "nothing half-written remains"


def test_a_card_that_is_not_prepared() -> None:
    with pytest.raises(DataNotPrepared, match=r"ml10m is not prepared: run `python scripts/prepare_dataset\.py ml10m`"):
        CardConfig(name="ml10m").build()


# ---- settings ----


@pytest.mark.parametrize(("name", "keys", "says"), [
    ("ml100k", {"valid_share": 0.1}, r"dataset\.valid_share: dataset=ml100k holds sequences, of which no share"),
    ("ml100k", {"threshold": 1.0}, r"dataset\.threshold: dataset=ml100k holds sequences"),
    ("ptb", {"split": "last_item"}, r"dataset\.split: dataset=ptb holds text, .*leave it at ratio"),
])  # fmt: skip
def test_settings_of_other_families(name: str, keys: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        CardConfig(name=name, **keys)


def test_the_split_is_part_of_a_run_unless_it_is_the_usual_one() -> None:
    usual = compose(["dataset=ml100k", "model=sasrec"])
    other = compose(["dataset=ml100k", "model=sasrec", "dataset.split=last_item"])
    assert usual.as_dict()["dataset"]["split"] == "ratio"
    assert other.as_dict()["dataset"]["split"] == "last_item"
    assert usual.run_id != other.run_id
    with pytest.raises(ConfigError, match=r"dataset\.split: expected one of ratio, last_item, got 'random'"):
        compose(["dataset=ml100k", "model=sasrec", "dataset.split=random"])


CARD = """
family: sequences
name: {name}
title: Toy
description: A toy.
licence: none
redistribute: true
citation: none
expected: {{num_users: 2, num_items: 3, num_events: null}}
counts_source: this test
min_rating: 2.0
"""
LAYOUT = 'layouts:\n  - {name: toy, data: a.csv, separator: ",", header: true, user: u, item: i, time: t, rating: r}\n'


def test_a_layout_with_a_header(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card(LAYOUT, head=CARD)
    (tmp_path / "a.csv").write_text('t,u,r,i\n3,x,5,c\n1,x,2,a\n2,x,1.5,b\n0,y,2,"b"\n')
    assert prepare_card("toy", given=tmp_path).notes == []
    assert sequences_of(CardConfig(name="toy").build()) == [['"b"'], ["a", "c"]]


@pytest.mark.parametrize(("old", "new", "says"), [
    ("header: true", "header: false", "columns have names if there is a header, otherwise numbers"),
    ("user: u", "user: 0", "columns have names if there is a header, otherwise numbers"),
    ("user: u, item: i, time: t, rating: r", "user: 0, item: 1, time: 2, rating: 3", "columns have names if"),
    ("user: u", "user: i", "must be different columns"),
    ("user: u, ", "", "give user, item and time, or users_in_lines"),
    ('separator: ","', "users_in_lines: true", "users_in_lines leaves no use for user, item, time and rating"),
    ('separator: ","', 'separator: ""', "separator must be one character or several"),
    (", rating: r", "", "min_rating needs the column rating in every layout"),
    ("min_rating: 2.0", "min_rating: .nan", "min_rating must be null or a finite number"),
    ("min_rating: 2.0", "min_user: 0", "min_user must lie in"),
    ("min_rating: 2.0", "repeats: none", "repeats: 'none' is not one of all, first"),
    ("num_users: 2, ", "", "key 'num_users' is missing"),
    (LAYOUT, "", "key 'layouts' is missing"),
])  # fmt: skip
def test_mistakes_in_a_card_are_one_line(make_card: Callable[..., Path], old: str, new: str, says: str) -> None:
    path = make_card(LAYOUT, head=CARD) / "card.yaml"
    assert load_card("toy").size.classes == 3
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    load_card.cache_clear()
    with pytest.raises(DataError, match=says) as caught:
        load_card("toy")
    assert "\n" not in str(caught.value)


# ---- the real logs, where they are at hand ----


@pytest.mark.parametrize(("name", "least"), [("ml100k", 10), ("amazon_cds", 1)])
def test_real_logs(name: str, least: int) -> None:
    if MIRROR is None or not (Path(MIRROR) / name).is_dir():
        pytest.skip(f"DATA_MIRROR names no folder with {name}")
    manifest = prepare_card(name, given=Path(MIRROR))
    assert manifest.notes == []
    dataset = CardConfig(name=name).build()
    assert isinstance(dataset, SequencesDataset)
    counts = np.bincount(dataset.items_E, minlength=dataset.num_classes)
    assert counts.min() == least
    assert np.diff(dataset.indptr_U1).min() >= 10
