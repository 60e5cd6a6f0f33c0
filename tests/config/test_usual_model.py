"""A data set that is named without a model gets the usual model of its family, on the command line and in tables."""

import pytest
import yaml

from runner.config import CONF, USUAL_MODELS, compose, with_usual_model

DATASETS = sorted(path.stem for path in (CONF / "dataset").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_data_set_runs_by_its_name_alone(dataset: str) -> None:
    words = with_usual_model([f"dataset={dataset}"])
    config = compose(words)
    assert config.model.reads == config.dataset.family
    assert words[1:] == ([f"model={USUAL_MODELS[config.dataset.family]}"] if config.dataset.family != "rows" else [])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["seed=3"],
        ["dataset=ptb", "model=transformer"],
        ["model=mlp", "dataset=ptb"],
        ["dataset=ptb", "preset=midx_lm"],
        ["dataset=ml100k", "method=popularity"],
        ["-m", "dataset=ml100k", "method=full,popularity"],
        ["dataset=ptb,wordnet_related"],
        ["dataset=no_such"],
        ["dataset=../dataset/ptb"],
        ["dataset={a: 1}"],
        ["dataset="],
        ["dataset.path=model=x"],
        ["-m", "--help"],
    ],
)
def test_words_that_stay(words: list[str]) -> None:
    assert with_usual_model(words) == words


def test_a_sweep_over_data_sets_of_one_family() -> None:
    words = ["-m", "dataset=ptb,wikitext2", "preset=none"]
    assert with_usual_model(words) == [*words, "model=lstm"]


def test_a_method_that_is_no_model_goes_with_the_usual_one() -> None:
    words = ["-m", "dataset=ptb", "method=full,nce"]
    assert with_usual_model(words) == [*words, "model=lstm"]


def test_usual_models_exist() -> None:
    for family, model in USUAL_MODELS.items():
        file = CONF / "model" / f"{model}.yaml"
        written = yaml.safe_load(file.read_text())
        assert model in str(written), family
