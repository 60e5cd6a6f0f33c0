"""Every file of conf/method is a method that composes, has a look and a caveat, and gives its name to its runs."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml

from runner.config import CONF, compose, to_run_config
from runner.diagnosis.examples import SAMPLERS as EXAMPLE_SAMPLERS
from runner.errors import ConfigError
from runner.methods.catalogue import known_method, known_methods, label_of, method_names
from runner.options.settings import RunConfig
from runner.report.numbers.records import RunRecord
from runner.sweeps.plan import plan_jobs
from runner.training.run import run

# What a method goes with if it does not go with the default data set and model.
DATASETS = {"adaptive_softmax": "ptb", "popularity": "ml100k", "markov": "ml100k", "item_knn": "ml100k"}
TINY = ["max_steps=2", "dataset=synthetic_xc", "dataset.num_train=200", "dataset.num_test=20"]


def words_of(method: str) -> list[str]:
    """Return words that choose the method and a data set that it goes with."""
    of_examples = "batch_sampler" in known_method(method).choices
    dataset = DATASETS.get(method, "diabetes" if of_examples else "wordnet_hypernym")
    return [f"method={method}", f"dataset={dataset}"]


@pytest.mark.parametrize("method", method_names())
def test_every_method_composes_and_names_its_run(method: str) -> None:
    config = compose(words_of(method))
    assert config.method == config.method_name == method
    assert config.as_dict()["method"] == method
    assert to_run_config(config.as_dict()) == config


def test_a_method_has_the_name_of_its_file_a_label_a_caveat_and_a_look() -> None:
    assert len(known_methods()) == len(method_names()) > 40
    for name, method in known_methods().items():
        assert method.name == name
        assert method.label
        assert method.caveat
        assert method.colour
        assert method.marker
    assert label_of("nce") == "NCE"
    assert label_of("a_plugins_sampler") == "a_plugins_sampler"


def test_a_method_sets_only_what_is_compared() -> None:
    """Presets come after methods, and words of the command line after both; so no preset names sampler or loss."""
    for path in (CONF / "preset").glob("*.yaml"):
        written = yaml.safe_load(path.read_text()) or {}
        chosen = [key for entry in written.get("defaults", []) if isinstance(entry, dict) for key in entry]
        assert not {"override /sampler", "override /loss", "override /batch_sampler"} & set(chosen), path.name
    for name, method in known_methods().items():
        assert set(method.choices) <= {"sampler", "loss", "batch_sampler", "model"}, name


def test_the_name_is_no_part_of_the_run_id() -> None:
    named, unnamed = compose(["method=full"]), compose(["sampler=full"])
    assert unnamed.method is None
    assert unnamed.method_name == "full"
    assert unnamed.as_dict()["method"] is None
    assert named.run_id == unnamed.run_id
    assert dataclasses.replace(named, method=None) == unnamed


@pytest.mark.parametrize(("words", "method"), [
    (["method=lsh", "sampler.K=6"], "lsh"),  # numbers are a method's dials
    (["method=nce", "sampler.num_samples=50"], "nce"),
    (["method=nce", "sampler.unique=true"], None),
    (["method=nce", "loss=sampled_softmax"], None),
    (["method=lsh_label_shared", "sampler.shared=false"], None),
    (["method=lgd_printed", "dataset=diabetes", "batch_sampler.max_weight=10"], None),
    (["preset=midx_lm"], "midx_rq"),
    (["preset=midx_lm", "method=lsh"], "lsh"),
    (["preset=midx_lm", "sampler=uniform"], None),
    (["preset=lns", "dataset=odp"], "lsh_label_printed"),
    (["preset=lns", "dataset=odp", "sampler=lsh_embedding"], None),
    (["preset=lgd"], "lgd_printed"),
])  # fmt: skip
def test_a_run_is_of_a_method_if_it_has_what_the_method_chooses(words: list[str], method: str | None) -> None:
    config = compose(words)
    assert config.method == method
    assert config.method_name == (method or config.sampler_name)


@pytest.mark.parametrize(("words", "message"), [
    (["method=ncee"], r"unknown option 'method=ncee'; did you mean 'nce'\? valid: adaptive_softmax, .*uniform"),
    (["preset=nce"], "unknown option 'preset=nce'; it is a method: write method=nce"),
    (["method=popularity", "model=sasrec"], "method=popularity is model=popularity, but model=sasrec was chosen too"),
    (["method=nce", "method.label=Mine"], r"method\.label cannot be set: a method is a file of conf/method"),
    (["preset=midx_recommendation", "method=gsasrec"], "loss=gbce has no key 'correct_target'.*the method or the pre"),
])  # fmt: skip
def test_a_mistake_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        compose(words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("wrong", "message"), [
    ('colour: "grey"', r"conf/method/mine\.yaml: colour: expected #RRGGBB, got 'grey'"),
    ('color: "#123456"', r"conf/method/mine\.yaml: unknown key 'method\.color'; did you mean 'colour'\?"),
])  # fmt: skip
def test_a_mistake_in_a_file_names_the_file(wrong: str, message: str, tmp_path: Path) -> None:
    text = (CONF / "method" / "nce.yaml").read_text()
    folder = tmp_path / "conf" / "method"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(re.sub(r"colour: .*", wrong, text))
    with pytest.raises(ConfigError, match=message):
        known_method("mine", folder)


def test_a_sweep_over_methods_gives_each_its_model() -> None:
    combinations = [["method=full", "dataset=ml100k"], ["method=popularity", "dataset=ml100k"]]
    composed: list[RunConfig] = []
    jobs = plan_jobs(combinations, lambda words: composed.append(compose(words)) or composed[-1])
    assert [job.failure for job in jobs] == [None, None]
    assert [job.text for job in jobs] == ["method=full", "method=popularity"]
    assert [config.model.name for config in composed] == ["sasrec", "popularity"]
    assert [config.method for config in composed] == ["full", "popularity"]
    assert "model=sasrec" in jobs[0].overrides


def test_methods_of_the_bench_and_of_diagnoses_are_in_the_catalogue() -> None:
    from runner.bench.methods import LANGUAGE_METHODS, METHODS, SAMPLERS

    first = {words[0] for words in (*METHODS.values(), *SAMPLERS.values(), *LANGUAGE_METHODS.values())}
    chosen = {word.removeprefix("method=") for word in first} | set(EXAMPLE_SAMPLERS.values())
    assert chosen <= set(method_names())


def test_a_run_stores_its_method(tmp_path: Path) -> None:
    folder = run(compose([*TINY, "method=lsh_label_shared", f"results_dir={tmp_path}"]))
    assert "method: lsh_label_shared" in (folder / "config.yaml").read_text()
    assert json.loads((folder / "summary.json").read_text())["config"]["method"] == "lsh_label_shared"
    assert RunRecord(folder).method_name == "lsh_label_shared"
    again = run(compose([*TINY, "sampler=lsh_label", "sampler.shared=true", f"results_dir={tmp_path}"]))
    assert again == folder, "the same settings are the same run"


GOOD = """defaults:
  - override /sampler: uniform
method: {name: odd, label: Odd, caveat: none, colour: "#123456", marker: o}
"""


_CHOICE = "- override /sampler: uniform"


@pytest.mark.parametrize(("written", "why"), [
    (GOOD.replace("{", "{{"), "not YAML"),
    ("sampler: {}\n", "its section method lacks name, label, caveat, colour, marker"),
    ("- 1\n", "expected a mapping"), ("method: [1]\n", "method: expected a mapping of keys"),
    ("defaults: base\nmethod: {}\n", "defaults: expected a list"),
    (GOOD.replace(_CHOICE, "- nobody"), "defaults: there is no file nobody.yaml"),
    (GOOD.replace(_CHOICE, "- odd"), "defaults: odd.yaml builds on itself"),
    (GOOD.replace(_CHOICE, "- other"), "other.yaml: defaults: odd.yaml builds on itself"),
    ("method: \u00e9\n", "not UTF-8; save it as UTF-8"),
])  # fmt: skip
def test_a_mistake_in_a_file_of_a_method_is_one_line(written: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(written, encoding="latin-1" if "UTF-8" in why else "utf-8")
    (tmp_path / "other.yaml").write_text(GOOD.replace("- override /sampler: uniform", "- odd"))
    with pytest.raises(ConfigError) as error:
        known_method("odd", tmp_path)
    assert "odd.yaml" in str(error.value)
    assert why in str(error.value)
    assert "\n" not in str(error.value)
    file.write_text(GOOD)
    known_method.cache_clear()
    assert known_method("odd", tmp_path).choices == {"sampler": "uniform"}
