"""A folder is opened only if it holds the run that is meant: of the same defaults, plugins and device."""

import dataclasses
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import registry
from runner.config import compose
from runner.errors import RunnerError
from runner.machine.clock import StageClock
from runner.network import Network
from runner.options.settings import HardwareConfig, RunConfig
from runner.report.numbers.records import CHANGED, RunRecord, record_of, status_of
from runner.report.plan.plan import execute, plan_total, steps_of
from runner.report.spec.grids import PlannedRun
from runner.samplers.static import UniformConfig
from runner.training import loop
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder, config_of

pytestmark = pytest.mark.usefixtures("registrations_stay_here")
Configure = Callable[..., RunConfig]
PLUGIN = """
from dataclasses import dataclass

from of_plugin import SIZE
from runner.registry import register_sampler
from runner.samplers.static import UniformConfig


@dataclass(frozen=True, kw_only=True)
class ToyConfig(UniformConfig):
    num_samples: int = SIZE


register_sampler("toy_uniform", ToyConfig)
"""


@pytest.fixture
def configure(toy_folder: Path, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    monkeypatch.setattr(loop, "warm_up", lambda config: None)
    words = [
        "dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path / 'results'}", "sampler=uniform",
        "sampler.num_samples=15", "model.hidden=8", "batch_size=32", "evaluation.rows=20", "evaluation.every_epochs=1",
        "hardware.threads=1", "max_steps=8", "keep_weights=true",
    ]  # fmt: skip
    return lambda *more: compose([*words, *more])


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "of_plugin.py").write_text("SIZE = 15\n")
    file = tmp_path / "toy_plugin.py"
    file.write_text(PLUGIN)
    yield file
    for name in ("toy_plugin", "of_plugin"):
        sys.modules.pop(name, None)


def restart() -> None:
    """Let the sources of plugins be read again, as a new process reads them."""
    registry._digests.clear()


def interrupted(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    real_step = Network.train_step

    def step_of_it(self: Network[Any], batch: Any, step: int, clock: StageClock) -> Any:
        if step == 5:
            signal.raise_signal(signal.SIGINT)
        return real_step(self, batch, step, clock)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "train_step", step_of_it)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert RunFolder(config.run_dir).has_checkpoint


def planned(config: RunConfig) -> PlannedRun:
    return PlannedRun(dataset="d", method="m", seed=config.seed, overrides=(), config=config)


def refused(config: RunConfig) -> str:
    """Return the line in which the run is refused, which changes nothing in its folder and is a status in tables."""
    before = {path: path.read_bytes() for path in config.run_dir.rglob("*") if path.is_file()}
    with pytest.raises(RunnerError) as error:
        run(config)
    line = str(error.value)
    assert "\n" not in line
    assert line.endswith(("; force=true starts it again", ", or force=true starts it again"))
    assert {path: path.read_bytes() for path in config.run_dir.rglob("*") if path.is_file()} == before
    step = planned(config)
    assert status_of(step) == CHANGED
    assert not record_of(step).finished
    assert record_of(step).error == line
    steps = steps_of([("this run", step)], [])
    assert [step.status for step in steps] == [CHANGED]
    assert f"1 {CHANGED}" in plan_total(steps)
    assert execute(steps).failed == [("this run", f"{CHANGED}: {line}")]
    return line


def with_sampler(config: RunConfig, *options: tuple[str, type, Any], **values: Any) -> RunConfig:
    """Return the configuration with a sampler of the same name that has new options, or other defaults."""
    fields = [(name, kind, dataclasses.field(default=default)) for name, kind, default in options]
    cls = dataclasses.make_dataclass("UniformConfig", fields, bases=(UniformConfig,), frozen=True, kw_only=True)
    kept = {"name": "uniform", "num_samples": 15}
    return dataclasses.replace(config, sampler=cls(**{**kept, **values}))


# ---------------------------------------------------------------- defaults and options


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_changed_default_is_noticed(is_finished: bool, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure()
    run(config) if is_finished else interrupted(config, monkeypatch)
    default = UniformConfig(name="uniform").unique
    changed = with_sampler(config, ("unique", bool, not default), unique=not default)
    assert changed.run_id == config.run_id
    then, now = (json.dumps(value) for value in (default, not default))
    assert refused(changed) == (
        f"sampler.unique was {then} when {config.run_id} was made, and its default is {now} now;"
        f" set sampler.unique={then}, or force=true starts it again"
    )
    assert with_sampler(config, ("unique", bool, not default), unique=default).run_id != config.run_id
    run(dataclasses.replace(changed, force=True))
    run(changed)
    assert record_of(planned(changed)).finished


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_newer_option_is_no_change_and_one_that_is_gone_is(
    is_finished: bool, configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure()
    run(config) if is_finished else interrupted(config, monkeypatch)
    newer = with_sampler(config, ("newer", int, 7))
    assert newer.run_id == config.run_id
    run(newer)
    assert ("already finished" if is_finished else "resuming at step") in capsys.readouterr().err
    assert record_of(planned(newer)).finished
    run(dataclasses.replace(newer, force=True))
    expected = f"{config.run_id} was made with sampler.newer=7, which is no setting any more; force=true starts it"
    assert refused(config).startswith(expected)


def test_a_folder_of_before_an_option_is_read_with_its_default(configure: Configure) -> None:
    """Weights of runs that were made before an option was there are still of use."""
    config = configure("output.bias=false", "evaluation.rows=2000", "evaluation.every_epochs=0.25")
    folder = RunFolder(run(config))
    summary = json.loads((folder.path / "summary.json").read_text())
    del summary["config"]["output"]["div_value"], summary["config"]["evaluation"]
    (folder.path / "summary.json").write_text(json.dumps(summary))
    (folder.path / "config.yaml").write_text(yaml.safe_dump(summary["config"]))
    folder.check(config.run_id)
    assert config_of(folder) == config
    load_trained(config_of(folder), folder)
    run(config)


def test_where_a_run_happens_is_not_compared(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure()
    interrupted(config, monkeypatch)
    other = configure("hardware.threads=2", "checkpoint_every_seconds=9", "keep_weights=false")
    run(other)
    moved = shutil.move(other.run_dir.parents[1], other.run_dir.parents[2] / "elsewhere")
    run(dataclasses.replace(other, results_dir=str(moved)))


# ---------------------------------------------------------------- plugins


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("edited", ["toy_plugin.py", "of_plugin.py"])
def test_a_run_of_an_edited_plugin_is_refused(
    edited: str, is_finished: bool, configure: Configure, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin's own file and what it imports from its folder decide."""
    config = configure(f"plugins=[{plugin}]", "sampler=toy_uniform")
    run(config) if is_finished else interrupted(config, monkeypatch)
    run(config) if is_finished else None
    changed = plugin.parent / edited
    before = changed.read_text()
    changed.write_text(f"{before}# edited\n")
    if is_finished:
        run(config)  # this process still has the code that the run was made with
    restart()
    assert refused(config) == f"plugin {plugin} changed since {config.run_id} was made; force=true starts it again"
    changed.write_text(before)
    restart()
    run(config)
    assert record_of(planned(config)).finished
    assert not RunRecord(config.run_dir).difference, "a record that nobody planned is as it is"


def test_a_plugin_that_is_edited_while_a_process_runs_is_stored_as_it_ran(configure: Configure, plugin: Path) -> None:
    """A sweep makes its jobs in one process, which imports a plugin once."""
    config = configure(f"plugins=[{plugin}]", "sampler=toy_uniform")
    plugin.write_text(f"{PLUGIN}# edited\n")
    run(config)
    restart()
    assert refused(config) == f"plugin {plugin} changed since {config.run_id} was made; force=true starts it again"


def test_a_plugin_that_was_mended_after_a_failure_runs(
    configure: Configure, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a checkpoint nothing of the earlier code is left."""
    config = configure(f"plugins=[{plugin}]", "sampler=toy_uniform")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(config)
    plugin.write_text(f"{PLUGIN}# mended\n")
    restart()
    run(config)
    assert record_of(planned(config)).finished


def test_weights_of_an_edited_plugin_are_read_with_a_warning(
    configure: Configure, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure(f"plugins=[{plugin}]", "sampler=toy_uniform")
    folder = RunFolder(run(config))
    load_trained(config_of(folder), folder)
    assert "warning" not in capsys.readouterr().err
    plugin.write_text(f"{PLUGIN}# edited\n")
    restart()
    load_trained(config_of(folder), folder)
    assert f"warning: plugin {plugin} changed since {config.run_id} was made" in capsys.readouterr().err


def test_sources_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a package, all that is imported within it counts, whether it is named from its root or beside the importer."""
    package = tmp_path / "toy_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("import json\nfrom toy_package.one import x\n")
    (package / "one.py").write_text("from . import two\nfrom .inner.deep import y\nx = 1\n")
    (package / "two.py").write_text("import toy_package.one\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "deep.py").write_text("y = 2\n")
    (package / "unused.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.load_plugins(["toy_package"])
    digests = [registry.source_digest("toy_package")]
    for file in ("one.py", "two.py", "inner/deep.py", "__init__.py"):
        with (package / file).open("a") as text:
            text.write("# edited\n")
        assert registry.source_digest("toy_package") == digests[-1], "what was loaded has not changed"
        restart()
        digests.append(registry.source_digest("toy_package"))
    assert len(set(digests)) == 5
    (package / "unused.py").write_text("# edited\n")
    (package / "one.py").write_text("this is no Python\n")
    restart()
    assert registry.source_digest("toy_package") not in digests
    for name in [name for name in sys.modules if name.startswith("toy_package")]:
        del sys.modules[name]


# ---------------------------------------------------------------- devices


def test_a_run_tells_its_device_and_that_of_another_is_refused(configure: Configure) -> None:
    config = configure()
    path = run(config) / "summary.json"
    summary = json.loads(path.read_text())
    assert summary["device"]["kind"] == "cpu"
    assert summary["device"]["name"]
    path.write_text(json.dumps({**summary, "device": {"kind": "gpu", "name": "Toy GPU"}}))
    assert refused(config) == f"{config.run_id} was made on gpu, not on cpu; force=true starts it again"


def test_a_run_on_a_gpu_fills_no_row_of_the_cpu(configure: Configure, tmp_path: Path) -> None:
    config = configure()
    run(config)
    on_gpu = dataclasses.replace(config, hardware=HardwareConfig(name="gpu"))
    assert record_of(planned(config)).finished
    assert not record_of(planned(on_gpu)).finished
    assert status_of(planned(on_gpu)).startswith("skipped: "), "here is no GPU, or the model runs on none"
