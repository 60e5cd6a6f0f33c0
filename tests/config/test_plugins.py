"""Classes registered from outside are composed, compiled, trained and resumed like built-in ones."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import REPOSITORY, registry
from runner.config import compose, explain, to_run_config
from runner.errors import ConfigError, RunnerError
from runner.models import LinearConfig
from runner.options.settings import RunConfig
from runner.output.losses import SampledSoftmaxLoss
from runner.parts import TASKS
from runner.registry import FROM_OUTSIDE, check_trusted, register_loss, register_model, register_sampler, register_task
from runner.samplers import SAMPLERS, SamplerConfig
from runner.samplers.static import UniformConfig
from runner.tasks import Classification
from runner.training import compilation, run_folder
from runner.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("registrations_stay_here")
POISSON = REPOSITORY / "examples" / "poisson_sampler.py"
SMALL = [
    "dataset=synthetic_xc", "dataset.num_classes=90", "dataset.num_features=100", "dataset.num_train=240",
    "dataset.num_test=30", "dataset.features_per_row=8", "model.hidden=16", "batch_size=16", "evaluation.rows=20",
    "evaluation.every_epochs=1", "hardware.threads=1",
]  # fmt: skip
EVERYTHING = '''
from dataclasses import dataclass, field

import numpy as np

from runner.data import SyntheticXcConfig
from runner.output.losses import SampledSoftmaxLoss
from runner.models import LinearConfig
from runner.registry import register_dataset_kind, register_loss, register_model, register_sampler
from runner.samplers.static import UniformConfig


@dataclass(frozen=True, kw_only=True)
class EvenConfig(UniformConfig):
    """Draw even classes twice as often as odd ones."""

    losses = ("nce", "sampled_softmax")
    num_samples: int = 30
    odds: float

    def distribution(self, label_counts_N):
        weight = np.where(np.arange(len(label_counts_N)) % 2, 1.0, self.odds)
        return weight / weight.sum()


@dataclass(frozen=True, kw_only=True)
class HalfLoss(SampledSoftmaxLoss):
    like = "sampled_softmax"
    share: float = 0.5

    def apply(self, rows):
        losses_B = super().apply(rows)
        rows.target_P[:] *= np.float32(self.share)
        rows.candidate_N[:] *= np.float32(self.share)
        return np.float32(self.share) * losses_B


@dataclass(frozen=True, kw_only=True)
class NarrowConfig(LinearConfig):
    name: str = "narrow"
    hidden: int = 12


@dataclass(frozen=True, kw_only=True)
class TinyConfig(SyntheticXcConfig):
    kind: str = "tiny"
    name: str = "tiny"
    num_classes: int = 80
    num_features: int = 100
    num_train: int = 200
    num_test: int = 20
    features_per_row: int = 8


register_sampler("even", EvenConfig)
register_loss("half", HalfLoss)
register_model("narrow", NarrowConfig)
register_dataset_kind("tiny", TinyConfig)
'''


def start(*words: str, cwd: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "runner", *words], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "DATASETS_DIR": str(cwd / "data"), **environment},
    )  # fmt: skip


def run(*words: str, cwd: Path, **environment: str) -> tuple[int, list[str], str]:
    process = start(*words, cwd=cwd, **environment)
    out, err = process.communicate(timeout=300)
    return process.returncode, out.splitlines(), err


def summary_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
    return found


def provenance_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "provenance.json").read_text())
    return found


# ---------------------------------------------------------------- the documented example


def test_the_page_shows_the_example_as_it_is() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "extending.md").read_text(), flags=re.S)
    assert code == POISSON.read_text()


def test_commands_of_the_page_compose() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / "extending.md").read_text(), flags=re.S)
    lines = [line.split("#")[0].replace("'", "").split() for block in blocks for line in block.splitlines()]
    assert ["-m", "runner.check", "poisson", "plugins=[examples/poisson_sampler.py]"] in [line[1:] for line in lines]
    for line in lines:
        if line[1:3] == ["-m", "runner"]:
            words = [word.split(",")[0] for word in line[3:] if word != "-m"]
            config = compose([word.replace("examples/", f"{POISSON.parent}/") for word in words])
            assert config.sampler.name == "poisson"


@pytest.mark.slow
def test_the_example_keeps_its_contract(capsys: pytest.CaptureFixture[str]) -> None:
    from runner.check.__main__ import main

    assert main(["poisson", f"plugins=[{POISSON}]"]) == 0
    assert capsys.readouterr().out.endswith("17 passed, 0 failed\n")


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["released_sphere", "released_rff"])
def test_the_counts_of_the_released_code_are_right(sampler: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it leaves out, the targets' counts, is the loss's affair; only lost weights break the contract."""
    from runner.check.__main__ import main

    assert main([sampler, f"plugins=[{POISSON.with_name('released_kernels.py')}]"]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if ": failed:" in line]
    found = {line.split(" defaults ")[1].partition(":")[0] for line in failed}
    assert found == {"vectors that are not numbers"}


@pytest.mark.slow
def test_the_example_trains_is_killed_and_resumes(tmp_path: Path) -> None:
    """A run that is killed and resumed ends with the same bits as an uninterrupted run.

    The command is given again in another folder, with the plugin named by its path.
    """
    (tmp_path / "poisson_sampler.py").write_text(POISSON.read_text())
    words = ["plugins=[./poisson_sampler.py]", "sampler=poisson", "sampler.size=30", *SMALL, "epochs=60"]
    code, out, err = run(*words, "results_dir=whole", cwd=tmp_path)
    assert code == 0, err
    whole = summary_of(out[-1])
    assert whole["status"] == "finished"
    assert whole["config"]["sampler"] == {"name": "poisson", "size": 30}
    assert whole["config"]["loss"]["name"] == "sampled_softmax", "the customary loss"
    assert whole["config"]["plugins"] == [str(tmp_path / "poisson_sampler.py")]

    words = [*words, "results_dir=cut", "checkpoint_every_seconds=0.01"]
    process = start(*words, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("cut/runs/*/checkpoint/step-*/state.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    code, out, err = run(*words, cwd=tmp_path)
    assert code == 0, err
    assert "resum" in err, err
    resumed = summary_of(out[-1])
    assert resumed["metrics"] == whole["metrics"]
    assert resumed["run_id"] == whole["run_id"]
    config = to_run_config(yaml.safe_load((Path(out[-1]) / "config.yaml").read_text()))
    assert config.run_id == whole["run_id"]
    diagnose = [sys.executable, "-m", "runner.diagnose", out[-1], "--rows", "8", "--draws", "2"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "DATASETS_DIR": str(tmp_path / "data")}
    done = subprocess.run(diagnose, cwd="/", capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "names plugins, which are code that would run" in done.stderr
    environment["TRUSTED_PLUGINS"] = str(tmp_path / "poisson_sampler.py")
    done = subprocess.run(diagnose, cwd="/", capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "poisson" in done.stdout


@pytest.mark.slow
def test_a_sweep_over_an_option_from_outside(tmp_path: Path) -> None:
    words = ["-m", f"plugins=[{POISSON}]", "sampler=poisson", "sampler.size=20,30", *SMALL, "max_steps=2"]
    code, out, err = run(*words, cwd=tmp_path)
    assert code == 0, err
    assert [summary_of(folder)["config"]["sampler"]["size"] for folder in out] == [20, 30]


@pytest.mark.slow
def test_kernels_are_compiled_by_another_process_first(tmp_path: Path) -> None:
    """This holds for a module that is only in the current folder, and again after the module has changed."""
    module = tmp_path / "plugin_here.py"
    module.write_text(f"{POISSON.read_text()}# {tmp_path}\n")  # the path makes it a module that was not compiled before
    words = ["sampler=poisson", *SMALL, "max_steps=1", "force=true"]
    said = []
    for _ in range(2):
        code, _, err = run("plugins=[plugin_here]", *words, cwd=tmp_path)
        assert code == 0, err
        said.append("compiling kernels" in err)
    assert said == [True, False], "what has been compiled for the first is there for the second"
    config = compose([f"plugins=[{module}]", *words])
    before = compilation.marker_of(config)
    module.write_text("# changed")
    registry._digests.clear()  # a new process reads the sources anew
    assert compilation.marker_of(config) != before


# ---------------------------------------------------------------- everything that can be registered


@pytest.mark.slow
def test_sampler_loss_model_and_data_set_from_outside(tmp_path: Path) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    words = ["plugins=[everything]", "dataset=tiny", "model=narrow", "sampler=even", "sampler.odds=2", "loss=half"]
    more = ["batch_size=32", "max_steps=4", "evaluation.rows=20", "hardware.threads=1"]
    code, out, err = run(*words, *more, cwd=tmp_path)
    assert code == 0, err
    summary = summary_of(out[-1])
    assert summary["status"] == "finished"
    assert summary["config"]["loss"] == {"name": "half", "correct_target": False, "share": 0.5}
    assert summary["config"]["model"] == {"name": "narrow", "hidden": 12}
    assert summary["dataset"]["num_classes"] == 80
    code, out, err = run(*words[:-1], *more, "loss.correct_target=true", cwd=tmp_path)
    assert code == 2
    assert "correct_target" in err, "nce is the customary loss, and has no such key"
    code, _, err = run(*[word for word in words if "odds" not in word], *more, cwd=tmp_path)
    assert (code, err) == (2, "error: sampler.odds is required: set it on the command line, e.g. sampler.odds=VALUE\n")
    code, _, err = run(*words, "sampler=unigram", "sampler=evn", cwd=tmp_path)
    assert code == 2
    assert "did you mean 'even'?" in err
    code, out, err = run("plugins=[everything]", "--help", cwd=tmp_path)
    assert code == 0
    assert re.search(r"^  sampler: .*\n(?:      .*\n)*?      .*\beven\b", "\n".join(out), flags=re.M)


def test_a_loss_from_outside_goes_with_what_its_like_goes_with(tmp_path: Path) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    plugin = f"plugins=[{tmp_path / 'everything.py'}]"
    assert compose([plugin, "sampler=uniform", "loss=half"]).loss.name == "half"
    with pytest.raises(ConfigError, match="loss=half does not go with sampler=full; valid: full"):
        compose([plugin, "sampler=full", "loss=half"])


@pytest.mark.slow
def test_an_installed_package_is_loaded_without_being_named(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "poisson-1.0.dist-info").mkdir(parents=True)
    (site / "poisson-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: poisson\nVersion: 1.0\n")
    entry = site / "poisson-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[runner.plugins]\npoisson = plugin_installed\n")
    (site / "plugin_installed.py").write_text(POISSON.read_text())
    path = os.pathsep.join([str(REPOSITORY), str(site)])
    code, out, err = run("sampler=poisson", *SMALL, "max_steps=2", cwd=tmp_path, PYTHONPATH=path)
    assert code == 0, err
    assert summary_of(out[-1])["config"]["plugins"] == []
    assert set(provenance_of(out[-1])["plugins"]) == {"plugin_installed"}
    entry.write_text("[runner.plugins]\npoisson = plugin_gone\n")
    code, out, err = run("sampler=uniform", cwd=tmp_path, PYTHONPATH=path)
    assert code == 2
    assert err.startswith("error: installed plugin 'poisson' (plugin_gone) cannot be imported: ")
    assert err.count("\n") == 1


# ---------------------------------------------------------------- run ids


def test_without_plugins_none_is_written() -> None:
    assert compose([]).as_dict()["plugins"] == []
    assert compose(["plugins=[]"]) == compose([])


def test_a_plugin_is_in_the_id_by_its_name_and_in_the_file_by_its_place(tmp_path: Path) -> None:
    ids = set()
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        file = tmp_path / place / "plugin_empty.py"
        file.write_text("")
        config = compose([f"plugins=[{file}]"])
        assert config.as_dict()["plugins"] == [str(file)]
        assert to_run_config(config.as_dict()) == config
        ids.add(config.run_id)
        del sys.modules["plugin_empty"]
    assert len(ids) == 1
    assert ids != {compose([]).run_id}


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(("text", "says"), [
    ("import nowhere_at_all", "cannot be imported: No module named 'nowhere_at_all'"),
    ("x = 1 / 0", "failed at plugin_wrong.py:1: ZeroDivisionError: division by zero"),
    ("def f(:", "failed at "),
    ("from runner.registry import register_sampler as r\nr('uniform', object)", "sampler=uniform is taken"),
    ("from runner.registry import register_dataset_kind as r\nr('ptb', object)", "dataset=ptb"),
    ("from runner.registry import register_sampler as r\nr('mine', object)", "must be a subclass of SamplerConfig"),
    ("from runner.registry import register_sampler as r\nr('a-b', object)", "a letter followed by letters, digits or"),
    (
        "from runner.samplers import SamplerConfig\nclass C(SamplerConfig):\n    pass\n"
        "from runner.registry import register_sampler as r\nr('mine', C)",
        "decorate C with @dataclass(frozen=True, kw_only=True)",
    ),
    (
        "from dataclasses import dataclass\nfrom runner.samplers import SamplerConfig\n"
        "@dataclass(frozen=True, kw_only=True)\nclass C(SamplerConfig):\n    pass\n"
        "from runner.registry import register_sampler as r\nr('mine', C)",
        "C lacks build",
    ),
])  # fmt: skip
def test_a_plugin_that_fails_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "plugin_wrong.py"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        compose([f"plugins=[{file}]"])
    line = explain(caught.value)
    assert line.startswith(f"plugin '{file}'")
    assert says in line
    assert "plugin_wrong" not in sys.modules


@pytest.mark.parametrize(("override", "says"), [
    ("plugins=[no_such_plugin]", "plugin 'no_such_plugin' cannot be imported: No module named 'no_such_plugin'; name"),
    ("plugins=[./no_such.py]", "no_such.py': there is no such file"),
    ("plugins=mine", "plugins must be a list of modules or files: write plugins=[my_module]"),
    ("plugins=[1]", "plugins must be a list of modules or files"),
    ("plugin=[mine]", "unknown key 'plugin'; did you mean 'plugins'?"),
    ("plugins=[mine", "cannot read 'plugins=[mine'"),
])  # fmt: skip
def test_a_mistake_is_one_line(override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])
    line = explain(caught.value)
    assert "\n" not in line
    assert says in line


def test_a_run_folder_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made the folder can make its settings fit its id, so that the plugins that it names would be imported."""
    plugin = tmp_path / "plugin_of_others.py"
    plugin.write_text("import sys\nsys.modules['it_ran'] = sys\n")
    monkeypatch.setattr(RunFolder, "run_id", "a-b-c")
    monkeypatch.setattr(run_folder, "read_settings", lambda path: {"plugins": [str(plugin)]})
    says = rf"config\.yaml names plugins, which are code .* TRUSTED_PLUGINS={plugin}$"
    with pytest.raises(RunnerError, match=says):
        run_folder.config_of(RunFolder(tmp_path))
    assert "it_ran" not in sys.modules
    monkeypatch.setenv("TRUSTED_PLUGINS", f"another,{plugin}")
    with pytest.raises(ConfigError):  # these settings are otherwise empty
        run_folder.config_of(RunFolder(tmp_path))
    assert sys.modules.pop("it_ran", None) is sys
    monkeypatch.delenv("TRUSTED_PLUGINS")
    check_trusted(tmp_path, [str(plugin), "plugin_of_others"])  # loaded already
    with pytest.raises(RunnerError, match="antigravity"):
        check_trusted(tmp_path, ["antigravity"])
    sys.modules.pop("plugin_of_others")


def test_a_file_called_like_another_module(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ConfigError, match="another module is called json: rename the file"):
        compose([f"plugins=[{tmp_path / 'json.py'}]"])


def test_names_are_registered_once() -> None:
    register_model("plugin_model", dataclasses.make_dataclass(
        "M", [("name", str, "plugin_model")], bases=(LinearConfig,), frozen=True, kw_only=True
    ))  # fmt: skip
    for what, register in {
        "model=linear is taken": lambda: register_model("linear", LinearConfig),
        "model=plugin_model is taken": lambda: register_model("plugin_model", LinearConfig),
        "task of family rows is taken": lambda: register_task("rows", Classification),
        "loss=mine: SampledSoftmaxLoss.like must name": lambda: register_loss("mine", SampledSoftmaxLoss),
    }.items():
        with pytest.raises(ConfigError, match=re.escape(what)):
            register()
    register_task("another", Classification)
    assert TASKS["another"] is Classification
    register_sampler("plugin_sampler", UniformConfig)
    assert compose(["sampler=plugin_sampler", "sampler.num_samples=3"]).sampler.num_samples == 3
    with pytest.raises(ConfigError, match="did you mean 'plugin_sampler'"):
        compose(["sampler=plugin_sample"])


def test_a_plugin_selects_what_a_file_could() -> None:
    selects = {"optimizer": "sgd", "epochs": 7, "training.patience": 3}
    register_model("plugin_model", dataclasses.make_dataclass(
        "M", [("name", str, "plugin_model")], bases=(LinearConfig,), frozen=True, kw_only=True,
        namespace={"selects": selects},
    ))  # fmt: skip
    config = compose(["model=plugin_model", "dataset.valid_share=0.1", "epochs=8"])
    assert (config.optimizer.name, config.epochs, config.training.patience) == ("sgd", 8, 3)
    assert config.model.hidden == 128
    with pytest.raises(ConfigError, match=r"model\.hidden must lie in \[1, 4096\], got 0"):
        compose(["model=plugin_model", "dataset.valid_share=0.1", "model.hidden=0"])


def test_the_registry_is_empty_unless_somebody_registers() -> None:
    assert not [key for key in FROM_OUTSIDE if key[0] == "sampler" and key[1] in ("full", "uniform")]
    assert issubclass(SAMPLERS["uniform"], SamplerConfig)
    assert registry.ENTRY_POINTS == "runner.plugins"
    assert "plugins" in {field.name for field in dataclasses.fields(RunConfig)}
