"""Comparisons put runs of different samplers side by side, show what differs and print settings exactly."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from runner.compare.__main__ import main
from runner.config import compose
from runner.errors import ConfigError, RunnerError
from runner.report.numbers.comparison import beside_neighbours, chosen, comparison
from runner.report.numbers.records import RunRecord, all_records
from runner.report.numbers.sweep import as_text, differing_keys, exact
from runner.report.spec.grids import PlannedRun

Write = Callable[..., Path]


@pytest.fixture
def runs(results_dir: Path, write_run: Write) -> list[RunRecord]:
    """Write LSH Label with two rates and two seeds, full softmax, and a diverged run of NCE."""

    def made(p1: float, *overrides: str, **more: object) -> None:
        config = compose([*overrides, f"results_dir={results_dir}"])
        write_run(PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config), [p1], **more)

    for rate, p1 in ((0.001, 0.4), (0.003, 0.5)):
        for seed in (0, 1):
            made(p1 + 0.02 * seed, f"optimizer.lr={rate}", f"seed={seed}", seconds=20.0)
    made(0.6, "sampler=full", "epochs=8", seconds=80.0)
    made(0.1, "method=nce", status="diverged")
    return all_records(results_dir)


def test_methods_stand_side_by_side_with_what_differs(runs: list[RunRecord]) -> None:
    table = comparison(runs)
    assert table["method"].tolist() == ["Full softmax", "LSH Label", "LSH Label", "NCE"], "the best first"
    assert table["settings"].tolist()[:3] == [
        "optimizer.lr=0.003 epochs=8", "optimizer.lr=0.003 epochs=4", "optimizer.lr=0.001 epochs=4",
    ]  # fmt: skip
    assert table["quality"].tolist()[:3] == pytest.approx([60, 51, 41])
    assert table["deviation"].tolist()[1:3] == pytest.approx([2**0.5, 2**0.5])
    assert table["seeds"].tolist() == [1, 2, 2, 1]
    assert table["status"].tolist() == ["finished"] * 3 + ["diverged"]
    assert table.iloc[3][["quality", "seconds", "candidates a row"]].isna().all()
    assert table["seconds an epoch"].tolist()[:2] == pytest.approx([80, 20])


def test_a_row_shows_what_tells_it_from_its_neighbours() -> None:
    settings = ["lr=1 epochs=2 cut=[1, 2]", "lr=1 epochs=4 cut=[1, 2]", "lr=1 epochs=4 cut=[1, 3]", ""]
    assert beside_neighbours(settings, most=2) == ["epochs=2 +2", "epochs=4 cut=[1, 2] +1", "lr=1 epochs=4 +1", ""]
    assert beside_neighbours(settings, most=3) == settings, "few settings are shown as they are"


def test_settings_of_another_sampler_do_not_count_as_differences(runs: list[RunRecord]) -> None:
    shown = " ".join(comparison(runs)["settings"])
    assert "sampler." not in shown, "K and L of LSH Label do not differ within the method"


def test_an_option_that_is_newer_than_some_runs_tells_them_apart_only_if_it_was_set(
    results_dir: Path, write_run: Write
) -> None:
    """The first seed was run before the option was there."""
    options = [[], ["seed=1"], ["seed=2", "sampler.hash=dwta"]]
    configs = [compose([*words, f"results_dir={results_dir}"]) for words in options]
    folders = [
        write_run(PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config), [0.4]) for config in configs
    ]
    summary = json.loads((folders[0] / "summary.json").read_text())
    del summary["config"]["sampler"]["hash"]
    (folders[0] / "summary.json").write_text(json.dumps(summary))
    (folders[0] / "config.yaml").write_text(yaml.safe_dump(summary["config"]))
    two, three = ([RunRecord(folder) for folder in some] for some in (folders[:2], folders))
    assert differing_keys(two) == []
    assert comparison(two)["seeds"].tolist() == [2]
    assert differing_keys(three) == ["sampler.hash"]
    shown = comparison(three)
    assert "sampler.hash=dwta" in shown["settings"].tolist()
    alone = [RunRecord(folder) for folder in (folders[0], folders[2])]
    assert differing_keys(alone) == ["sampler.hash"]
    assert comparison(alone)["seeds"].tolist() == [1, 1]


def test_runs_are_chosen_by_name_and_by_setting(runs: list[RunRecord]) -> None:
    assert len(chosen(runs, [], ["sampler=lsh_label", "optimizer.lr=0.001"])) == 2
    assert len(chosen(runs, [], ["optimizer.lr=1e-3"])) == 2
    assert len(chosen(runs, [], ["method=nce"])) == 1
    assert chosen(runs, [runs[0].short_id, str(runs[1].path)], []) == runs[:2]
    assert chosen(runs, [], ["sampler.K=9999"]) == []
    with pytest.raises(ConfigError, match=r"--where optimiser=adam: give KEY=VALUE .*valid"):
        chosen(runs, [], ["optimiser=adam"])
    with pytest.raises(ConfigError, match=r"--where sampler: give KEY=VALUE"):
        chosen(runs, [], ["sampler"])
    with pytest.raises(RunnerError, match=r"no run called 'nothing'"):
        chosen(runs, ["nothing"], [])


def test_the_command_prints_and_writes(
    runs: list[RunRecord], results_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--results-dir", str(results_dir)]
    assert main([*where, "--csv", str(tmp_path / "all.csv")]) == 0
    printed = capsys.readouterr().out
    assert "## wordnet_hypernym" in printed
    assert "test P@1, %" in printed
    assert "51.00 ± 1.41" in printed
    assert "| diverged |" in printed
    assert len(pd.read_csv(tmp_path / "all.csv")) == 4
    assert main([*where, "--where", "seed=7"]) == 2
    assert capsys.readouterr().err == f"error: {results_dir / 'runs'}: no run has these settings\n"
    assert main(["--results-dir", str(tmp_path / "none")]) == 2
    assert "no runs yet" in capsys.readouterr().err


def test_settings_print_exactly() -> None:
    frame = pd.DataFrame({"optimizer.lr": [0.001, 0.003], "P@1": [0.5, 61.234]})
    assert as_text(frame, ["optimizer.lr"]).to_numpy().tolist() == [["0.001", "0.50"], ["0.003", "61.23"]]
    assert [exact(value) for value in (1e-5, 100.0, 1 / 30, True, None, 7, "x")] == [
        "1e-05",
        "100",
        "0.03333333333333333",
        "true",
        "null",
        "7",
        "x",
    ]


def test_a_run_without_a_method_has_the_name_of_its_sampler(runs: list[RunRecord]) -> None:
    assert {record.method_name for record in runs} == {"lsh_label", "full", "nce"}
    assert len(chosen(runs, [], ["method=lsh_label"])) == 4
