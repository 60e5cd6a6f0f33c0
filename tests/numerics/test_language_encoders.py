"""Language models against torch: whole training steps, tied and untied; states carried; dropout by step.

Legend: N words, which are the classes; B rows of a batch, T tokens of a window.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from runner.config import compose
from runner.contracts import TrainingFacts, steps_per_epoch
from runner.data.text.batches import Cut, TextBatch, Windows
from runner.errors import ConfigError
from runner.heads.classes import ClassesHead
from runner.lgd.epoch import EpochConfig
from runner.machine.clock import StageClock
from runner.machine.device import device_of, settled
from runner.models.recurrent import TextEncoder, positions
from runner.network import ClassNetwork, Network
from runner.options.settings import RunConfig
from runner.samplers.hashed import Hashed

N, B, T = 40, 4, 6
SMALL = {
    "lstm": ["model=lstm", "model.hidden=12", "model.embedding=12"],
    "transformer": ["model=transformer", "model.embedding=12", "model.heads=3", "model.feed_forward=20"],
}
PLAIN = ["dataset=python_topics", "sampler=full", "model.dropout=0", f"batch_size={B}", f"windows.length={T}"]


def epoch_batches(
    tokens_n: np.ndarray, batch_size: int, length: int, cut: Cut, *, seed: int, epoch: int, first: int = 0
) -> Iterator[TextBatch]:
    """The training batches of an epoch (0-based) from the ``first`` on."""
    windows = Windows(tokens_n=tokens_n, batch_size=batch_size, length=length, cut=cut)
    sampler = EpochConfig().build(examples=windows.examples, batch_size=batch_size, seed=seed)
    steps = steps_per_epoch(windows.examples.count, batch_size)
    for number in range(first, steps):
        yield windows.batch(sampler.draw(epoch * steps + number + 1).rows_B)


def network_of(config: RunConfig) -> tuple[ClassNetwork, TextEncoder]:
    facts = TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64))
    network = Network.of(config, ClassesHead.of(config, facts), num_features=N)
    assert isinstance(network.encoder, TextEncoder)
    return network, network.encoder


def text_of(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, N, length).astype(np.int32)


def batch_of(tokens_n: np.ndarray, begin: int, end: int, *, starts_anew: bool) -> TextBatch:
    """One row."""
    here = tokens_n[None, begin : end + 1]
    return TextBatch(tokens_BT=here[:, :-1].copy(), targets_BT=here[:, 1:].copy(), starts_anew=starts_anew)


# ---------------------------------------------------------------- whole steps


class Theirs(nn.Module):
    """The same network in plain torch, weights copied from ours."""

    def __init__(self, config: RunConfig, network: ClassNetwork, encoder: TextEncoder) -> None:
        super().__init__()
        table = network.head.layer.table
        self.words = nn.Parameter(torch.from_numpy(encoder.words.weights.copy()))
        tied = encoder.words is table
        self.classes = self.words if tied else nn.Parameter(torch.from_numpy(table.weights.copy()))
        self.bias = nn.Parameter(torch.from_numpy(table.biases().copy()), requires_grad=config.output.bias)
        self.module = config.model.make_module()
        self.module.load_state_dict(encoder.module.state_dict())
        self.scale = network.head.layer.scale

    def logits(
        self, batch: TextBatch, state: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        tokens = torch.from_numpy(batch.tokens_BT.astype(np.int64))
        hidden, after = self.module(self.words[tokens], state)
        hidden = hidden.reshape(-1, hidden.shape[-1])
        if self.scale is None:
            return hidden @ self.classes.T + self.bias, after
        unit = nn.functional.normalize
        return self.scale * unit(hidden) @ unit(self.classes).T, after


@pytest.mark.parametrize("how", [
    "optimizer=adam", "optimizer=adam optimizer.rows=dense", "optimizer=sgd optimizer.lr=2 training.clip=0.25",
    "optimizer=adam training.clip=0.5", "optimizer=adam output.normalize=true",
    "optimizer=adam output.bias=false", "optimizer=sgd optimizer.lr=2 training.clip=0.25 output.bias=false",
])  # fmt: skip
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model", sorted(SMALL))
def test_training_is_torchs(model: str, tied: bool, how: str) -> None:
    """Ten steps of full softmax: losses and every weight, against autograd and torch.optim.

    Untied words that a step lacks have gradient 0, so that they move by their momentum only.
    """
    choices = [*PLAIN, *SMALL[model], f"model.tied={str(tied).lower()}", *how.split()]
    config = compose(choices)
    network, encoder = network_of(config)
    theirs = Theirs(config, network, encoder)
    lr = config.optimizer.lr
    optimizer: torch.optim.Optimizer = torch.optim.Adam(theirs.parameters(), lr=lr)
    if config.optimizer.name == "sgd":
        optimizer = torch.optim.SGD(theirs.parameters(), lr=lr)
    before = theirs.classes.detach().clone()
    step, state = 0, theirs.module.start(B)
    for epoch in range(2):
        for batch in epoch_batches(text_of(5 * B * T + 3), B, T, "contiguous", seed=0, epoch=epoch):
            step += 1
            scores = network.train_step(batch, step, StageClock())
            loss = scores.loss
            assert scores.candidates_per_row == N
            if batch.starts_anew:
                state = theirs.module.start(B)
            logits, state = theirs.logits(batch, state)
            state = tuple(part.detach() for part in state)
            exact = nn.functional.cross_entropy(logits, torch.from_numpy(batch.targets.astype(np.int64)))
            assert loss == pytest.approx(exact.item(), rel=2e-4)
            optimizer.zero_grad()
            exact.backward()
            if config.training.clip is not None:
                nn.utils.clip_grad_norm_(theirs.parameters(), config.training.clip)
            optimizer.step()
    assert step == 10
    network.read_all(step + 1)
    moved = float((theirs.classes.detach() - before).abs().mean())
    assert moved > 1e-3
    pairs = [(network.head.layer.table.weights, theirs.classes), (encoder.words.weights, theirs.words)]
    for (name, ours), other in zip(encoder.module.named_parameters(), theirs.module.parameters(), strict=True):
        if name.endswith("in_proj_bias"):  # a key's bias cancels in attention: its gradient is rounding noise
            pairs += [(ours[here].detach().numpy(), other[here]) for here in (slice(0, 12), slice(24, 36))]
        else:
            pairs.append((ours.detach().numpy(), other))
    if not config.output.normalize:
        pairs.append((network.head.layer.table.biases(), theirs.bias))
    for ours, other in pairs:
        # Adam divides by gradients, so that an element whose gradient is rounding noise may go anywhere: quantile.
        difference = np.abs(ours - other.detach().numpy())
        assert np.quantile(difference, 0.98) < 0.01 * moved
        assert difference.max() < 0.5 * moved + 2 * lr * (config.optimizer.name == "adam")


def test_full_softmax_and_the_exact_measure_agree() -> None:
    network, encoder = network_of(compose([*PLAIN, *SMALL["lstm"]]))
    batch = batch_of(text_of(30), 0, 29, starts_anew=True)
    exact = network.head.layer.cross_entropy(encoder.encode(batch), batch.targets)
    loss = network.train_step(batch, 1, StageClock()).loss
    assert exact.mean() == pytest.approx(loss, rel=1e-5)


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("layers", [1, 3])
def test_a_carried_state_equals_one_long_pass(layers: int) -> None:
    _, encoder = network_of(compose([*PLAIN, *SMALL["lstm"], f"model.layers={layers}"]))
    tokens_n = text_of(41)
    whole = encoder.encode(batch_of(tokens_n, 0, 40, starts_anew=True))
    state, parts, trained = encoder.start(1), [], []
    for begin in range(0, 40, 10):
        batch = batch_of(tokens_n, begin, begin + 10, starts_anew=begin == 0)
        hidden, state = encoder.go_on(batch, state)
        parts.append(hidden)
        trained.append(encoder.forward(batch, 1).copy())
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(trained), whole, atol=1e-6)
    anew = encoder.forward(batch_of(tokens_n, 0, 10, starts_anew=True), 1)
    np.testing.assert_allclose(anew, whole[:10], atol=1e-6)


def test_fewer_rows_go_on_from_the_first_ones() -> None:
    _, encoder = network_of(compose([*PLAIN, *SMALL["lstm"]]))
    tokens = text_of(60).reshape(3, 20)
    both = TextBatch(tokens_BT=tokens[:, :8], targets_BT=tokens[:, 1:9], starts_anew=True)
    _, state = encoder.go_on(both, encoder.start(3))
    first = TextBatch(tokens_BT=tokens[:2, 8:9], targets_BT=tokens[:2, 9:10], starts_anew=False)
    hidden, _ = encoder.go_on(first, state)
    whole = encoder.encode(TextBatch(tokens_BT=tokens[:2, :9], targets_BT=tokens[:2, 1:10], starts_anew=True))
    np.testing.assert_allclose(hidden, whole.reshape(2, 9, -1)[:, 8], atol=1e-6)


def test_evaluation_leaves_the_state_of_training_alone() -> None:
    _, encoder = network_of(compose([*PLAIN, *SMALL["lstm"]]))
    encoder.forward(batch_of(text_of(20), 0, 9, starts_anew=True), 1)
    before = encoder.state_dict()["carried"]
    encoder.encode(batch_of(text_of(20), 9, 19, starts_anew=True))
    np.testing.assert_array_equal(encoder.state_dict()["carried"], before)
    assert before.shape == (2, 2, 1, 12)


def test_a_transformer_looks_back_only() -> None:
    _, encoder = network_of(compose([*PLAIN, *SMALL["transformer"]]))
    tokens = text_of(20).reshape(2, 10)
    hidden = encoder.encode(TextBatch(tokens_BT=tokens, targets_BT=tokens, starts_anew=True)).reshape(2, 10, -1)
    changed = tokens.copy()
    changed[0, 6] = (changed[0, 6] + 1) % N
    other = encoder.encode(TextBatch(tokens_BT=changed, targets_BT=tokens, starts_anew=True)).reshape(2, 10, -1)
    same = np.abs(hidden - other).max(2) < 1e-5
    assert same[0, :6].all()
    assert not same[0, 6:].any()
    assert same[1].all()


def test_positions_are_those_of_the_paper() -> None:
    table = positions(50, 8)
    assert table.shape == (50, 8)
    np.testing.assert_allclose(table[7, 0], np.sin(7), rtol=1e-5)
    np.testing.assert_allclose(table[7, 5], np.cos(7 / 10_000 ** (1 / 4)), rtol=1e-5)
    assert positions(3, 5).shape == (3, 5)


# ---------------------------------------------------------------- randomness


@pytest.mark.parametrize("model", sorted(SMALL))
def test_dropout_is_a_function_of_seed_and_step(model: str) -> None:
    choices = [*PLAIN, *SMALL[model], "model.dropout=0.5"]
    (_, one), (_, other), (_, third) = (network_of(compose([*choices, f"seed={seed}"])) for seed in (1, 1, 2))
    batch = batch_of(text_of(20), 0, 19, starts_anew=True)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = one.forward(batch, 1).copy(), one.forward(batch, 2).copy()
    assert torch.equal(torch.random.get_rng_state(), before), "torch's own numbers are left alone"
    torch.manual_seed(6)
    np.testing.assert_array_equal(other.forward(batch, 2), second)
    np.testing.assert_array_equal(other.forward(batch, 1), first)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(one.encode(batch), other.encode(batch))
    assert not np.array_equal(one.encode(batch), third.encode(batch))


@pytest.mark.parametrize("model", sorted(SMALL))
@pytest.mark.parametrize("tied", ["true", "false"])
def test_init_bounds_every_weight_but_norms(model: str, tied: str) -> None:
    choices = [*PLAIN, *SMALL[model], "model.init=0.1", f"model.tied={tied}"]
    network, encoder = network_of(compose(choices))
    held = [
        network.head.layer.table.weights,
        encoder.words.weights,
        *(p.detach().numpy() for name, p in encoder.module.named_parameters() if "norm" not in name),
    ]
    for weights in held:
        assert 0 < np.abs(weights).max() <= 0.1
    assert all(
        (p == 1).all()
        for name, p in encoder.module.named_parameters()
        if name.endswith(("norm1.weight", "norm2.weight"))
    )
    assert network.head.layer.table.weights.std() == pytest.approx(0.1 / 3**0.5, rel=0.1)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(("choice", "says"), [
    ("model=lstm model.hidden=64", r"model\.tied=true needs model\.hidden \(64\) and model\.embedding \(200\)"),
    ("model=lstm model.dropout=1", r"model\.dropout must lie in \[0, 1\)"),
    ("model=lstm model.layers=0", r"model\.layers must lie in \[1, 64\]"),
    ("model=lstm model.init=0", r"model\.init must be null or lie in \(0, 10\]"),
    ("model=transformer model.heads=7", r"model\.embedding \(200\) must be a multiple of model\.heads \(7\)"),
    ("model=transformer model.feed_forward=0", r"model\.feed_forward must lie in \[1, 65536\]"),
    ("model=lstm model.heads=2", r"unknown key 'model\.heads'"),
    ("training.clip=0", r"training\.clip must be null \(no limit\) or above 0"),
    ("training.anneal=1", r"training\.anneal must be null \(no change\) or lie in \(0, 1\)"),
    ("training.patience=0", r"training\.patience must be null \(never\) or at least 1"),
    ("windows.length=0", r"windows\.length must lie in \[1, 65536\]"),
    ("windows.cut=random", r"windows\.cut: expected one of contiguous, chunked"),
])  # fmt: skip
def test_a_mistake_names_its_key(choice: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose(choice.split())


# ---------------------------------------------------------------- another engine


@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("model", sorted(SMALL))
def test_an_encoder_of_tensors_takes_the_same_steps(model: str, tied: str) -> None:
    """Where the class matrix is held in tensors, so are the encoder's weights, and gradients never become arrays."""
    choices = [*SMALL[model], *PLAIN, "model.dropout=0.5", f"model.tied={tied}", "optimizer.lr=0.01"]
    losses, states = [], []
    for engine in ("numba", "torch"):
        network, encoder = network_of(compose([*choices, f"hardware.engine={engine}"]))
        batches = list(epoch_batches(text_of(200), B, T, "contiguous", seed=0, epoch=0))
        assert isinstance(encoder.forward(batches[0], 1), torch.Tensor if engine == "torch" else np.ndarray)
        network, _ = network_of(compose([*choices, f"hardware.engine={engine}"]))
        losses.append([network.train_step(batch, step, StageClock()).loss for step, batch in enumerate(batches, 1)])
        network.read_all(len(batches) + 1)
        states.append(network.state_dict())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for name, array in states[0].items():
        if name.endswith("weights"):  # Adam makes a step of rounding where a gradient is zero, as that of key biases
            assert (np.abs(states[1][name] - array) > 1e-4).mean() < 0.02, name


def test_without_a_gpu_the_run_says_so_and_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for arguments, why in (
        (["dataset=python_topics", "model=lstm"], "torch finds no GPU that it can use"),
        (["dataset=wordnet_hypernym"], "torch finds no GPU that it can use"),
    ):
        config = compose([*arguments, "hardware=gpu", "hardware.threads=1"])
        run_here = settled(config)
        assert run_here.run_id == compose(arguments).run_id != config.run_id
        assert (run_here.hardware.name, run_here.hardware.threads) == ("cpu", 1)
        said = capsys.readouterr().err
        assert said.startswith(f"hardware=gpu: no GPU is used, because {why}")
        assert said.endswith("; the run uses the CPU\n")
        assert said.count("\n") == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = compose(["dataset=python_topics", "model=lstm", "hardware=gpu"])
    assert settled(config) == config
    assert device_of(config.hardware) == torch.device("cuda")


def test_tied_input_words_are_told_to_the_sampler() -> None:
    """Every row that a step moves, input words included, is one that hash tables will follow."""
    chosen = ["sampler=lsh", "sampler.num_samples=1", "sampler.K=3", "sampler.L=2", "output.bias=false"]
    config = compose([*PLAIN[:1], *PLAIN[2:], *SMALL["lstm"], *chosen])
    network, _ = network_of(config)
    sampler = network.head.sampler
    assert isinstance(sampler, Hashed)
    before = network.head.layer.table.weights.copy()
    network.train_step(batch_of(text_of(12), 0, 11, starts_anew=True), 1, StageClock())
    moved = np.flatnonzero((network.head.layer.table.weights != before).any(axis=1))
    assert len(moved) > 11, "input words that are no targets move too"
    assert set(moved) <= set(sampler.classes.changed_since(0).tolist())
