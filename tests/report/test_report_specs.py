"""All table files expand in every profile and have the paper's settings; mistakes in them give one-line errors."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import planned_runs
import pytest

from runner.bench.settings import settings_of
from runner.config import compose
from runner.errors import ConfigError
from runner.report.numbers.cells import published_numbers
from runner.report.plan.plan import plan
from runner.report.spec.grids import PROFILES, Grid, expand, grid_names, load_grid
from runner.report.spec.tables import PUBLISHED, TABLES, bench_names, load_bench, load_table, table_names

DATASETS = ("amazon670k", "wiki325k", "odp", "amazon_uniform")
METHODS = ("full", "lsh_embedding", "lsh_label", "topk", "unigram", "log_uniform", "nce")


def lns() -> Grid:
    return load_table("lns_table2").grid


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / "lns.csv")


# ---------------------------------------------------------------- published numbers


def test_published_csv_holds_every_cell_of_the_printed_tables(published: pd.DataFrame) -> None:
    expected = {("table1", d, "", m) for d in DATASETS for m in ("features", "labels", "train", "test")}
    expected |= {
        ("table2", d, method, m)
        for d in DATASETS
        for method in METHODS
        for m in ("epoch_to_50pct", "epoch_to_90pct", "P@1")
    }
    expected |= {
        ("table3", d, method, m)
        for d in DATASETS
        for method in METHODS
        for m in ("epoch_speedup_vs_full", "P@1", "P@5")
    }
    keys = published[["table", "dataset", "method", "metric"]].fillna("").itertuples(index=False, name=None)
    found = list(keys)
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_published_blanks_are_exactly_the_printed_fails(published: pd.DataFrame) -> None:
    blank = published[published["value"].isna()]
    assert set(blank["note"]) == {"Fail"}
    assert set(zip(blank["dataset"], blank["method"], strict=True)) == {
        ("amazon670k", "log_uniform"), ("amazon670k", "nce"), ("wiki325k", "nce"),
        ("amazon_uniform", "unigram"), ("amazon_uniform", "log_uniform"), ("amazon_uniform", "nce"),
    }  # fmt: skip
    assert set(blank["metric"]) == {"epoch_to_90pct"}


def test_p_at_1_agrees_between_tables_2_and_3(published: pd.DataFrame) -> None:
    p1 = published[published["metric"] == "P@1"].pivot(index=["dataset", "method"], columns="table", values="value")
    assert (p1["table2"] == p1["table3"]).all()


# ---------------------------------------------------------------- expansion


def test_every_grid_loads_and_one_expands_as_recorded(tmp_path: Path) -> None:
    """The quick half of the next test: composing all runs takes long."""
    grids = {name: load_grid(name, TABLES) for name in grid_names(TABLES)}
    recorded = planned_runs.read()
    assert {name.partition("/")[0] for name in recorded} == set(grids), planned_runs.COMMAND
    assert planned_runs.digest(grids["lns"], "small", tmp_path) == recorded["lns/small"], planned_runs.COMMAND


@pytest.mark.slow
@pytest.mark.plans
@pytest.mark.parametrize("profile", PROFILES)
def test_every_table_expands_in_every_profile(profile: str, tmp_path: Path) -> None:
    for name, recorded in planned_runs.read().items():
        if name.endswith(f"/{profile}"):
            found = planned_runs.digest(load_grid(name.partition("/")[0], TABLES), profile, tmp_path)
            assert found == recorded, f"{name}: other runs than recorded; if meant: {planned_runs.COMMAND}"
    assert {name.partition("/")[0] for name in planned_runs.read()} == set(grid_names(TABLES)), planned_runs.COMMAND
    for grid in dict.fromkeys(load_table(name).grid for name in table_names()):
        runs = expand(grid, profile, tmp_path)
        chosen = grid.profile(profile)
        assert len({run.run_id for run in runs}) == len(runs)
        made = 0
        for item in chosen.datasets:
            sweep = item.sweep or chosen.sweep
            points = {method.name: len(grid.points(method.name, sweep)) for method in grid.methods}
            settings = sum(points.values()) - sum(points[name] for name in item.without)
            settings += sum(len(also.values) * len(also.methods) for also in item.also)
            made += settings * len(item.seeds or chosen.seeds)
        assert len(runs) == grid.num_runs(profile) == made
        for run in runs:
            column = grid.dataset(run.dataset)
            assert run.config.dataset.name == (column.dataset or column.name)
            assert run.config.seed == run.seed


def test_every_table_with_published_numbers_finds_them() -> None:
    for name in table_names():
        source = load_table(name).published
        if source is not None:
            assert len(published_numbers(source)) > 0, name


def test_figures_cause_no_run_that_the_tables_do_not_make(tmp_path: Path) -> None:
    everything = plan([load_table(name) for name in table_names() if load_table(name).grid == lns()], "small", tmp_path)
    table = plan([load_table("lns_table2")], "small", tmp_path)
    assert [step.run.run_id for step in everything] == [step.run.run_id for step in table]


def test_overrides_give_the_planned_run(tmp_path: Path) -> None:
    """The child process composes exactly what was planned, including the seed and a folder with odd characters."""
    odd = tmp_path / "it's a, folder=\\ (1)"
    for run in expand(lns(), "medium", odd)[::30]:
        composed = compose(run.overrides)
        assert composed.run_id == run.run_id
        assert composed.run_dir == run.config.run_dir
        assert composed.results_dir == str(odd)


@pytest.mark.parametrize("method", ["lsh_label", pytest.param("lsh_embedding", marks=pytest.mark.slow)])
def test_the_preset_alone_is_the_papers_run(method: str, tmp_path: Path) -> None:
    """``preset=lns dataset=amazon670k`` trains what profile paper of the tables plans, on each of the paper's sets."""
    planned = [run for run in expand(lns(), "paper", tmp_path) if run.method == method]
    assert len(planned) == 4
    for run in planned:
        words = ["preset=lns", f"dataset={run.dataset}", f"method={method}_printed", f"results_dir={tmp_path}"]
        assert compose(words).run_id == run.run_id
    assert compose(["preset=lns", "dataset=wordnet_related"]).epochs == compose([]).epochs


def test_methods_are_the_ones_named(tmp_path: Path) -> None:
    for run in expand(lns(), "small", tmp_path):
        sampler = {"nce": "log_uniform", "full_bf16": "full"}.get(run.method, run.method.removesuffix("_printed"))
        assert run.config.sampler.name == sampler
        assert (run.config.loss.name == "nce") == (run.method == "nce")
        assert (run.config.loss.name == "full") == run.method.startswith("full")


def test_paper_profile_is_the_papers_setting(tmp_path: Path, published: pd.DataFrame) -> None:
    """The settings are those of section 3.3 (batch, K, L, DWTA, learning rate), with all epochs that Table 2 prints."""
    batch_k_l = {"amazon670k": (1024, 6, 400), "wiki325k": (256, 5, 300), "odp": (128, 5, 150)}
    batch_k_l["amazon_uniform"] = (256, 6, 150)
    epochs = published[published["metric"].str.startswith("epoch_to")].groupby("dataset")["value"].max()
    runs = expand(lns(), "paper", tmp_path)
    assert {run.dataset for run in runs} == set(DATASETS)
    for run in runs:
        config = run.config
        batch, k, tables = batch_k_l[run.dataset]
        assert (config.batch_size, config.optimizer.name, config.optimizer.lr) == (batch, "adam", 1e-4)
        assert config.epochs >= epochs[run.dataset]
        assert config.model.hidden == 128
        if run.method.startswith("lsh"):
            assert (config.sampler.hash, config.sampler.K, config.sampler.L) == ("dwta", k, tables)
            assert (config.sampler.max_per_bucket, config.sampler.min_candidates) == (128, 1000)
            assert config.loss.name == "active_set"


# ---------------------------------------------------------------- mistakes

MISTAKES = {
    "misspelt key of a method": ("lable: NCE", "label: NCE", "methods[2].lable", "did you mean 'label'"),
    "misspelt key of the grid": ("bassline: full", "baseline: full", "bassline", "did you mean 'baseline'"),
    "unknown baseline": ("baseline: ful", "baseline: full", "baseline", "did you mean 'full'"),
    "wrong type of seed": ("seeds: [x]", "seeds: [0]", "profiles.small.seeds", "expected"),
    "no seeds": ("seeds: []", "seeds: [0]", "profiles.small.", "at least one"),
    "data set not listed": (
        "[{name: wordnet}]",
        "[{name: wordnet_hypernym}]",
        "profiles.small",
        "wordnet_hypernym",
    ),
    "method twice": ("name: full, label: LSH", "name: lsh_label, label: LSH", "methods", "twice"),
    "methods not a list": ("methods: 3\nmore:", "methods:", "methods", "expected a list"),
    "unknown profile": ("  big: {", "  small: {", "profiles.big", "valid: medium, paper, small"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_with_file_and_key(case: str, write_tables: Callable[..., Path], grid_text: str) -> None:
    wrong, right, key, hint = MISTAKES[case]
    assert right in grid_text
    with pytest.raises(ConfigError) as error:
        load_table("toy2", write_tables(grid=grid_text.replace(right, wrong, 1)))
    message = str(error.value)
    assert "\n" not in message
    assert "toy.yaml" in message
    assert key in message
    assert hint in message


def test_an_override_that_does_not_compose_names_its_place(
    write_tables: Callable[..., Path], grid_text: str, tmp_path: Path
) -> None:
    spec = load_table("toy2", write_tables(grid=grid_text.replace("loss=nce", "loss=ncee")))
    with pytest.raises(ConfigError, match=r"profile small, wordnet_hypernym, nce: .*ncee.*did you mean 'nce'"):
        expand(spec.grid, "small", tmp_path)


def test_two_methods_with_the_same_settings_are_refused(
    write_tables: Callable[..., Path], grid_text: str, tmp_path: Path
) -> None:
    same = grid_text.replace("[sampler=log_uniform, loss=nce]", "[sampler=full]")
    with pytest.raises(ConfigError, match="same settings"):
        expand(load_table("toy2", write_tables(grid=same)).grid, "small", tmp_path)


@pytest.mark.parametrize(
    ("wrong", "right", "hint"),
    [
        ("grid: tooy", "grid: toy", "did you mean 'toy'"),
        ("kind: nombers", "kind: numbers", "kind: expected one of"),
        ("csv: lsn.csv", "csv: lns.csv", "did you mean 'lns.csv'"),
        ("notez: [A", "notes: [A", "did you mean 'notes'"),
    ],
)
def test_a_mistake_in_a_table_is_one_line_too(
    wrong: str, right: str, hint: str, write_tables: Callable[..., Path]
) -> None:
    text = (
        "title: T\nkind: numbers\ncolumns: [{name: epochs}]\ngrid: toy\n"
        "published: {csv: lns.csv, table: table2}\nnotes: [A]\n"
    )
    with pytest.raises(ConfigError) as error:
        load_table("toy2", write_tables(toy2=text.replace(right, wrong)))
    message = str(error.value)
    assert "toy2.yaml" in message
    assert hint in message
    assert "\n" not in message


def test_unknown_table_and_profile_list_the_valid_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'lns_table2'"):
        load_table("lns_tabel2")
    with pytest.raises(ConfigError, match="valid: medium, paper, small"):
        expand(lns(), "huge", tmp_path)


def test_every_bench_table_has_settings_of_the_bench(tmp_path: Path) -> None:
    assert bench_names()
    for name in bench_names():
        spec = load_bench(name)
        for command, folder in ((spec.command, tmp_path), (spec.small_command, tmp_path / "out" / "small")):
            kind, *words, option, report = command(tmp_path)[2:]
            asked = spec.settings if folder == tmp_path else spec.small_settings
            made = asdict(settings_of(kind, words))
            assert {key: made[key] for key in asked} == {
                k: tuple(v) if type(v) is list else v for k, v in asked.items()
            }
            assert (option, report) == ("--json", str(folder / "bench" / f"{name}.json"))
        with pytest.raises(ConfigError, match="is not made from runs"):
            load_table(name)


def test_only_a_diagnosis_says_what_to_diagnose(write_tables: Callable[..., Path]) -> None:
    for text in ("kind: curves\ndiagnose: [--rows, '3']\n", "kind: diagnosis\n"):
        folder = write_tables(toy=f"title: Toy\ngrid: toy\n{text}")
        with pytest.raises(ConfigError, match="diagnose: kind: diagnosis needs it, no other kind does"):
            load_table("toy", folder)
    folder = write_tables(toy="title: Toy\ngrid: toy\nkind: curves\nexamples: table\n")
    with pytest.raises(ConfigError, match="examples: only for kind: diagnosis"):
        load_table("toy", folder)


@pytest.mark.parametrize("name", ["lgd_learning_rates", "midx_figure_samples"])
def test_a_point_is_what_hydra_composes(name: str, results_dir: Path) -> None:
    runs = [run for run in expand(load_table(name).grid, "small", results_dir) if run.point]
    for run in (runs[0], runs[-1]):
        assert compose(run.overrides).as_dict() == run.config.as_dict()
