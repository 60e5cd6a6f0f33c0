"""Encoders compute the same bits with one thread and with two, and training finds the faster number."""

import numpy as np
import pytest
import torch

from runner.config import compose
from runner.machine import threads
from runner.machine.clock import StageClock
from runner.machine.threads import EncoderThreads, set_threads
from runner.network import Network
from runner.parts import task_of

ENCODERS = {
    "lstm": ["dataset=python_topics", "model=lstm", "sampler=uniform", "batch_size=16"],
    "transformer": ["dataset=python_topics", "model=transformer", "sampler=uniform", "batch_size=16"],
    "sasrec": ["dataset=synthetic_log", "model=sasrec", "sampler=uniform"],
    "gru4rec": ["dataset=synthetic_log", "model=gru4rec", "sampler=uniform"],
}


@pytest.fixture
def two_threads() -> None:
    if not threads._products_ignore_threads(set_threads(2)):
        pytest.skip("this processor's BLAS gives other bits with other numbers of threads")


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("name", "dropout"), [
    pytest.param(name, dropout, marks=pytest.mark.slow if (which + has_dropout) % 2 else ())
    for which, name in enumerate(ENCODERS)
    for has_dropout, dropout in enumerate((0.0, 0.2))  # dropout takes another path through torch
])  # fmt: skip
def test_steps_have_the_same_bits_with_one_thread_and_two(
    name: str, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_TRIES", 0)
    config = compose([*ENCODERS[name], f"model.dropout={dropout}"])
    task = task_of(config, config.dataset.build())
    results = []
    for count in (1, 2):
        set_threads(count)
        network = Network.of(task.config, task.build_head(), num_features=task.num_features)
        sampler = config.batch_sampler.build(examples=task.examples, batch_size=config.batch_size, seed=0)
        for step in (1, 2, 3):
            network.train_step(task.batch(sampler.draw(step)), step, StageClock())
        network.read_all(4)
        measured = list(task.evaluate_subset(network).values())
        results.append([*(table.weights.copy() for table in network.tables), np.array(measured)])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def test_our_own_layers_are_torchs() -> None:
    from runner.models.same_bits import TransformerLayer

    ours = TransformerLayer(12, 3, 20, 0.0)
    theirs = torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, activation="gelu", batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    results = []
    for layer in (ours, theirs):
        x = torch.linspace(-1, 1, 2 * 5 * 12).sin().reshape(2, 5, 12).requires_grad_()
        out = layer(x, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(5), is_causal=True)
        (out * torch.linspace(0, 1, 12)).sum().backward()
        results.append([out.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("places", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_attention_that_drops_weights_is_the_formula(places: int) -> None:
    from runner.models.same_bits import causal_attention

    query, key, value = torch.randn(3, 4, 2, places, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def attended(*inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return causal_attention(*inputs, dropped=0.5)

    inputs = [part.clone().requires_grad_() for part in (query, key, value)]
    assert torch.autograd.gradcheck(attended, inputs)
    repeated = [part.repeat(2000, 1, 1, 1) for part in (query, key, value)]
    mean = attended(*repeated).reshape(2000, 4, 2, places, 8).mean(0)
    torch.testing.assert_close(mean, causal_attention(query, key, value, dropped=0.0), atol=0.15, rtol=0)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("faster", [1, 2])
def test_the_faster_number_is_found_and_kept(faster: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now)
    set_threads(2)
    choice, seen = EncoderThreads(), []
    for _ in range(2 * threads._TRIES + 5):
        for is_last in (False, True):
            with choice.part(is_last=is_last):
                seen.append(torch.get_num_threads())
                now += 1.0 if seen[-1] == faster else 2.0
        assert torch.get_num_threads() == 2, "everything else keeps its threads"
    assert set(seen) == {1, 2}, "both are tried"
    assert set(seen[-10:]) == {faster}
