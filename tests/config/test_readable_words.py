"""Words that Hydra cannot read get the quotes that it wants; all others stay as they are."""

import pytest

from runner.options.words import readable


@pytest.mark.parametrize(("word", "read"), [
    ("dataset.path=~/data/ä b", "dataset.path='~/data/ä b'"),
    ("dataset.path=it's/a,b (1).csv", r"dataset.path='it\'s/a,b (1).csv'"),
    ("dataset.path=2024", "dataset.path='2024'"),
    ("dataset.columns=user,item,time", "dataset.columns='user,item,time'"),
    ("dataset.separator=,", "dataset.separator=','"),
])  # fmt: skip
def test_text_is_quoted(word: str, read: str) -> None:
    assert readable([word]) == [read]


@pytest.mark.parametrize("word", [
    "dataset.path=null", "dataset.path='x y'", "plugins=[mine", "optimizer.lr=0.1,0.2", "sampler=null", "=1", "a=",
    "dataset.path=${oc.env:HOME}/x", "seed=" + "9" * 5000, "~sampler", "-m", "dataset.user=user id",
])  # fmt: skip
def test_all_else_stays(word: str) -> None:
    assert readable([word]) == [word]


def test_several_paths_are_swept() -> None:
    assert readable(["-m", "dataset.path=a,b"]) == ["-m", "dataset.path=a,b"]
    assert readable(["-m", "dataset.columns=user,item"]) == ["-m", "dataset.columns='user,item'"]
