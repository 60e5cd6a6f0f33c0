"""What a profile runs, and which data sets its tables show."""

from pathlib import Path

import pytest

from runner.errors import ConfigError
from runner.report.render import render
from runner.report.spec.grids import expand, load_grid
from runner.report.spec.tables import load_table, table_names
from runner.report.spec.yaml_files import TABLES


def test_small_plans_every_table_of_the_papers_but_those_that_take_hours() -> None:
    grids = {spec.name: spec.grid for spec in map(load_table, table_names())}
    left_out = {name for name, grid in grids.items() if grid.by_name and grid.paper}
    assert left_out == {
        "lgd_figure5",
        "midx_figure_cumulative",
        "lns_rates",
        "lns_uniform",
        "midx_figure_convergence_ptb",
        "midx_lm_ptb_levels",
        "midx_table4_ptb",
        "midx_table4_ptb_transformer",
        "midx_table4_wikitext2",
        "midx_table4_wikitext2_transformer",
        "midx_table5_ptb",
        "midx_table7_rates",
        "midx_table7_shared",
        "midx_table7_stages",
        "midx_table9_rates",
        "rf_softmax_table3_rates",
    }


def test_a_profile_may_run_fewer_values(tmp_path: Path) -> None:
    grid = load_grid("midx_samples", TABLES)
    small = {value for run in expand(grid, "small", tmp_path) for _, value in run.point}
    medium = {value for run in expand(grid, "medium", tmp_path) for _, value in run.point}
    assert small == {5, 20, 100}
    assert medium == {5, 10, 20, 50, 100}
    assert len(expand(grid, "small", tmp_path)) == grid.num_runs("small")


def test_a_value_that_the_grid_does_not_sweep_is_named(tmp_path: Path) -> None:
    for path in (TABLES / "grid").glob("*.yaml"):
        (tmp_path / "grid").mkdir(exist_ok=True)
        (tmp_path / "grid" / path.name).write_text(path.read_text())
    file = tmp_path / "grid" / "rf_softmax_features.yaml"
    file.write_text(file.read_text().replace("values: [128, 256, 512], ", "values: [128, 513], "))
    with pytest.raises(ConfigError, match=r"profiles\.small\.sweep\[0\]: not among the values of the grid's own sweep"):
        load_grid("rf_softmax_features", tmp_path)


def test_a_data_set_may_have_fewer_values_than_its_profile(tmp_path: Path) -> None:
    grid = load_grid("tuning", TABLES)
    medium = {dataset.name: dataset for dataset in grid.profile("medium").datasets}
    rates = {name: len(grid.points_on(medium[name], "full", "medium")) for name in ("synthetic_xc", "linux_calls")}
    assert rates == {"synthetic_xc": 8, "linux_calls": 5}
    for path in (TABLES / "grid").glob("*.yaml"):
        (tmp_path / "grid").mkdir(exist_ok=True)
        (tmp_path / "grid" / path.name).write_text(path.read_text())
    file = tmp_path / "grid" / "tuning.yaml"
    file.write_text(file.read_text().replace("values: [0.001, 0.003, 0.01]}]", "values: [0.001, 0.004]}]"))
    message = r"profiles\.medium\.linux_calls\.sweep\[0\]: not among the values of the grid's own sweep"
    with pytest.raises(ConfigError, match=message):
        load_grid("tuning", tmp_path)


@pytest.mark.slow
def test_without_a_print_only_the_profiles_data_sets_are_shown(tmp_path: Path) -> None:
    render([load_table("midx_table7_time")], "medium", tmp_path)
    text = next(tmp_path.rglob("midx_table7_time.md")).read_text()
    assert "Amazon CDs" in text
    assert "Gowalla" not in text
