"""Fixtures write small table files, and run folders like those of real runs, without running anything."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import NUMBERS
from runner.config import compose_one_of_many
from runner.machine.clock import BUILD, STAGES
from runner.report.spec.grids import Grid, PlannedRun, expand
from runner.report.spec.tables import TableSpec, load_table
from runner.tasks import Classification
from runner.training.run_folder import description

# Amazon-670K has published numbers (full: epochs 2 and 6, P@1 37.5), the WordNet set is a stand-in.
GRID = """
paper: lns
fixed: [epochs=4, evaluation.every_epochs=1]
baseline: full
methods:
  - {name: full, label: Full softmax, overrides: [sampler=full]}
  - {name: lsh_label, label: LSH Label, overrides: [sampler=lsh_label]}
  - {name: nce, label: NCE, overrides: [sampler=log_uniform, loss=nce]}
datasets:
  - {name: amazon670k, label: Amazon-670K, published: amazon670k}
  - {name: wordnet_hypernym, label: WordNet hypernyms}
profiles:
  small: {seeds: [0], datasets: [{name: wordnet_hypernym}]}
  medium: {seeds: [0, 1], datasets: [{name: wordnet_hypernym}]}
  paper: {seeds: [0], datasets: [{name: amazon670k}]}
"""
P_AT_1 = "{name: P@1, metric: test/p@1}"
CONVERGENCE = f"kind: numbers\ncolumns: [{{name: epoch_to_50pct}}, {{name: epoch_to_90pct}}, {P_AT_1}]\n"
SPEED = f"kind: numbers\ncolumns: [{{name: epoch_speedup_vs_full}}, {P_AT_1}]\nwith_costs: true\n"
TABLE2 = f"""
title: "Toy Table 2"
{CONVERGENCE}
grid: toy
published: {{csv: lns.csv, table: table2}}
notes: [A note.]
"""


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide the data that happen to be prepared on this machine."""
    folder = tmp_path / "prepared"
    monkeypatch.setenv("DATASETS_DIR", str(folder))
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    return folder


@pytest.fixture
def results_dir(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def write_tables(tmp_path: Path) -> Callable[..., Path]:
    """Write NAME.yaml files and the grid ``toy`` they share; returns the folder."""

    def write(*, grid: str = GRID, **tables: str) -> Path:
        folder = tmp_path / "table"
        (folder / "grid").mkdir(parents=True, exist_ok=True)
        (folder / "grid" / "toy.yaml").write_text(grid)
        for name, text in (tables or {"toy2": TABLE2}).items():
            (folder / f"{name}.yaml").write_text(text)
        return folder

    return write


@pytest.fixture
def toy(write_tables: Callable[..., Path]) -> dict[str, TableSpec]:
    """Load the toy grid as a table of every kind."""
    figure = "title: Toy\ngrid: toy\nkind: {}\n"
    table3 = TABLE2.replace(CONVERGENCE, SPEED).replace("table: table2", "table: table3")
    files = {"distribution": "toyd", "curves": "toyc", "frequency": "toyf"}
    tables = {name: figure.format(kind) for kind, name in files.items()}
    folder = write_tables(toy2=TABLE2, toy3=table3, **tables)
    files |= {"convergence": "toy2", "speed": "toy3"}
    return {kind: load_table(name, folder) for kind, name in files.items()}


@pytest.fixture
def planned(results_dir: Path) -> Callable[..., list[PlannedRun]]:
    def plan(grid: Grid, profile: str) -> list[PlannedRun]:
        return expand(grid, profile, results_dir)

    return plan


@pytest.fixture
def pick() -> Callable[..., PlannedRun]:
    """Return one of the planned runs, by method and seed."""

    def choose(runs: Sequence[PlannedRun], method: str, seed: int = 0) -> PlannedRun:
        return next(run for run in runs if run.method == method and run.seed == seed)

    return choose


@pytest.fixture
def grid_text() -> str:
    return GRID


@pytest.fixture
def write_run() -> Callable[..., Path]:
    """Write the folder of a planned run; ``curve`` is P@1 on the test subset as a fraction, one value per epoch."""

    def write(
        run: PlannedRun,
        curve: Sequence[float],
        *,
        status: str = "finished",
        seconds: float = 40.0,
        p1: float | None = None,
        cpu: str = "Toy CPU",
        **more: Any,
    ) -> Path:
        folder = run.config.run_dir
        folder.mkdir(parents=True, exist_ok=True)
        epochs = len(curve)
        summary: dict[str, Any] = {
            "status": status,
            **description(run.config),
            **more,
        }
        if status == "finished":
            summary |= {
                "metrics": {"test/p@1": curve[-1] if p1 is None else p1, "test/p@5": 0.25},
                "epochs": float(epochs),
                "train_seconds": seconds,
                "stage_seconds": dict.fromkeys((BUILD, *STAGES), seconds / 8),
                "candidates_per_row": 1000.0,
                "peak_rss_mb": 512.4,
                **Classification.about_measures(run.config),
                "units_per_second": 500 * epochs / seconds,
                "dataset": {
                    "name": run.dataset, "num_classes": 50, "num_train": 500,
                    "label_frequency": {"rank": [1, 5, 20, 50], "count": [90, 30, 4, 0]},
                },
            }  # fmt: skip
        provenance = {
            "commit": "0123456789abcdef", "patch": None, "started": "2026-01-02T03:04:05+0000",
            "cpu": cpu, "threads": 2, "cores": 2, "numbers": NUMBERS,
        }  # fmt: skip
        group = {"rank_end": [1, 5, 50], "truth": [0.5, 0.3, 0.2], "proposal": [0.1, 0.0, 0.9]}
        observed = [{"kind": "distribution", "step": 0, "epoch": 0.0, **group}]
        observed += [
            {
                "kind": "evaluation", "step": 10 * epoch, "epoch": float(epoch),
                "train_seconds": seconds * epoch / epochs, "test_subset/p@1": value,
            }
            for epoch, value in enumerate(curve, start=1)
        ]  # fmt: skip
        observed.append({"kind": "distribution", "step": 10 * epochs, "epoch": float(epochs), **group})
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "config.yaml").write_text(yaml.safe_dump(summary["config"]))
        (folder / "provenance.json").write_text(json.dumps(provenance))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in observed))
        return folder

    return write


@pytest.fixture
def swept(results_dir: Path, write_run: Callable[..., Path]) -> Path:
    """Write runs of K x L with two seeds each and different thread counts, and one run of another method."""
    for (k, tables), p1 in {(4, 10): 0.40, (4, 20): 0.50, (10, 10): 0.55, (10, 20): 0.60}.items():
        for seed in (0, 1):
            overrides = [
                f"sampler.K={k}",
                f"sampler.L={tables}",
                f"seed={seed}",
                f"hardware.threads={1 + seed}",
            ]
            config = dataclasses.replace(compose_one_of_many(tuple(overrides)), results_dir=str(results_dir))
            run = PlannedRun(dataset="d", method="lsh_label", seed=seed, overrides=(), config=config)
            write_run(run, [p1], p1=p1 + 0.01 * seed, seconds=10 * k)
    other = dataclasses.replace(compose_one_of_many(("method=nce",)), results_dir=str(results_dir))
    write_run(PlannedRun(dataset="d", method="nce", seed=0, overrides=(), config=other), [0.5])
    return results_dir
