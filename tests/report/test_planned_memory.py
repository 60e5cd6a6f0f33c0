"""Plans show the memory that each run will take: that of earlier runs like it, a guess, or ? if nothing is known."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.config import compose
from runner.lgd.pairs import bert
from runner.report.numbers.records import RunRecord
from runner.report.plan.plan import plan_table, steps_of
from runner.report.plan.planned_memory import _PROCESS_BYTES, expected_memory
from runner.report.spec.grids import PlannedRun
from runner.training.needs import Sizes, needed_bytes

GIB = 2**30


def planned(results: Path, *words: str) -> PlannedRun:
    config = compose([*words, f"results_dir={results}"])
    return PlannedRun(dataset=config.dataset.name, method="m", seed=config.seed, overrides=(), config=config)


@pytest.mark.parametrize(("words", "sizes"), [
    (["dataset=amazon670k"], Sizes(classes=670_091, features=135_909, rows=490_449)),
    (["dataset=ptb", "model=lstm", "sampler=uniform"], Sizes(classes=10_000, features=0, rows=929_589)),
    (["dataset=synthetic_xc", "dataset.num_classes=5000000"], Sizes(classes=5_000_000, features=5_000, rows=20_000)),
    (
        ["dataset=synthetic_log", "model=sasrec", "dataset.num_items=900000"],
        Sizes(classes=900_000, features=0, rows=5_000),
    ),
], ids=lambda words: words[0] if isinstance(words, list) else "")  # fmt: skip
def test_a_guess_is_what_the_process_and_the_large_parts_take(
    words: list[str], sizes: Sizes, own_data_dir: Path, tmp_path: Path
) -> None:
    run = planned(tmp_path, *words)
    found = expected_memory(run, [])
    size = (_PROCESS_BYTES + sum(needed_bytes(run.config, sizes).values())) / GIB
    assert found.startswith("~")
    assert size <= float(found[1:].partition(" ")[0].replace(",", "")) < size + 0.1 + 1e-9


def test_more_classes_take_more(own_data_dir: Path, tmp_path: Path) -> None:
    few, many = (
        expected_memory(planned(tmp_path, "dataset=synthetic_xc", f"dataset.num_classes={count}"), [])
        for count in (1_000, 9_000_000)
    )
    assert few == "~0.7 GiB"
    assert float(many[1:].partition(" ")[0]) > 5


@pytest.mark.parametrize("words", [
    ["dataset=diabetes", "model=regression"],
    ["dataset=text", "dataset.path=/somewhere", "model=lstm", "sampler=uniform"],
    ["dataset=mrpc", "model=bert"],
])  # fmt: skip
def test_what_is_not_known_is_a_question_mark(
    words: list[str], own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bert, "PACKAGE", "a_package_that_is_not_installed")
    assert expected_memory(planned(tmp_path, *words), []) == "?"


def test_earlier_runs_tell_and_the_plan_shows_it(
    write_run: Callable[..., Path], own_data_dir: Path, tmp_path: Path
) -> None:
    words = ["dataset=synthetic_xc", "sampler=uniform"]
    before, now = planned(tmp_path, *words, "seed=1"), planned(tmp_path, *words, "seed=2")
    folder = write_run(before, [0.4])
    record = RunRecord(folder)
    record.summary["peak_rss_mb"] = 1500.0
    table = plan_table(steps_of([("a", before), ("b", now)], [record]))
    assert table["memory"].tolist() == ["–", "1.5 GiB"]
