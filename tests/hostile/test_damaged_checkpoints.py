"""Damaged checkpoints and weights are named in one line; an older whole checkpoint is used, if there is one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import RATE, Call, Runs, content, settings

from runner.training.run import run
from runner.training.run_folder import RunFolder
from runner.training.stored_arrays import MANIFEST, _checksum_of

pytestmark = pytest.mark.slow  # the runs that they damage take half a minute to make

Damage = Callable[[Path, Path], Path]  # from the folder and that of an earlier step to the file that must be named

NAME = "layer.weights"  # the class matrix
ARRAY = f"{NAME}.npy"


def flipped(position: int) -> Damage:
    def damage(folder: Path, other: Path) -> Path:
        data = bytearray((folder / ARRAY).read_bytes())
        data[position] ^= 16
        (folder / ARRAY).write_bytes(data)
        return folder / ARRAY

    return damage


def array(change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """An array becomes another one; ``np.save`` pickles arrays of objects."""

    def damage(folder: Path, other: Path) -> Path:
        np.save(folder / ARRAY, change(np.load(folder / ARRAY)), allow_pickle=True)
        return folder / ARRAY

    return damage


def cut(name: str, size: int) -> Damage:
    def damage(folder: Path, other: Path) -> Path:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])
        return folder / name

    return damage


def missing(name: str) -> Damage:
    def damage(folder: Path, other: Path) -> Path:
        (folder / name).unlink()
        return folder / name

    return damage


def of_other(name: str) -> Damage:
    """The file is that of an earlier checkpoint."""

    def damage(folder: Path, other: Path) -> Path:
        shutil.copy(other / name, folder / name)
        return folder / name

    return damage


def manifest(change: Callable[[dict[str, Any]], Any], *, forged: bool = False) -> Damage:
    """The manifest says something else; if it is forged, its checksum is right."""

    def damage(folder: Path, other: Path) -> Path:
        body = json.loads((folder / MANIFEST).read_text())
        change(body)
        if forged:
            body.pop("checksum")
            body["checksum"] = _checksum_of(body)
        (folder / MANIFEST).write_text(json.dumps(body))
        return folder / MANIFEST

    return damage


def emptied(folder: Path, other: Path) -> Path:
    shutil.rmtree(folder)
    folder.mkdir()
    return folder / MANIFEST


def a_file(folder: Path, other: Path) -> Path:
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    return folder / MANIFEST


DAMAGE: dict[str, Damage] = {
    "a bit of the header": flipped(20),
    "a bit of the data": flipped(-100),
    "the last byte": flipped(-1),
    "another type": array(lambda a: a.astype(np.float64)),
    "integers of the same size": array(lambda a: a.astype(np.int32)),
    "another shape": array(lambda a: a.T),
    "fewer rows": array(lambda a: a[:-1]),
    "a pickle": array(lambda a: np.array([print, None], dtype=object)),
    "of an earlier step": of_other(ARRAY),
    "half": cut(ARRAY, 400),
    "only a header": cut(ARRAY, 128),
    "empty": cut(ARRAY, 0),
    "missing": missing(ARRAY),
    "no manifest": missing(MANIFEST),
    "empty manifest": cut(MANIFEST, 0),
    "half a manifest": cut(MANIFEST, 300),
    "no checksum": manifest(lambda body: body.pop("checksum")),
    "another step": manifest(lambda body: body.update(step=3)),
    "other progress": manifest(lambda body: body["state"].update(loss=1)),
    "another run": manifest(lambda body: body.update(run_id="text-lstm-uniform-0123456789"), forged=True),
    "an array less": manifest(lambda body: body["arrays"].popitem(), forged=False),
    "forged step": manifest(lambda body: body.update(step=10**6), forged=True),
    "forged type": manifest(lambda body: body["arrays"][NAME].update(dtype="O"), forged=True),
    "forged shape": manifest(lambda body: body["arrays"][NAME].update(shape=[-1, 7]), forged=True),
    "forged entries": manifest(lambda body: body.update(arrays=[]), forged=True),
    "forged state": manifest(lambda body: body.update(state=[1]), forged=True),
    "a word as step": manifest(lambda body: body.update(step="x"), forged=True),
    "a list": lambda folder, other: (folder / MANIFEST).write_text("[1]") and folder / MANIFEST,
    "an empty folder": emptied,
    "a file": a_file,
}
# A manifest of another step, with its own checksum, is whole: only the name of a checkpoint's folder tells.
OF_CHECKPOINTS: dict[str, Damage] = {**DAMAGE, "manifest of an earlier step": of_other(MANIFEST)}


def state_with(*keys: str, value: Any = ...) -> Damage:
    """The state of a checkpoint has another value, or without one lacks the key; the checksum is right."""

    def change(body: dict[str, Any]) -> None:
        place = body["state"]
        for key in keys[:-1]:
            place = place[key]
        if value is ...:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value

    return manifest(change, forged=True)


STATES: dict[str, Damage] = {
    **{f"{key} is {value!r}": state_with(key, value=value)
       for key in ("metrics_bytes", "metrics_crc32") for value in (..., "x", None, -1, 1.5, True, [1], {})},
    **{f"progress is {value!r}": state_with("progress", value=value) for value in (..., "x", None, 3, [1], [])},
    **{f"{key} is {value!r}": state_with("progress", key, value=value)
       for key in ("step", "rows", "best_step", "loss_steps") for value in ("x", None, -1, 1.5, True, [1], {})},
    **{f"{key} is {value!r}": state_with("progress", key, value=value)
       for key in ("train_seconds", "loss_sum", "lr_factor", "best_lr") for value in ("x", None, True, [1], {})},
    "another step": state_with("progress", "step", value=1),
    "stages are a list": state_with("progress", "stage_seconds", value=[1]),
    "a stage is a word": state_with("progress", "stage_seconds", "update", value="x"),
    "an unknown stage": state_with("progress", "stage_seconds", "sleep", value=1.0),
}  # fmt: skip


@pytest.fixture
def stopped(runs: Runs, tmp_path: Path) -> Path:
    """A copy of the stopped run."""
    shutil.copytree(runs.stopped.parents[1], tmp_path / "results")
    return tmp_path / "results" / "runs" / runs.stopped.name


def checkpoint_of(folder: Path) -> Path:
    (found,) = (folder / "checkpoint").glob("step-*")
    return found


@pytest.mark.parametrize(
    "command", ["same", *(pytest.param(c, marks=pytest.mark.slow) for c in ("generate", "diagnose"))]
)
@pytest.mark.parametrize("damage", OF_CHECKPOINTS.values(), ids=OF_CHECKPOINTS)
def test_a_damaged_checkpoint_is_named(
    command: str, damage: Damage, runs: Runs, stopped: Path, commands: dict[str, Call]
) -> None:
    named = damage(checkpoint_of(stopped), checkpoint_of(runs.earlier))
    before = content(stopped)
    code, err = commands[command](stopped)
    last = err.splitlines()[-1]
    assert code == 2
    assert "Traceback" not in err
    assert last.startswith(f"error: {named.parent}")
    assert named.name in last or named.parent.name in last
    assert "force=true starts it again" in last
    assert content(stopped) == before


@pytest.mark.parametrize("damage", STATES.values(), ids=STATES)
def test_a_state_of_wrong_fields_is_named(damage: Damage, runs: Runs, stopped: Path, commands: dict[str, Call]) -> None:
    named = damage(checkpoint_of(stopped), checkpoint_of(runs.earlier))
    before = content(stopped)
    for command in ("same", "generate"):
        code, err = commands[command](stopped)
        assert code == 2, err
        assert "Traceback" not in err
        assert err.splitlines()[-1].startswith(f"error: {named} is damaged: ")
        assert content(stopped) == before


@pytest.mark.parametrize("command", ["generate", pytest.param("diagnose", marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", [d for n, d in DAMAGE.items() if n not in ("forged step", "a file")])
def test_damaged_weights_are_named(
    command: str, damage: Damage, runs: Runs, tmp_path: Path, commands: dict[str, Call]
) -> None:
    folder = shutil.copytree(runs.finished, tmp_path / runs.finished.name)
    named = damage(folder / "weights", runs.other / "weights")
    before = content(folder)
    code, err = commands[command](folder)
    assert code == 2
    assert err.count("\n") == 1, err
    assert f"error: {named} is damaged: " in err
    assert content(folder) == before


def test_an_older_whole_checkpoint_is_used(runs: Runs, stopped: Path, commands: dict[str, Call]) -> None:
    older = checkpoint_of(runs.earlier)
    named = flipped(-1)(checkpoint_of(stopped), older)
    shutil.copytree(older, stopped / "checkpoint" / older.name)
    says = f"{named} is damaged: its content does not have its checksum; an older checkpoint is whole and is used"
    code, err = commands["generate"](stopped)
    assert code == 0
    assert says in err
    code, err = commands["same"](stopped)
    assert code == 0
    assert says in err
    assert f"resuming at step {int(older.name.removeprefix('step-'))} of" in err
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in (stopped, runs.finished))
    assert one["metrics"] == two["metrics"]
    assert one["steps"] == two["steps"]


def test_a_damaged_checkpoint_that_was_passed_over_is_written_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(1, {NAME: np.zeros(8)}, {"loss": 1})
    shutil.copytree(checkpoint_of(tmp_path), tmp_path / "older")
    folder.save_checkpoint(2, {NAME: np.ones(8)}, {"loss": 2})
    flipped(-1)(checkpoint_of(tmp_path), tmp_path)
    (tmp_path / "older").rename(tmp_path / "checkpoint" / "step-000000001")
    assert folder.load_checkpoint() is not None
    folder.save_checkpoint(2, {NAME: np.ones(8)}, {"loss": 2})
    found = folder.load_checkpoint()
    assert found is not None
    assert found[1] == {"loss": 2}


@pytest.mark.parametrize("command", ["same", "generate", "diagnose"])
def test_settings_of_another_run(command: str, runs: Runs, stopped: Path, commands: dict[str, Call]) -> None:
    shutil.copy(runs.other / "config.yaml", stopped / "config.yaml")
    before = content(stopped)
    code, err = commands[command](stopped)
    assert code == 2
    assert f"{stopped / 'config.yaml'} is damaged: its settings are not those of {stopped.name}" in err
    assert content(stopped) == before


def test_settings_that_end_in_the_middle_of_a_line(stopped: Path, commands: dict[str, Call]) -> None:
    """What is cut off is no part of the run's id, so only the line's end tells."""
    text = (stopped / "config.yaml").read_text()
    assert text.endswith("keep_weights: null\n")
    (stopped / "config.yaml").write_text(text[:-3])
    code, err = commands["same"](stopped)
    assert code == 2
    assert f"{stopped / 'config.yaml'} is damaged: its last line is not complete" in err


def test_a_stopped_run_ends_as_one_that_was_never_stopped(runs: Runs, stopped: Path, commands: dict[str, Call]) -> None:
    assert commands["same"](stopped)[0] == 0
    one, two = (content(folder / "weights") for folder in (stopped, runs.finished))
    assert one == two


def test_a_checkpoint_beyond_the_end(runs: Runs, stopped: Path, commands: dict[str, Call]) -> None:
    """All of it agrees, as after a mistake of the program; training such a run would have no end."""
    folder = checkpoint_of(stopped)

    def later(body: dict[str, Any]) -> None:
        body["step"] = body["state"]["progress"]["step"] = 10**6

    manifest(later, forged=True)(folder, folder)
    folder.rename(folder.with_name("step-001000000"))
    code, err = commands["same"](stopped)
    assert code == 2
    assert "is damaged: it is of step 1,000,000, but the last one is" in err


@pytest.mark.parametrize(("damage", "says"), [
    (lambda file: file.unlink(), "it has 0 bytes"),
    (lambda file: file.write_bytes(file.read_bytes()[:-9]), "bytes; at the checkpoint it had"),
    (lambda file: file.write_bytes(file.read_bytes().replace(b"1", b"2", 1)), "before the checkpoint have changed"),
])  # fmt: skip
def test_observations_before_the_checkpoint(
    damage: Callable[[Path], None], says: str, stopped: Path, commands: dict[str, Call]
) -> None:
    damage(stopped / "metrics.jsonl")
    code, err = commands["same"](stopped)
    assert code == 2
    assert f"{stopped / 'metrics.jsonl'} is damaged: " in err
    assert says in err


@pytest.mark.parametrize("damage", [
    lambda best: shutil.rmtree(best), lambda best: flipped(-1)(next(best.iterdir()), best) and None,
])  # fmt: skip
def test_weights_of_the_best_validation(
    damage: Callable[[Path], None], stopped: Path, commands: dict[str, Call]
) -> None:
    """They are needed at the end, so that damage is better found at the start."""
    damage(stopped / "best")
    before = content(stopped)
    code, err = commands["same"](stopped)
    assert code == 2
    assert f"{stopped / 'best'}/step-" in err.splitlines()[-1]
    assert content(stopped) == before


@pytest.mark.slow
@pytest.mark.parametrize("damage", OF_CHECKPOINTS.values(), ids=OF_CHECKPOINTS)
def test_force_starts_a_damaged_run_again(damage: Damage, runs: Runs, stopped: Path) -> None:
    damage(checkpoint_of(stopped), checkpoint_of(runs.earlier))
    folder = run(settings(runs.data, stopped.parents[1], RATE, "force=true"))
    assert content(folder / "weights") == content(runs.finished / "weights")
