"""Every option composes and converts; every mistake is reported in one line that lists the valid names."""

import contextlib
import dataclasses
import functools
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.config import CHOICES, CONF, GROUPS, compose, explain, to_run_config
from runner.data import KINDS
from runner.errors import ConfigError, DataError
from runner.lgd import BATCH_SAMPLERS
from runner.optimizers import OPTIMIZERS
from runner.options import settings
from runner.options.conversion import convert, did_you_mean
from runner.options.fields import PLACE_ONLY, option
from runner.options.settings import RunConfig, flat
from runner.output.losses import LOSSES
from runner.parts import MODELS
from runner.samplers import SAMPLERS
from runner.samplers.static import UniformConfig

ROOT = CONF.parent
CLASSES: dict[str, dict[str, type]] = {
    "dataset": KINDS,
    "model": MODELS,
    "loss": LOSSES,
    "optimizer": OPTIMIZERS,
    "batch_sampler": BATCH_SAMPLERS,
    "sampler": SAMPLERS,
    "hardware": dict.fromkeys(("cpu", "gpu"), settings.HardwareConfig),
}
OPTIONS = [
    pytest.param(group, path.stem, id=f"{group}={path.stem}")
    for group in GROUPS
    for path in sorted((CONF / group).glob("*.yaml"))
]
# The sampler that a loss needs, for tests that choose losses; other losses take sampler=uniform.
SAMPLER_FOR = {"full": "full"}
NEED_EVERY_CLASS = ("nce", "blackout", "partition_estimate")  # these need every class to be drawn now and then


def written_in(group: str, option: str) -> dict[str, Any]:
    """Keys and values of an option's YAML, those of a neighbour that it starts from included."""
    own: dict[str, Any] = yaml.safe_load((CONF / group / f"{option}.yaml").read_text())
    for entry in own.pop("defaults", []):
        if isinstance(entry, str) and entry != "_self_":
            own = {**written_in(group, entry), **own}
    return own.get(group, own)  # a file of the global package names its own group


def overrides_for(group: str, option: str) -> list[str]:
    if group == "loss":  # a sampler sets its customary loss, so the loss must come after it
        return [f"sampler={SAMPLER_FOR.get(option, 'uniform')}", f"loss={option}"]
    return [f"{group}={option}"]


# ---------------------------------------------------------------- what is right


def test_groups_are_the_folders_of_conf() -> None:
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert set(CHOICES) == folders - {"preset_on_dataset", "table"}
    assert set(CLASSES) == set(GROUPS)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_and_converts(group: str, option: str) -> None:
    section = getattr(compose(overrides_for(group, option)), group)
    assert section.name == option
    assert dataclasses.is_dataclass(section)
    with pytest.raises(dataclasses.FrozenInstanceError):
        section.name = "other"


@pytest.mark.parametrize("preset", sorted(path.stem for path in (CONF / "preset").glob("*.yaml")))
def test_every_preset_composes_and_changes_something(preset: str) -> None:
    assert (compose([f"preset={preset}"]) == compose_once()) == (preset == "none")


@pytest.fixture(scope="module")
def sections() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the settings of every sampler and every loss as plain mappings; each is composed once."""
    of_samplers = {("sampler", name): dataclasses.asdict(compose([f"sampler={name}"]).sampler) for name in SAMPLERS}
    of_losses = {("loss", name): dataclasses.asdict(compose(overrides_for("loss", name)).loss) for name in LOSSES}
    return {**of_samplers, **of_losses}


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_each_pair_of_sampler_and_loss_converts_or_says_what_would(
    sampler: str, loss: str, sections: dict[tuple[str, str], dict[str, Any]]
) -> None:
    base = compose_once().as_dict()

    def pair(**settings: Any) -> RunConfig:
        chosen = {"sampler": {**sections["sampler", sampler], **settings}, "loss": sections["loss", loss]}
        return to_run_config({**base, **chosen})

    if loss not in SAMPLERS[sampler].losses:
        with pytest.raises(ConfigError, match=f"loss={loss} does not go with sampler={sampler}; valid: "):
            pair()
    elif loss in NEED_EVERY_CLASS and sampler == "exact":
        with pytest.raises(ConfigError, match=r"can not draw them"):
            pair()
    elif loss in NEED_EVERY_CLASS and sampler in ("lsh_label", "lsh_embedding", "sce"):
        with pytest.raises(ConfigError, match=r"can not draw them.*sampler\.num_tail of at least 1"):
            pair()
        assert pair(num_tail=1).loss.name == loss
    else:
        assert pair().loss.name == loss


@functools.cache
def compose_once() -> RunConfig:
    return compose([])


def test_a_sampler_brings_a_loss_that_goes_with_it() -> None:
    for sampler in SAMPLERS:
        assert compose([f"sampler={sampler}"]).loss.name in SAMPLERS[sampler].losses


def test_order_of_overrides_does_not_matter() -> None:
    one = compose(["sampler=uniform", "loss=nce", "sampler.num_samples=7"])
    other = compose(["sampler.num_samples=7", "loss=nce", "sampler=uniform"])
    assert one == other
    assert one.sampler.num_samples == 7
    assert one.loss.name == "nce"


def test_integers_pass_for_floats_and_null_where_allowed() -> None:
    assert compose(["optimizer.lr=1"]).optimizer.lr == 1.0
    assert isinstance(compose(["optimizer.lr=1"]).optimizer.lr, float)
    assert compose(["max_steps=3"]).max_steps == 3
    assert compose(["max_steps=null"]).max_steps is None
    assert compose(["optimizer.lr=1e-3"]).optimizer.lr == 1e-3


def test_config_file_of_a_run_converts_back() -> None:
    """The config.yaml of a run folder is enough to run it again: it gives the same configuration and run_id."""
    original = compose(["sampler=lsh_embedding", "sampler.K=5", "seed=3", "max_steps=4"])
    again = to_run_config(yaml.safe_load(yaml.safe_dump(original.as_dict())))
    assert again == original
    assert again.run_id == original.run_id


# ---------------------------------------------------------------- run_id

BASE = ["sampler=lsh_label"]


@pytest.mark.parametrize("change", [
    "hardware.threads=1", "results_dir=elsewhere", "force=true", "checkpoint_every_seconds=5", "keep_weights=true",
    "hardware.parallel_jobs=2", "tracker=tensorboard",
])  # fmt: skip
def test_run_id_does_not_depend_on_where_and_how(change: str) -> None:
    assert compose([*BASE, change]).run_id == compose(BASE).run_id


@pytest.mark.parametrize("change", [
    "sampler.K=3", "sampler.L=7", "seed=1", "epochs=9", "batch_size=17", "max_steps=5", "optimizer.lr=0.5",
    "optimizer.rows=touched", "model.hidden=9", "sampler=lsh_embedding", "loss=sampled_softmax",
    "dataset=wordnet_related", "evaluation.rows=3", "output.normalize=true", "output.bias=false",
    "diagnostics.every_epochs=1",
])  # fmt: skip
def test_run_id_changes_with_what_can_change_a_number(change: str) -> None:
    assert compose([*BASE, change]).run_id != compose(BASE).run_id


def test_config_file_has_every_setting_and_the_id_what_differs() -> None:
    config = compose(BASE)
    fields = {field.name for field in dataclasses.fields(RunConfig)}
    assert set(config.as_dict()) == fields - {"unused"} - config.unused
    assert config.unused == {"windows", "ranking"}
    assert not {"diagnostics", "output", "training", "plugins", "hardware", "seed"} & set(config.identity)
    normalized = [*BASE, "output.normalize=true"]
    assert compose([*normalized, "output.temperature=0.5"]).run_id != compose(normalized).run_id
    assert to_run_config(compose(normalized).as_dict()) == compose(normalized)
    measured = compose([*BASE, "diagnostics.every_epochs=2"])
    assert measured.as_dict()["diagnostics"] == {"every_epochs": 2, "rows": 64, "draws": 16}
    assert to_run_config(measured.as_dict()) == measured


def test_logits_are_stored_by_numba_alone() -> None:
    """It is said before anything is compiled."""
    stored = ["sampler=full", "sampler.stored_logits=bf16"]
    assert compose(stored).hardware.engine == "numba"
    with pytest.raises(ConfigError, match=r"sampler\.stored_logits=bf16 is for hardware\.engine=numba"):
        compose([*stored, "hardware.engine=torch"])


def test_log_uniform_draws_that_are_drawn_anew_have_ids_of_their_own() -> None:
    plain = [*BASE, "sampler=log_uniform"]
    assert to_run_config(compose(plain).as_dict()) == compose(plain)
    words = ([], ["sampler.rank=label"], ["sampler.until_distinct=true"])
    assert len({compose([*plain, *more]).run_id for more in words}) == 3
    with pytest.raises(ConfigError, match=r"sampler\.until_distinct=true .* sampler\.unique=false"):
        compose([*plain, "sampler.until_distinct=true", "sampler.unique=false"])


def test_every_setting_is_in_the_run_id_unless_it_says_where() -> None:
    assert {
        "hardware.threads",
        "hardware.parallel_jobs",
        "unused",
        "results_dir",
        "force",
        "checkpoint_every_seconds",
        "keep_weights",
        "tracker",
        "method",
        "hardware.timeout",
    } == PLACE_ONLY


def test_where_a_group_does_its_work_is_compared_no_more_than_it_is_in_the_id() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class PlacedConfig(UniformConfig):
        scratch: str = option("/tmp", "folder of the tables", place=True)

    try:
        config = compose([*BASE, "sampler=uniform"])
        placed = [
            dataclasses.replace(config, sampler=PlacedConfig(name="uniform", scratch=folder)) for folder in ("/a", "/b")
        ]
        assert placed[0].run_id == placed[1].run_id == config.run_id
        assert flat(placed[0].as_dict()) == flat(placed[1].as_dict()) == flat(config.as_dict())
    finally:
        PLACE_ONLY.discard("sampler.scratch")


def test_a_gpu_is_in_the_id_and_in_the_name() -> None:
    """A run on a GPU must never pass for one on the CPU."""
    cpu, gpu = compose([*BASE, "hardware=cpu"]), compose([*BASE, "hardware=gpu"])
    assert compose(BASE).run_id == cpu.run_id
    name, _, digest = gpu.run_id.rpartition("-")
    assert name == "wordnet_hypernym-mlp-lsh_label-gpu"
    assert digest != cpu.run_id.rpartition("-")[2]
    assert compose([*BASE, "hardware=gpu", "hardware.threads=1"]).run_id == gpu.run_id


@pytest.mark.parametrize("words", [
    ["seed=0"], ["epochs=4", "batch_size=256"], ["evaluation.rows=2000"], ["sampler=lsh_label"], ["training.clip=null"],
    ["optimizer.lr=0.003"], ["batch_sampler=epoch"], ["output.kind=classes"], ["diagnostics.rows=64"], ["plugins=[]"],
])  # fmt: skip
def test_a_default_that_is_given_explicitly_changes_no_id(words: list[str]) -> None:
    assert compose(words).run_id == compose([]).run_id


def test_defaults_of_the_command_line_are_those_of_the_class() -> None:
    config = compose([])
    for field in dataclasses.fields(RunConfig):
        default = settings.default_of(field)
        if default not in (dataclasses.MISSING, None) and field.name != "unused":
            assert getattr(config, field.name) == default, field.name


def test_run_dir_is_absolute_and_named_by_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = compose([*BASE, "results_dir=here"])
    assert config.run_dir == tmp_path / "here" / "runs" / config.run_id
    assert config.run_id.startswith("wordnet_hypernym-mlp-lsh_label-")


# ---------------------------------------------------------------- mistakes

MISTAKES = [
    # override, what the line says, names it offers
    ("sampler.Kk=5", "Kk", ["K", "L", "max_per_bucket"]),
    ("output.temperature=0.5", "output.normalize=true", []),
    ("diagnostics.rows=7", "diagnostics.every_epochs", []),
    ("sampler.num_sample=5", "num_sample", ["K", "L"]),
    ("optimizer.learning_rate=5", "learning_rate", ["lr", "beta1"]),
    ("+sampler.extra=1", "unknown key 'sampler.extra'", ["K", "L"]),
    ("epoch=5", "unknown key 'epoch'; did you mean 'epochs'?", ["epochs", "seed"]),
    ("smapler=full", "smapler", ["sampler", "model"]),
    ("sampler=unifrom", "unknown option 'sampler=unifrom'; did you mean 'uniform'?", sorted(SAMPLERS)),
    ("dataset=amazon", "unknown option 'dataset=amazon'", ["amazon670k", "wordnet_related"]),
    ("loss=ful", "unknown option 'loss=ful'; did you mean 'full'?", sorted(LOSSES)),
    ("preset=nothing", "unknown option 'preset=nothing'", ["none"]),
    ("sampler.K=abc", "sampler.K: expected int or null, got 'abc'", []),
    ("sampler.K=2.5", "sampler.K: expected int or null, got 2.5", []),
    ("sampler.K=true", "sampler.K: expected int or null, got True", []),
    ("sampler.L=null", "sampler.L: expected int, got None", []),
    ("optimizer.lr=fast", "optimizer.lr: expected float, got 'fast'", []),
    ("max_steps=many", "max_steps: expected int or null, got 'many'", []),
    ("force=1", "force: expected bool, got 1", []),
    ("results_dir=5", "results_dir: expected str, got 5", []),
    ("optimizer.rows=sparse", "optimizer.rows: expected one of dense, touched, catch_up, got 'sparse'", []),
    ("sampler.hash=minhash", "sampler.hash: expected one of simhash, dwta, got 'minhash'", []),
    ("sampler.K=0", "sampler.K must lie in [1, 24] for simhash", []),
    ("sampler.L=0", "sampler.L must lie in [1, 4096]", []),
    ("sampler.sparsity_budget=0", "sampler.sparsity_budget must lie in (0, 1]", []),
    ("sampler.sparsity_budget=nan", "sampler.sparsity_budget must lie in (0, 1]", []),
    ("sampler.max_per_bucket=0", "sampler.max_per_bucket must be at least 1", []),
    ("sampler.min_candidates=0", "sampler.min_candidates must be at least 1", []),
    ("sampler.max_retrieved=0", "sampler.max_retrieved must be null (all) or at least 1", []),
    ("sampler.num_tail=-1", "sampler.num_tail must be 0 or more", []),
    ("sampler.refresh_every_steps=0", "sampler.refresh_every_steps must be at least 1", []),
    ("sampler.refresh_growth=0.5", "sampler.refresh_growth must be at least 1", []),
    ("optimizer.lr=0", "optimizer.lr must be above 0", []),
    ("optimizer.beta1=1", "optimizer.beta1 must lie in [0, 1)", []),
    ("optimizer.beta2=0", "optimizer.beta2 must lie in (0, 1)", []),
    ("optimizer.epsilon=0", "optimizer.epsilon must lie in [1e-30, 1e30]", []),
    ("model.hidden=0", "model.hidden must lie in [1, 4096]", []),
    ("batch_size=0", "batch_size must be at least 1", []),
    ("epochs=0", "epochs must be at least 1", []),
    ("seed=-1", "seed must lie in [0, 2147483647]", []),
    ("max_steps=0", "max_steps must be null or at least 1", []),
    ("checkpoint_every_seconds=0", "checkpoint_every_seconds must be above 0", []),
    ("output.temperature=0", "output.temperature must lie in [1e-6, 1e6]", []),
    ("output.temperature=nan", "output.temperature must lie in [1e-6, 1e6]", []),
    ("training.decay=0.1 epochs=1", "training.decay lowers the learning rate from epoch to epoch", ["2"]),
    ("dataset=text dataset.name=a/b model=lstm", "dataset.name may hold only letters, digits", []),
    ("output.normalise=true", "unknown key 'output.normalise'; did you mean 'normalize'?", ["temperature"]),
    ("evaluation.every_epochs=0", "evaluation.every_epochs must lie in", []),
    ("evaluation.rows=0", "evaluation.rows must be at least 1", []),
    ("diagnostics.every_epochs=0", "diagnostics.every_epochs must be null (never) or at least 1", []),
    ("diagnostics.rows=0", "diagnostics.rows must be at least 1", []),
    ("diagnostics.draws=1", "diagnostics.draws must be at least 2", []),
    ("keep_weights=some", "keep_weights: expected bool or null, got 'some'", []),
    ("hardware.parallel_jobs=0", "hardware.parallel_jobs must be at least 1", []),
    ("hardware.threads=-1", "hardware.threads must be 0 or more", []),
    ("loss=full", "loss=full does not go with sampler=lsh_label; valid: ", ["sampled_softmax", "active_set"]),
    ("dataset.name=nowhere", "nowhere", ["wordnet_hypernym"]),
]


def test_a_presets_key_that_another_option_has_not() -> None:
    with pytest.raises(ConfigError, match=r"loss=full has no key 'correct_target'; valid: name.*the preset did: it is"):
        compose(["preset=midx_lm", "sampler=full"])


@pytest.mark.parametrize(
    ("written", "target"),
    [("-2", -2), ("0", 0), ("price", "price"), ("'2019'", "2019"), ("null", None), ("1.5", None)],
)
def test_a_target_is_a_columns_name_or_index(written: str, target: str | int | None) -> None:
    overrides = ["model=regression", "dataset=regression", f"dataset.target={written}"]
    if target is None:
        with pytest.raises(ConfigError, match=r"dataset\.target: expected str or int, got "):
            compose(overrides)
    else:
        assert compose(overrides).dataset.target == target


def test_a_home_folder_needs_no_second_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("there", "ä b (1), c=d", "it's", "2024"):
        config = compose(["dataset=text", "model=lstm", f"dataset.path=~/{name}"])
        assert config.dataset.path == str(tmp_path / name)
    config = compose(["dataset=text", "model=lstm", "dataset.path='~/there'"])
    with pytest.raises(ConfigError, match="is not a folder"):
        config.dataset.build()
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError):  # the folder is found and is empty
        config.dataset.build()


@pytest.mark.parametrize(("override", "says", "offers"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line(override: str, says: str, offers: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["sampler=lsh_label", *override.split()])
    line = explain(caught.value)
    assert "\n" not in line
    assert len(line) < 550, "a terminal shows it whole"
    assert says in line
    listed = re.split("valid:|choose one of", line)[-1]
    assert set(offers) <= set(re.findall(r"\w+", listed)), "the line lists the names that are valid"


@pytest.mark.parametrize("override", [
    "sampler=topk sampler.num_nearest=0", "sampler=uniform sampler.num_samples=0",
    "sampler=unigram sampler.exponent=-1", "sampler=unigram sampler.exponent=nan",
    "sampler=midx_pq sampler.codewords=0", "sampler=midx_pq sampler.codewords=1025",
    "sampler=midx_pq sampler.num_samples=0", "sampler=midx_pq sampler.refresh_every_steps=0",
    "sampler=midx_pq sampler.exponent=nan", "sampler=midx_pq sampler.kmeans_rows=0",
    "sampler=midx_rq sampler.kmeans_iterations=0", "sampler=midx_rq sampler.beam=0",
    "sampler=midx_learn_pq sampler.learn_classes=0", "sampler=midx_learn_rq sampler.learn_steps=0",
    "sampler=midx_learn_rq sampler.learn_lr=0", "sampler=midx_learn_rq sampler.learn_lr=nan",
    "sampler=midx_learn_rq sampler.beam=0", "sampler=midx_exact sampler.codewords=0",
])  # fmt: skip
def test_other_samplers_check_their_ranges(override: str) -> None:
    with pytest.raises(ConfigError, match=r"sampler\.\w+ must"):
        compose(override.split())


@pytest.mark.parametrize("t", ["-0.1", "1.1", "nan"])
def test_gbce_checks_its_range(t: str) -> None:
    with pytest.raises(ConfigError, match=r"loss\.t must lie in \[0, 1\]"):
        compose(["sampler=uniform", "loss=gbce", f"loss.t={t}"])


def test_a_missing_required_key_says_how_to_set_it() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.name is required: set it on the command line, e\.g\. dataset\.na"):
        to_run_config({**compose([]).as_dict(), "dataset": {"kind": "card"}})


def test_convert_refuses_unknown_keys_of_nested_sections() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'evaluation\.row'; did you mean 'rows'\?"):
        compose(["+evaluation.row=3"])
    with pytest.raises(
        ConfigError, match="unknown key 'rows'; valid: batch, classes, engine, name, parallel_jobs, threads, timeout"
    ):
        convert(settings.HardwareConfig, {"name": "cpu", "rows": 1}, "")


def test_did_you_mean_without_a_near_name() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "; valid: a, b"


# ---------------------------------------------------------------- the command itself


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), [
    (["sampler.K=abc"], "error: sampler.K: expected int or null, got 'abc'"),
    (["sampler=unifrom"], "error: unknown option 'sampler=unifrom'; did you mean 'uniform'?"),
    (["sampler.Kk=1"], "error: unknown key 'sampler.Kk'"),
    (["epoch=1"], "error: unknown key 'epoch'; did you mean 'epochs'?"),
    (["smapler=full"], "error: unknown key 'smapler'; did you mean 'sampler'?"),
    (["sampler.K"], "error: "),
])  # fmt: skip
def test_command_prints_one_line_and_exits_with_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(says)
    assert not list(tmp_path.iterdir()), "a mistake leaves nothing behind"


_HELP = """
import runpy, sys
sys.argv = ["runner", "--help"]
try:
    runpy.run_module("runner", run_name="__main__", alter_sys=True)
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = sorted({"torch", "numba", "sklearn", "scipy", "pandas", "matplotlib"} & set(sys.modules))
assert not heavy, heavy
"""


def test_help_lists_the_choices_and_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HELP], capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("sampler", *SAMPLERS, "wordnet_hypernym", "max_steps", "python -m runner"):
        assert word in done.stdout


def test_compose_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        compose([])
    assert out.getvalue() == ""
    assert capfd.readouterr() == ("", "")
