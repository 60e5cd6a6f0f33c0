"""However a path is spelt, it is the same run and the same prepared data."""

import os
from pathlib import Path

import pytest

from runner.config import compose
from runner.errors import ConfigError


@pytest.fixture
def spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Spellings of one folder, from a current folder beside it."""
    place = tmp_path / "home" / "data"
    place.mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(place)
    (tmp_path / "links").symlink_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return [
        str(place), f"{place}/", f"{place}//.", f"{tmp_path}/here/../home/data", "../home/data", "./../home/data/",
        "~/data", "../link", f"{tmp_path}/link/", "../links/data", "../links/../home/data",
    ]  # fmt: skip


@pytest.mark.parametrize(("words", "key", "file"), [
    (["dataset=xmc"], "dataset.path", ""),
    (["dataset=text"], "dataset.path", ""),
    (["dataset=regression"], "dataset.path", "/a.csv"),
    (["dataset=regression", "dataset.path=/tmp/x.csv"], "dataset.test_path", "/a.csv"),
    (["dataset=pairs"], "dataset.path", "/a.tsv"),
    (["dataset=interactions"], "dataset.path", "/a.csv"),
    (["dataset=pairs", "dataset.path=/tmp/x.csv"], "model.checkpoint", ""),
])  # fmt: skip
def test_every_spelling_is_the_same_run(words: list[str], key: str, file: str, spellings: list[str]) -> None:
    configs = [
        compose([*words, f"{key}='{spelling.rstrip('/') + file if file else spelling}'"]) for spelling in spellings
    ]
    assert len({config.run_id for config in configs}) == 1
    group, name = key.split(".")
    assert {getattr(getattr(config, group), name) for config in configs} == {spellings[0] + file}


def test_a_file_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").symlink_to("a.csv")
    one, other = (compose(["dataset=regression", f"dataset.path={tmp_path}/{name}.csv"]) for name in "ab")
    assert one.run_id == other.run_id


def test_other_paths_are_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = set()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        ids.add(compose(["dataset=xmc", "dataset.path=data"]).run_id)
    assert len(ids) == 2


def test_the_name_of_a_checkpoint_stays() -> None:
    config = compose(["dataset=pairs", "dataset.path=/tmp/x.csv", "model.checkpoint=prajjwal1/bert-tiny"])
    assert config.model.checkpoint == "prajjwal1/bert-tiny"


def test_a_link_to_itself(tmp_path: Path) -> None:
    os.symlink(tmp_path / "a", tmp_path / "a")
    with pytest.raises(ConfigError, match=r"dataset\.path: .* (cannot be followed|is not a folder)") as caught:
        compose(["dataset=xmc", f"dataset.path={tmp_path}/a"]).dataset.build()
    assert "\n" not in str(caught.value)
