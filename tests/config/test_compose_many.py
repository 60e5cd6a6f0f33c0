"""Runs of a table, composed together, have the configurations that each would have alone."""

from collections.abc import Callable

import pytest

from runner import config as config_module
from runner.config import compose, compose_one_of_many
from runner.errors import ConfigError
from runner.options.settings import RunConfig


@pytest.mark.parametrize("words", [
    "sampler=uniform sampler.num_samples=7 optimizer.lr=1e-3 dataset.valid_share=0.1",
    "preset=lns dataset=wordnet_hypernym epochs=2 sampler.K=5",
    "sampler.K=4 sampler=lsh_label seed=2 seed=3",
    "max_steps=null max_steps=5",
    "max_steps=5 max_steps=null",
    "optimizer.lr=1",
    "max_steps=007",
    "sampler=lsh_embedding sampler.num_tail=10 sampler.tail_distribution=unigram",
    "sampler=lsh_embedding sampler.tail_distribution=unigram",
    "sampler.Kk=3",
    "sampler.K=0",
    "epochs.x=3",
    "sampler=3",
    "sampler=unifrom epochs=2",
    "dataset=text model=lstm epochs=2",
    "max_steps=5 ++max_steps=null",
    "max_steps=5 +max_steps=null",
    "evaluation.rows=5 evaluation={rows:7}",
    "evaluation={rows:7} evaluation.rows=5",
    "method=lsh sampler.K=6",
    "method=lsh preset=midx_lm sampler.K=6",
    "method=0",
    "preset=0",
    "preset=3",
    "[seed]=3",
    "seed.=3",
    "seed =3",
    "optimizer.lr =0.01",
    pytest.param(f"seed={'1' * 5000}", id="many digits"),
])  # fmt: skip
def test_one_of_many_is_composed_as_it_is_alone(words: str) -> None:
    """Numbers set in what was composed before give the same configuration or the same error."""

    def outcome(composing: Callable[[tuple[str, ...]], RunConfig]) -> RunConfig | str:
        try:
            return composing(tuple(words.split()))
        except ConfigError as error:
            return str(error)

    assert outcome(compose_one_of_many) == outcome(compose)


def test_many_that_differ_in_numbers_are_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that no other test has are composed for the first of three epochs alone."""
    asked = []
    by_hydra = config_module._compose_unchecked
    monkeypatch.setattr(config_module, "_compose_unchecked", lambda words: asked.append(words) or by_hydra(words))
    for epochs in (71, 72, 73):
        words = ("sampler=uniform", "loss=nce", f"epochs={epochs}", "max_steps=null")
        assert compose_one_of_many(words).epochs == epochs
    assert len(asked) == 1
