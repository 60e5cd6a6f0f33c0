"""Rendering leaves committed tables alone; they change by publishing, which never loses a finished run."""

import dataclasses
import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from runner import REPOSITORY
from runner.errors import DataError, RunnerError
from runner.report.figures.data import figure_data
from runner.report.pages.folder_page import folder_page
from runner.report.pages.footprint import BEGIN, END
from runner.report.pages.publish import outcomes, published_dir, published_page, replace_together, to_publish
from runner.report.render import render
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec, load_table, table_names

Specs = dict[str, TableSpec]
KNOWN = ["toy2", "toyc", "toyc_more"]


def publish(names: list[str], known: list[str], profile: str, results_dir: Path) -> list[Path]:
    changes = to_publish(names, known, profile, results_dir)
    replace_together(changes)
    return list(changes)


@pytest.fixture
def runs(toy: Specs, planned: Callable[..., list[PlannedRun]]) -> list[PlannedRun]:
    return planned(toy["convergence"].grid, "medium")


def test_a_fresh_clone_renders_without_touching_what_is_committed(toy: Specs, results_dir: Path) -> None:
    committed = results_dir / "tables" / "medium" / "toy2.md"
    committed.parent.mkdir(parents=True)
    committed.write_text("numbers\n")
    written = render([toy["convergence"]], "medium", results_dir)
    assert committed.read_text() == "numbers\n"
    assert "not run" in (results_dir / "out" / "medium" / "toy2.md").read_text()
    assert all(results_dir / "out" in path.parents for path in written)
    with pytest.raises(RunnerError, match=r"out/medium/toy2\.csv: shows no finished run, so there is nothing to"):
        publish(["toy2"], KNOWN, "medium", results_dir)
    assert committed.read_text() == "numbers\n"


def test_publishing_copies_a_table_and_refuses_to_lose_runs(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    spec = toy["convergence"]
    for run in runs:
        write_run(run, [0.2, 0.4])
    render([spec], "medium", results_dir)
    copies = publish(["toy2"], KNOWN, "medium", results_dir)
    assert {path.name for path in copies} == {"toy2.md", "toy2.tex", "toy2.csv"}
    table = results_dir / "tables" / "medium" / "toy2.md"
    assert table.read_text() == (results_dir / "out" / "medium" / "toy2.md").read_text()
    before = table.read_text()
    write_run(runs[0], [], status="interrupted")  # a method with a seed less shows no number
    render([spec], "medium", results_dir)
    with pytest.raises(
        RunnerError, match=r"toy2\.csv: shows \d+ outcomes of runs, but the committed .* has \d+; finish"
    ):
        publish(["toy2"], KNOWN, "medium", results_dir)
    assert table.read_text() == before
    table.with_suffix(".csv").unlink()
    publish(["toy2"], KNOWN, "medium", results_dir)
    assert table.read_text() != before, "deleting the committed file says that it is meant"


def test_publishing_what_was_not_rendered(results_dir: Path) -> None:
    with pytest.raises(RunnerError, match=r"toy2 is not rendered; make reproduce TABLE=toy2 PROFILE=small"):
        publish(["toy2"], KNOWN, "small", results_dir)
    assert not (results_dir / "tables").exists()


def test_a_figure_takes_its_pictures_along_and_no_others(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs:
        write_run(run, [0.2, 0.4])
    render([toy["curves"]], "medium", results_dir)
    folder = results_dir / "out" / "medium"
    (folder / "toyc_wordnet_hypernym.png").write_bytes(b"picture of a run")
    (folder / "toyc_more.png").write_bytes(b"another figure")
    names = {path.name for path in publish(["toyc"], KNOWN, "medium", results_dir)}
    assert names == {"toyc.csv", "toyc.png", "toyc.svg", "toyc_wordnet_hypernym.png"}


def test_pictures_that_a_figure_no_longer_has_are_removed(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs:
        write_run(run, [0.2, 0.4])
    render([toy["curves"]], "medium", results_dir)
    folder = published_dir(results_dir, "medium")
    folder.mkdir(parents=True)
    former = {folder / name for name in ("toyc_panel.png", "toyc_panel.svg", "toyc.tex", "toyc_curves.csv")}
    others = {
        folder / name
        for name in ("toyc_more.png", "toyc_more_panel.png", "toycurve.png", "toyc_own.csv", "toyc_own_panel.png",
                     "toyc_panel.txt", "toy.png", "README.md")
    }  # fmt: skip
    for path in former | others:
        path.write_text("run\nfull\n")
    changes = to_publish(["toyc"], KNOWN, "medium", results_dir)
    assert {path for path, content in changes.items() if content is None} == former
    replace_together(changes)
    assert set(folder.iterdir()) == others | {folder / f"toyc.{suffix}" for suffix in ("csv", "png", "svg")}


def test_rendering_removes_what_it_wrote_of_a_figure_before(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs:
        write_run(run, [0.2, 0.4])
    render([toy["curves"], toy["convergence"]], "medium", results_dir)
    folder = results_dir / "out" / "medium"
    before = {*folder.iterdir()}
    assert len(before) == 10
    former = [folder / "toyc_panel.png", folder / "toyc_panel.svg", folder / "toyc.tex"]
    others = {folder / "toyc_more.csv", folder / "toyc_more.png"}
    for path in (*former, *others):
        path.write_text("run\nfull\n")
    render([toy["curves"]], "medium", results_dir)
    assert {*folder.iterdir()} == before | others


def test_the_data_of_a_figure_are_every_run_s_points(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs[:3]:
        write_run(run, [0.2, 0.4], seconds=10.0)
    spec = toy["curves"]
    render([spec], "medium", results_dir)
    file = results_dir / "out" / "medium" / "toyc.csv"
    shown = pd.read_csv(file)
    assert outcomes(file) == 6
    assert sorted(set(shown["run_id"])) == sorted(run.run_id for run in runs[:3])
    mine = shown[shown["run_id"] == runs[0].run_id]
    assert mine[["epoch", "step", "train_seconds", "value"]].to_numpy().tolist() == [[1, 10, 5, 0.2], [2, 20, 10, 0.4]]
    assert set(mine["metric"]) == {"test_subset/p@1"}
    one_metric = dataclasses.replace(spec, metrics=("test_subset/p@1",))
    assert len(figure_data(one_metric, runs)) == 6
    frequency = figure_data(toy["frequency"], runs)
    assert frequency[frequency["run_id"] == runs[0].run_id]["training_rows"].tolist() == [90, 30, 4, 0]
    proposals = figure_data(toy["distribution"], runs)
    assert proposals[proposals["step"] == 0]["proposal"].tolist() == 3 * [0.1, 0.0, 0.9]


# ---------------------------------------------------------------- the page


def test_the_page_shows_what_the_report_shows_and_its_files(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs:
        write_run(run, [0.2, 0.4])
    *_, page, _ = render([toy["convergence"], toy["curves"]], "medium", results_dir)
    published = publish([], KNOWN, "medium", results_dir)
    assert published[-1] == published_page(results_dir, "medium") == results_dir / "REPRODUCTION-medium.md"
    assert {path.name for path in published[:-1]} == {
        "toy2.md", "toy2.tex", "toy2.csv", "toyc.csv", "toyc.png", "toyc.svg", "REPRODUCTION-medium.json"
    }  # fmt: skip
    text = published[-1].read_text()
    linked = re.findall(r"\]\(([^)]+)\)", text)
    assert "tables/medium/toyc.png" in linked
    assert all((results_dir / path).is_file() for path in linked), linked
    assert all((page.parent / path).is_file() for path in re.findall(r"\]\(([^)]+)\)", page.read_text()))
    for told in ("P@1 (%)", "seeds 0, 1", "Runs behind these numbers", runs[0].run_id, "A note.", "± 0.00"):
        assert told in text, told
    assert text.count("| 40.00 ± 0.00 |") == 3
    folder = results_dir / "tables" / "medium"
    told = json.loads(published[-1].with_suffix(".json").read_text())
    assert told["outcomes"] == {name: outcomes(folder / f"{name}.csv") for name in ("toy2", "toyc")}


def test_a_page_of_fewer_tables_or_outcomes_is_refused(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    with pytest.raises(RunnerError, match=r"REPRODUCTION\.md: is not rendered; make reproduce PROFILE=medium does so"):
        publish([], KNOWN, "medium", results_dir)
    both = [toy["convergence"], toy["curves"]]
    render(both, "medium", results_dir)
    with pytest.raises(RunnerError, match="shows no finished run"):
        publish([], KNOWN, "medium", results_dir)
    for run in runs:
        write_run(run, [0.2, 0.4])
    render(both, "medium", results_dir)
    publish([], KNOWN, "medium", results_dir)
    page = published_page(results_dir, "medium")
    before = page.read_text()
    render(both[:1], "medium", results_dir)
    with pytest.raises(RunnerError, match=r"shows 0 outcomes of runs for toyc, but the committed .* has 12; make"):
        publish([], KNOWN, "medium", results_dir)
    publish(["toy2"], KNOWN, "medium", results_dir)
    assert page.read_text() == before, "a table that is named leaves the page alone"
    page.unlink()
    publish([], KNOWN, "medium", results_dir)
    assert page.read_text() != before
    told = page.with_suffix(".json")
    for damaged in ("", "{", "[]", "{}"):
        told.write_text(damaged)
        with pytest.raises(RunnerError, match=r"REPRODUCTION-?\w*\.json is damaged; make reproduce renders it again"):
            publish([], KNOWN, "medium", results_dir)


# ---------------------------------------------------------------- all or nothing


def test_a_write_that_fails_leaves_every_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, new = tmp_path / "a.md", tmp_path / "b.md", tmp_path / "more" / "c.md"
    gone = tmp_path / "d.md"
    first.write_text("old a")
    second.write_text("old b")
    gone.write_text("old d")
    contents = {first: b"new a", gone: None, second: b"new b", new: b"new c"}
    names = ["a.md", "b.md", "d.md", "more"]
    renamed = Path.replace

    def fails_at(count: int, how: BaseException) -> Callable[[Path, Path], Path]:
        done: list[Path] = []

        def replace(self: Path, target: Path) -> Path:
            if self.suffix == ".new":
                done.append(target)
                if len(done) == count:
                    raise how
            return renamed(self, target)

        return replace

    for count in (1, 2, 3):
        for how in (OSError(28, "No space left on device"), KeyboardInterrupt()):
            monkeypatch.setattr(Path, "replace", fails_at(count, how))
            with pytest.raises(type(how)):
                replace_together(contents)
            assert (first.read_text(), second.read_text()) == ("old a", "old b")
            assert gone.read_text() == "old d"
            assert sorted(path.name for path in tmp_path.rglob("*")) == names, "nothing is left over"
    monkeypatch.undo()
    flushes: list[int] = []

    def full_disk(handle: int) -> None:
        flushes.append(handle)
        if len(flushes) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        replace_together(contents)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.rglob("*")) == names
    assert (first.read_text(), second.read_text()) == ("old a", "old b")
    replace_together(contents)
    assert (first.read_text(), second.read_text(), new.read_text()) == ("new a", "new b", "new c")
    assert len([*tmp_path.rglob("*")]) == 4, "d.md is gone"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return scripts/publish_tables.py, to which ``tmp_path`` is the repository; call it on the toy tables."""
    spec = importlib.util.spec_from_file_location("publish_tables", REPOSITORY / "scripts" / "publish_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    monkeypatch.setattr(module, "MANUAL", tmp_path / "manual.md")
    options = ["--results-dir", tmp_path / "results", "--tables-dir", tmp_path / "table"]
    monkeypatch.setattr("sys.argv", ["publish_tables.py", *map(str, options)])
    return module


def test_the_manual_and_the_folder_s_page_change_with_the_tables_or_nothing_does(
    script: ModuleType, toy: Specs, planned: Callable[..., list[PlannedRun]], write_run: Callable[..., Path],
    results_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for run in planned(toy["curves"].grid, "small"):
        write_run(run, [0.2, 0.4])
    render([toy["curves"], toy["convergence"]], "small", results_dir)
    folder, page, manual = results_dir / "tables" / "small", results_dir / "REPRODUCTION.md", tmp_path / "manual.md"
    folder.mkdir(parents=True)
    former, lonely = folder / "toyc_panel.png", folder / "toyd.png"
    former.write_bytes(b"")
    manual.write_text("no place")
    assert script.main() == 2
    assert "reproducing.md: the lines '<!-- What each table took" in capsys.readouterr().err
    assert {*folder.iterdir()} == {former}
    assert not page.exists()

    manual.write_text(f"{BEGIN}\nold\n{END}\n")
    lonely.write_bytes(b"")
    assert script.main() == 2
    assert "toyd.csv: missing; the figure beside it" in capsys.readouterr().err
    assert {*folder.iterdir()} == {former, lonely}
    assert not page.exists()
    assert "old" in manual.read_text()

    lonely.unlink()
    assert script.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert f"removed {former}" in said
    assert said[-3:] == [str(page), str(manual), str(folder / "README.md")]
    assert "old" not in manual.read_text()
    assert "| toyc " in manual.read_text()
    shown = (folder / "README.md").read_text()
    assert "toyc_panel.png" not in shown
    assert "[toyc.csv](toyc.csv): 3 runs\n\n![Toy](toyc.png)" in shown
    assert "[toy2](toy2.md)" in shown


# ---------------------------------------------------------------- the folder's page


def test_the_folder_s_page_shows_figures_with_their_notes_and_lists_tables(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs[:3]:
        write_run(run, [0.2, 0.4])
    curves = dataclasses.replace(toy["curves"], notes=("Seconds are those of training.",))
    specs = [toy["convergence"], curves, toy["frequency"]]
    render(specs[:2], "medium", results_dir)
    folder = published_dir(results_dir, "medium")
    changes = to_publish(["toy2", "toyc"], KNOWN, "medium", results_dir)
    text = folder_page(specs, "medium", folder, changes)
    replace_together(changes)
    assert text == folder_page(specs, "medium", folder, {}), "what is about to change is shown as if it were done"
    assert "| [toy2](toy2.md) | Toy Table 2 |" in text
    assert "[toyc.csv](toyc.csv): 3 runs\n\n![Toy](toyc.png)\n\n- Seconds are those of training.\n" in text
    assert "toyf" not in text, "a figure that is not there"
    assert all((folder / path).is_file() for path in re.findall(r"\]\(([^)]+)\)", text))


def test_the_folder_s_page_refuses_figures_whose_runs_are_unknown(toy: Specs, tmp_path: Path) -> None:
    folder = published_dir(tmp_path, "medium")
    folder.mkdir(parents=True)
    (folder / "toyc.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"toyc\.csv: missing"):
        folder_page([toy["curves"]], "medium", folder, {})
    for damaged in ("", "x,y\n1,2\n", "run_id,y\n"):
        (folder / "toyc.csv").write_text(damaged)
        with pytest.raises(DataError, match=r"toyc\.csv: expected a column run_id, run or run_ids"):
            folder_page([toy["curves"]], "medium", folder, {})


@pytest.mark.parametrize("profile", ["small", "medium"])
def test_committed_folders_have_their_page(profile: str) -> None:
    specs = [load_table(name) for name in table_names()]
    folder = published_dir(REPOSITORY / "results", profile)
    assert (folder / "README.md").read_text() == folder_page(specs, profile, folder, {}), "make publish writes it"
