"""Cards of sets that are too large to test with find their files in archives of the published names and layout.

The names stand here a second time, as the publishers spell them. The archives hold a few rows, whose first lines state
the published dimensions, so that only checksums and text8's cuts are other than in the real cards.
"""

import bz2
import fnmatch
import gzip
import io
import itertools
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from runner.data import CardConfig, TextDataset, XmcDataset
from runner.data.shared.cards import load_card
from runner.data.shared.places import CARDS_ROOT, raw_dir
from runner.data.shared.prepare import prepare_card
from runner.errors import DataError

REAL_CARDS = CARDS_ROOT
DIMENSIONS = {
    "amazon670k": (135909, 670091),
    "wiki325k": (1617899, 325056),
    "amazoncat13k": (203882, 13330),
    "delicious200k": (782585, 205443),
    "delicious": (500, 983),
    "odp": (422713, 105033),
    "usps": (256, 10),
}
CUTS = [300_000, 300_020]  # of text8


@dataclass(frozen=True)
class Published:
    """What a publisher offers: files, which may be archives of members, under the names of their downloads."""

    card: str
    layout: str
    files: dict[str, dict[str, bytes]]  # a file that is no archive has one member without a name


def xc(card: str, rows: int) -> bytes:
    """Return text with a header: rows with two labels, the last of which has the largest indices."""
    features, classes = DIMENSIONS[card]
    ids = [(row, row + 1) for row in range(rows - 1)] + [(features - 1, classes - 1)]
    return "".join(
        [f"{rows} {features} {classes}\n", *(f"0,{label} {feature}:0.5\n" for feature, label in ids)]
    ).encode()


def svmlight(card: str, rows: int) -> bytes:
    return "".join(f"{row} 1:0.5 {DIMENSIONS[card][0]}:1\n" for row in range(rows)).encode()


def vw(rows: int) -> bytes:
    return "".join(f"{DIMENSIONS['odp'][1] - row} | 7:1 9:0.5\n" for row in range(rows)).encode()


def digits(rows: int) -> bytes:
    """Return rows of all 256 grey levels behind classes from 10 down; a level of 0 is not written."""
    levels = " ".join(f"{pixel}:{(pixel - 128) / 128:.4g}" for pixel in range(1, 257) if pixel != 128)
    return "".join(f"{10 - row} {levels} \n" for row in range(rows)).encode()


def matrix(rows: int, columns: int) -> bytes:
    file = io.BytesIO()
    entries = (np.ones(rows, np.float32), (np.arange(rows), np.arange(rows)))
    sparse.save_npz(file, sparse.csr_matrix(entries, shape=(rows, columns)))
    return file.getvalue()


def pecos(card: str, name: str) -> dict[str, bytes]:
    """Return the members of an archive of PECOS: raw text, labels, and features in a folder of their own."""
    folder, (features, classes) = f"xmc-base/{name}", DIMENSIONS[card]
    members = {}
    for split, rows in (("trn", 3), ("tst", 2)):
        members[f"{folder}/X.{split}.txt"] = b"a product\n" * rows
        members[f"{folder}/Y.{split}.npz"] = matrix(rows, classes)
        members[f"{folder}/tfidf-attnxml/X.{split}.npz"] = matrix(rows, features)
    return members


def words(number: int) -> list[str]:
    letters = (chr(ord("a") + i) for i in range(26))
    return ["".join(word) for word in itertools.islice(itertools.product(list(letters), repeat=4), number)]


def news() -> dict[str, bytes]:
    """Return the members of One Billion Word: 99 shards that hold its 63,998 frequent words twice, and 50 held out."""
    top, every = "1-billion-word-language-modeling-benchmark-r13output", words(63_998)
    members = {f"{top}/README": b"words\n"}
    for shard in range(1, 100):
        line = " ".join(every[shard - 1 :: 99])
        members[f"{top}/training-monolingual.tokenized.shuffled/news.en-{shard:05}-of-00100"] = f"{line}\n".encode() * 2
    for shard in range(50):
        text = " ".join(every[: shard + 1]) + "\n"
        members[f"{top}/heldout-monolingual.tokenized.shuffled/news.en.heldout-{shard:05}-of-00050"] = text.encode()
    return members


def text8() -> bytes:
    """Return one line that begins with a space; the first 43,999 words stand before both cuts."""
    text = " " + " ".join(words(43_999))
    return (text + " aaaa" * 100_000)[: CUTS[1]].encode() + b" aaab aaac"


def split_lines(first: int, rows: int) -> bytes:
    """Return 1-based line numbers in ten columns, of which the first counts up and the others hold one line."""
    return "".join(" ".join([str(first + row), *["1"] * 9]) + "\n" for row in range(rows)).encode()


def in_folder(card: str, folder: str, train: str, test: str) -> dict[str, bytes]:
    return {f"{folder}/{train}": xc(card, 3), f"{folder}/{test}": xc(card, 2)}


def libsvm_files(card: str, name: str) -> dict[str, dict[str, bytes]]:
    return {
        f"{name}_tfidf_{split}_ver1.svm.bz2": {"": bz2.compress(svmlight(card, rows))}
        for split, rows in (("train", 3), ("test", 2))
    }


CASES = [
    Published(
        "amazon670k",
        "xc-v1",
        {"amazon670k-v1.zip": in_folder("amazon670k", "Amazon", "amazon_train.txt", "amazon_test.txt")},
    ),
    Published(
        "amazon670k",
        "xc-v2-bow",
        {"amazon670k-v2.zip": in_folder("amazon670k", "Amazon-670K.bow", "train.txt", "test.txt")},
    ),
    Published("amazon670k", "pecos-tfidf", {"amazon-670k.tar.gz": pecos("amazon670k", "amazon-670k")}),
    Published(
        "wiki325k",
        "xc",
        {"wiki325k.zip": in_folder("wiki325k", "WikiLSHTC", "wikiLSHTC_train.txt", "wikiLSHTC_test.txt")},
    ),
    Published(
        "amazoncat13k",
        "xc-v1",
        {"amazoncat13k-v1.zip": in_folder("amazoncat13k", "AmazonCat", "amazonCat_train.txt", "amazonCat_test.txt")},
    ),
    Published(
        "amazoncat13k",
        "xc-v2-bow",
        {"amazoncat13k-v2.zip": in_folder("amazoncat13k", "AmazonCat-13K.bow", "train.txt", "test.txt")},
    ),
    Published("amazoncat13k", "pecos-tfidf", {"amazoncat-13k.tar.gz": pecos("amazoncat13k", "amazoncat-13k")}),
    Published("amazoncat13k", "libsvm-ver1-tfidf", libsvm_files("amazoncat13k", "AmazonCat-13K")),
    Published(
        "delicious200k",
        "xc",
        {
            "delicious200k.zip": in_folder(
                "delicious200k", "DeliciousLarge", "deliciousLarge_train.txt", "deliciousLarge_test.txt"
            )
        },
    ),
    Published(
        "delicious",
        "xc-split-1",
        {
            "delicious.zip": {
                "Delicious/Delicious_data.txt": xc("delicious", 5),
                "Delicious/delicious_trSplit.txt": split_lines(1, 3),
                "Delicious/delicious_tstSplit.txt": split_lines(4, 2),
            }
        },
    ),
    Published(
        "odp",
        "vw",
        {
            "odp_train.vw.gz": {"": gzip.compress(vw(3))},
            "odp_test.vw.gz": {"": gzip.compress(vw(2))},
        },
    ),
    Published(
        "usps",
        "libsvm",
        {"usps.bz2": {"": bz2.compress(digits(3))}, "usps.t.bz2": {"": bz2.compress(digits(2))}},
    ),
    Published("text8", "characters-90-5-5", {"text8.zip": {"text8": text8()}}),
    Published("text8", "characters-90-5-5", {"text8.gz": {"": gzip.compress(text8())}}),
    Published(
        "billion_word",
        "r13output",
        {"1-billion-word-language-modeling-benchmark-r13output.tar.gz": news()},
    ),
]


def write(folder: Path, name: str, members: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if "" in members:
        path.write_bytes(members[""])
    elif name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    else:
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def real_card(make_card: Callable[..., Path]) -> Callable[..., None]:
    """Return a function that takes a real card without its checksums, and with changes to its text."""

    def take(name: str, *changes: tuple[str, str]) -> None:
        text = (REAL_CARDS / name / "card.yaml").read_text()
        text = re.sub(r"\b(sha256|md5): [0-9a-f]{32,}", r"\1: null", text)
        for old, new in (("cuts: [90000000, 95000000]", f"cuts: {CUTS}"), *changes):
            text = text.replace(old, new)
        (make_card(name=name) / "card.yaml").write_text(text)
        load_card.cache_clear()

    return take


def test_every_published_file_of_these_cards_is_tested() -> None:
    """Each source of these cards has a case here, and each layout; Delicious also takes a split of one's own."""
    tested: dict[str, set[tuple[str, frozenset[str]]]] = {}
    for case in CASES:
        tested.setdefault(case.card, set()).add((case.layout, frozenset(case.files)))
    for name, cases in tested.items():
        card = load_card(name)
        assert cases == {(source.layout, frozenset(file.name for file in source.files)) for source in card.sources}
        layouts = {layout.name for layout in card.layouts} - {"given-train-test"}
        assert {layout for layout, _ in cases} == layouts


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.card}-{next(iter(case.files))}")
def test_published_archive(case: Published, real_card: Callable[..., None]) -> None:
    """The downloaded files of a source hold its layout, at the published paths, and their rows are read."""
    real_card(case.card)
    card = load_card(case.card)
    (layout,) = (layout for layout in card.layouts if layout.name == case.layout)
    paths = [member or re.sub(r"\.(gz|bz2)$", "", name) for name, members in case.files.items() for member in members]
    for field, wanted in layout.file_names().items():
        found = [path for path in paths if fnmatch.fnmatch("/" + path, "*/" + wanted)]
        assert len(found) == layout.how_many(field), f"{wanted} is not among {paths}"
    raw = raw_dir(case.card)
    for name, members in case.files.items():
        write(raw, name, members)
    manifest = prepare_card(case.card)
    assert manifest.variant == case.layout
    dataset = CardConfig(name=case.card).build()
    if isinstance(dataset, TextDataset):
        assert dataset.num_classes == card.size.classes
        sizes = [len(tokens_T) for tokens_T in (dataset.train_T, dataset.valid_T, dataset.test_T)]
        assert sizes[1:] == {"text8": [4, 2], "billion_word": [3, 2]}[case.card]
        assert sizes[0] >= card.size.classes
    else:
        assert isinstance(dataset, XmcDataset)
        assert (dataset.num_features, dataset.num_classes) == DIMENSIONS[case.card]
        assert (dataset.train.num_rows, dataset.test.num_rows) == (3, 2)


def test_a_wrong_path_in_a_card_is_found(real_card: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    real_card("amazon670k", ("Amazon/amazon_train.txt", "Amazon/amazon_trn.txt"))
    write(raw_dir("amazon670k"), "amazon670k-v1.zip", CASES[0].files["amazon670k-v1.zip"])
    monkeypatch.setattr("runner.data.shared.download.ATTEMPTS", 1)
    monkeypatch.setattr("runner.data.shared.download._fetch_rest", _no_network)
    with pytest.raises(
        DataError, match=r"do not hold Amazon/amazon_trn.txt and Amazon/amazon_test.txt \(layout xc-v1\)"
    ):
        prepare_card("amazon670k")


def _no_network(url: str, part: Path) -> None:
    raise OSError("no network in tests")
