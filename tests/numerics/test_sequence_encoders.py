"""Models of sequences against torch: padded attention and recurrent layers window by window; dropout and its draws.

Legend: S windows, T items of the longest window, X items of a batch's windows, B rows of a batch, E size of an item's
vector, D hidden size, N items.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runner import rng
from runner.config import compose
from runner.contracts import TrainingFacts
from runner.data.sequences.batches import SequenceBatch, SequenceWindows, windows_before
from runner.errors import ConfigError
from runner.heads.classes import ClassesHead
from runner.machine.clock import StageClock
from runner.models.parameters import draws_of
from runner.models.sequence_encoder import Dropout, Gru, SelfAttention, SequenceEncoder, step_order
from runner.network import ClassNetwork, Network
from runner.options.settings import RunConfig
from runner.output.layer import RowGradient

N, E, LENGTH = 30, 12, 7
SMALL = {
    "sasrec": ["model=sasrec", "model.heads=3", "model.feed_forward=20", "model.layers=2"],
    "gru4rec": ["model=gru4rec", "model.hidden=10", "model.layers=2"],
}
MODELS = sorted(SMALL)


def config_of(model: str, *more: str) -> RunConfig:
    # Large first vectors, so that attention is far from uniform.
    common = [f"model.embedding={E}", f"model.length={LENGTH}", "model.dropout=0", "model.init=1", "sampler=full"]
    return compose([*SMALL[model], *common, *more])


def network_of(config: RunConfig) -> tuple[ClassNetwork, SequenceEncoder]:
    facts = TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64))
    network = Network.of(config, ClassesHead.of(config, facts), num_features=N)
    assert isinstance(network.encoder, SequenceEncoder)
    return network, network.encoder


def windows(seed: int = 0) -> SequenceWindows:
    """Cut the events of eight users, of 1 to 18 events, into windows of 1 to LENGTH items."""
    count_U = np.array([18, 3, 1, 8, 2, 8, 5, 16])
    end_U = np.cumsum(count_U)
    items_E = np.random.default_rng(seed).integers(0, N, end_U[-1]).astype(np.int32)
    return SequenceWindows(items_E=items_E, begin_U=end_U - count_U, end_U=end_U, length=LENGTH)


def batch_of(seed: int = 0) -> SequenceBatch:
    cut = windows(seed)
    batch = cut.batch(np.arange(cut.examples.count))
    assert set(batch.length_S) >= {1, 2, 3, LENGTH}
    assert len(set(batch.length_S)) < len(batch.length_S), "some windows are equally long"
    return batch


# ---------------------------------------------------------------- the same networks in plain torch


class PaddedAttention(nn.Module):
    """SASRec on padded windows (S, T, E), by ``nn.MultiheadAttention`` with a causal mask and a mask of the padding."""

    def __init__(self, ours: SelfAttention) -> None:
        super().__init__()
        self.positions = nn.Parameter(ours.positions.weight.detach().clone().double())
        self.layers = nn.ModuleList()
        for layer in ours.layers:
            attention = nn.MultiheadAttention(E, layer.heads, batch_first=True, dtype=torch.float64)
            widths = nn.Linear(E, layer.forward_part[0].out_features), nn.Linear(layer.forward_part[0].out_features, E)
            parts = nn.ModuleDict(
                {"attention": attention, "before": nn.LayerNorm(E), "between": nn.LayerNorm(E), "in": widths[0],
                 "out": widths[1]}
            )  # fmt: skip
            parts.double()
            with torch.no_grad():
                attention.in_proj_weight.copy_(layer.into.weight)
                attention.in_proj_bias.copy_(layer.into.bias)
            for part, source in (
                (attention.out_proj, layer.out_of), (parts["before"], layer.norm_attention),
                (parts["between"], layer.norm_forward), (parts["in"], layer.forward_part[0]),
                (parts["out"], layer.forward_part[3]),
            ):  # fmt: skip
                part.load_state_dict(source.state_dict())
            self.layers.append(parts)
        self.norm = nn.LayerNorm(E, dtype=torch.float64)
        self.norm.load_state_dict(ours.norm.state_dict())

    def forward(self, x_XE: Tensor, length_S: np.ndarray) -> Tensor:
        rows = x_XE.split(length_S.tolist())
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # padding comes last, unlike in the authors' code
        longest = padded.shape[1]
        lengths = torch.from_numpy(length_S)
        place_ST = lengths[:, None] - 1 - torch.arange(longest)
        is_padding_ST = place_ST < 0
        out = math.sqrt(E) * padded + self.positions[place_ST.clamp(min=0)]
        future_TT = torch.ones(longest, longest, dtype=torch.bool).triu(1)
        for part in self.layers:
            normed = part["before"](out)  # type: ignore[index]
            attended, _ = part["attention"](  # type: ignore[index]
                normed, normed, normed, attn_mask=future_TT, key_padding_mask=is_padding_ST, need_weights=False
            )
            out = out + attended
            out = out + part["out"](torch.relu(part["in"](part["between"](out))))  # type: ignore[index]
        return self.norm(out)[~is_padding_ST]

    def in_our_order(self) -> list[nn.Parameter]:
        """The parameters in the order of ``SelfAttention.parameters()``."""
        found = [self.positions]
        for part in self.layers:
            modules = [part["before"], part["between"]]  # type: ignore[index]
            attention = part["attention"]  # type: ignore[index]
            found += [parameter for module in modules for parameter in module.parameters()]
            found += [attention.in_proj_weight, attention.in_proj_bias, *attention.out_proj.parameters()]
            found += [*part["in"].parameters(), *part["out"].parameters()]  # type: ignore[index]
        return [*found, *self.norm.parameters()]


class OneByOne(nn.Module):
    """GRU4Rec by ``nn.GRU`` on each window alone."""

    def __init__(self, ours: Gru) -> None:
        super().__init__()
        self.gru = nn.GRU(E, ours.gru.hidden_size, ours.gru.num_layers, dtype=torch.float64)
        self.gru.load_state_dict(ours.gru.state_dict())
        self.project = nn.Linear(ours.gru.hidden_size, E, dtype=torch.float64)
        self.project.load_state_dict(ours.project.state_dict())

    def forward(self, x_XE: Tensor, length_S: np.ndarray) -> Tensor:
        return torch.cat([self.project(self.gru(rows)[0]) for rows in x_XE.split(length_S.tolist())])

    def in_our_order(self) -> list[nn.Parameter]:
        return list(self.parameters())


def theirs_of(encoder: SequenceEncoder) -> Any:
    module = encoder.module
    return PaddedAttention(module) if isinstance(module, SelfAttention) else OneByOne(module)


def assert_close(ours: np.ndarray, theirs: Tensor | None) -> None:
    """Compare float32 results with float64 ones; rounding grows with the largest element."""
    assert theirs is not None
    exact = theirs.detach().numpy()
    assert ours.shape == exact.shape
    np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=2e-5 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tied", ["true", "false"])
def test_hidden_states_and_gradients_are_torchs(model: str, tied: str) -> None:
    network, encoder = network_of(config_of(model, f"model.tied={tied}"))
    batch = batch_of()
    theirs = theirs_of(encoder)
    words = torch.from_numpy(encoder.words.weights.astype(np.float64)).requires_grad_()
    hidden = theirs(words[torch.from_numpy(batch.items_X.astype(np.int64))], batch.length_S)
    ours = encoder.forward(batch, 1)
    assert_close(ours, hidden)
    assert_close(encoder.encode(batch), hidden)
    assert np.abs(ours).mean() > 0.05, "the test would say little"

    grad_XD = np.random.default_rng(1).standard_normal(ours.shape).astype(np.float32)
    hidden.backward(torch.from_numpy(grad_XD.astype(np.float64)))
    of_module, of_words = encoder.gradients(grad_XD, 1)
    assert isinstance(of_module, RowGradient)
    assert isinstance(of_words, RowGradient)
    assert of_module.table is encoder.parameters.table
    assert (of_words.table is network.head.layer.table) == (tied == "true")
    parameters = list(encoder.module.parameters())
    for parameter, other in zip(parameters, theirs.in_our_order(), strict=True):
        assert parameter.grad is not None
        assert_close(parameter.grad.numpy(), other.grad)
    size = sum(parameter.numel() for parameter in parameters)
    flat = np.concatenate([parameter.grad.numpy().ravel() for parameter in parameters])  # type: ignore[union-attr]
    np.testing.assert_array_equal(of_module.grad_UD.ravel()[:size], flat)
    assert not of_module.grad_UD.ravel()[size:].any()
    assert words.grad is not None
    assert of_words.rows_U.tolist() == np.unique(batch.items_X).tolist()
    assert_close(of_words.grad_UD, words.grad[of_words.rows_U])
    assert not np.delete(words.grad.numpy(), of_words.rows_U, axis=0).any(), "other items have no gradient"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("weighted", [False, True], ids=["mean", "weighted"])
def test_training_steps_are_torchs(model: str, tied: str, weighted: bool) -> None:
    """Four steps of plain gradient descent on full softmax; tied vectors take one step by the sum of both gradients."""
    config = config_of(model, f"model.tied={tied}", "optimizer=sgd", "optimizer.lr=1")
    network, encoder = network_of(config)
    table = network.head.layer.table
    theirs = theirs_of(encoder)
    words = nn.Parameter(torch.from_numpy(encoder.words.weights.astype(np.float64)))
    classes = words if tied == "true" else nn.Parameter(torch.from_numpy(table.weights.astype(np.float64)))
    first = classes.detach().clone()
    optimizer = torch.optim.SGD({*theirs.parameters(), words, classes}, lr=1)
    cut = windows()
    rows_S = np.arange(0, cut.examples.count, 2)
    weight_S = np.random.default_rng(0).uniform(0.02, 0.2, len(rows_S)) if weighted else None
    for step in range(1, 5):
        batch = cut.batch(rows_S, weight_S)
        loss = network.train_step(batch, step, StageClock()).loss
        hidden = theirs(words[torch.from_numpy(batch.items_X.astype(np.int64))], batch.length_S)
        target_B = torch.from_numpy(batch.targets.astype(np.int64))
        loss_B = nn.functional.cross_entropy(hidden @ classes.T, target_B, reduction="none")
        exact = loss_B.mean() if batch.weight_B is None else loss_B @ torch.from_numpy(batch.weight_B).double()
        assert loss == pytest.approx(exact.item(), rel=1e-4)
        optimizer.zero_grad()
        exact.backward()
        optimizer.step()
    network.read_all(5)
    assert float((classes.detach() - first).abs().max()) > 0.04
    assert_close(table.weights, classes)
    assert_close(encoder.words.weights, words)
    for parameter, other in zip(encoder.module.parameters(), theirs.in_our_order(), strict=True):
        assert_close(parameter.detach().numpy(), other)
    assert not table.biases().any(), "items have no biases"


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_is_its_windows_one_by_one(model: str) -> None:
    _, encoder = network_of(config_of(model))
    cut, batch = windows(), batch_of()
    alone = [encoder.encode(cut.batch(np.array([row]))) for row in range(cut.examples.count)]
    alone.sort(key=lambda hidden: -len(hidden))  # stable, as the batch's order is
    np.testing.assert_allclose(encoder.encode(batch), np.concatenate(alone), atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_only_last_takes_the_last_item_of_every_window(model: str) -> None:
    _, encoder = network_of(config_of(model))
    cut = windows()
    begin_B = np.repeat(cut.begin_U, np.maximum(cut.end_U - cut.begin_U - 1, 0))
    batch = windows_before(cut.items_E, begin_B, cut.target_places, LENGTH)
    every = SequenceBatch(items_X=batch.items_X, length_S=batch.length_S, targets=batch.items_X)
    hidden_BD = encoder.encode(batch)
    assert hidden_BD.shape == (batch.num_rows, E)
    np.testing.assert_array_equal(hidden_BD, encoder.encode(every)[batch.start_S + batch.length_S - 1])


def test_positions_count_from_the_newest_item() -> None:
    """A short window sees the positions that a long one has for its newest items, as in windows padded on the left."""
    _, encoder = network_of(config_of("sasrec"))
    assert isinstance(encoder.module, SelfAttention)
    cut = windows()
    batch = windows_before(cut.items_E, np.zeros(1, np.int64), np.array([3]), LENGTH)
    before = encoder.encode(batch)
    with torch.no_grad():
        encoder.module.positions.weight[3:] += 1
    np.testing.assert_array_equal(encoder.encode(batch), before)
    with torch.no_grad():
        encoder.module.positions.weight[2, 0] += 1
    assert not np.array_equal(encoder.encode(batch), before)


def test_order_of_recurrent_steps() -> None:
    """All first items come first; windows that have ended take no part."""
    length_S = np.array([4, 2, 2, 1])
    order_X, windows_T = step_order(np.cumsum(length_S) - length_S, length_S)
    assert order_X.tolist() == [0, 4, 6, 8, 1, 5, 7, 2, 3]
    assert windows_T.tolist() == [4, 3, 1, 1]


@pytest.mark.parametrize("model", MODELS)
def test_an_encoder_of_tensors_takes_the_same_steps(model: str) -> None:
    losses, states = [], []
    for engine in ("numba", "torch"):
        choices = ["model.dropout=0.5", "model.tied=false", "optimizer.lr=0.01", f"hardware.engine={engine}"]
        network, _ = network_of(config_of(model, *choices))
        losses.append([network.train_step(batch_of(step), step, StageClock()).loss for step in (1, 2, 3)])
        network.read_all(4)
        states.append(network.state_dict())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for name, array in states[0].items():
        if name.endswith("weights"):  # Adam makes a step of rounding where a gradient is zero, as that of key biases
            assert (np.abs(states[1][name] - array) > 1e-4).mean() < 0.02, name


# ---------------------------------------------------------------- first weights


@pytest.mark.parametrize("tied", ["true", "false"])
def test_first_vectors_have_the_stated_deviation(tied: str) -> None:
    choices = ["model=sasrec", "model.init=0.05", f"model.tied={tied}", "model.length=50"]
    network, encoder = network_of(compose(choices))
    assert isinstance(encoder.module, SelfAttention)
    held = [network.head.layer.table.weights, encoder.words.weights, encoder.module.positions.weight.detach().numpy()]
    for rows in held:
        assert rows.std() == pytest.approx(0.05, rel=5 / np.sqrt(2 * rows.size))  # five standard errors
    assert (held[0] is held[1]) == (tied == "true")
    assert np.array_equal(held[0], held[1]) == (tied == "true"), "other draws"


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_dropout_drops_the_fraction_and_keeps_the_mean(fraction: float) -> None:
    """Both bounds are 5 standard deviations: a false alarm for 6e-7 of seeds each."""
    drop, count = Dropout(fraction), 1_000_000
    with draws_of(0, rng.DROPOUT, 1):
        out = drop(torch.ones(1000, 1000)).numpy()
    exact = round(fraction * 65536) / 65536
    zeros = int(np.count_nonzero(out == 0))
    assert abs(zeros - count * exact) < 5 * np.sqrt(count * exact * (1 - exact))
    assert np.unique(out[out != 0]).tolist() == [np.float32(1 / (1 - exact))]
    assert out.mean(dtype=np.float64) == pytest.approx(1, abs=5 * np.sqrt(exact / (1 - exact) / count))
    # Neighbours are independent: how often two of a row are dropped together.
    both = int(np.count_nonzero((out[:, 1:] == 0) & (out[:, :-1] == 0)))
    assert both == pytest.approx(count * exact**2, abs=8 * np.sqrt(count) * exact)


def test_dropout_is_off_where_it_must_be() -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(torch.random.get_rng_state(), before), "nothing is drawn"


def test_dropouts_of_one_step_are_drawn_apart() -> None:
    drop = Dropout(0.5)
    with draws_of(0, rng.DROPOUT, 1):
        one, other = (drop(torch.ones(40, 40)).numpy() for _ in range(2))
    assert 600 < np.count_nonzero(one == other) < 1000, "half of 1,600, give or take 10 deviations"


def test_dropout_passes_the_gradient_of_what_it_keeps() -> None:
    x = torch.randn(30, 20, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with draws_of(3, rng.DROPOUT, 4):
        out = Dropout(0.25)(x)
    out.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.where(out.detach() == 0, 0, 1 / 0.75), rtol=1e-6)


@pytest.mark.parametrize("fraction", ["0.99999", "0.9999999"])
def test_dropout_of_nearly_everything(fraction: str) -> None:
    """A fraction that rounds to 1 must not divide by zero."""
    with draws_of(0, rng.DROPOUT, 1):
        out = Dropout(float(fraction))(torch.ones(1000, 300)).numpy()
    assert np.isfinite(out).all()
    assert 0 < np.count_nonzero(out) < 60


@pytest.mark.parametrize("model", MODELS)
def test_dropout_is_a_function_of_seed_and_step(model: str) -> None:
    (_, one), (_, other), (_, third) = (
        network_of(config_of(model, "model.dropout=0.5", f"seed={s}")) for s in (1, 1, 2)
    )
    third.words.weights[:] = one.words.weights
    third.parameters.table.weights[:] = one.parameters.table.weights
    batch = batch_of()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = one.forward(batch, 1).copy(), one.forward(batch, 2).copy()
    assert torch.equal(torch.random.get_rng_state(), before), "torch's own numbers are left alone"
    torch.manual_seed(6)
    np.testing.assert_array_equal(other.forward(batch, 2), second)
    np.testing.assert_array_equal(other.forward(batch, 1), first)
    assert not np.array_equal(first, second)
    assert not np.array_equal(third.forward(batch, 1), first), "the same weights, another seed"
    np.testing.assert_array_equal(one.encode(batch), third.encode(batch), "nothing is dropped at test time")
    assert not np.array_equal(one.encode(batch), first)


def test_every_part_of_self_attention_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are dropped of the vectors, of the hidden layer and of both parts' results, and weights of attention."""
    _, encoder = network_of(config_of("sasrec", "model.dropout=0.5"))
    batch, plain = batch_of(), network_of(config_of("sasrec"))[1].encode(batch_of())
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(Dropout, "forward", lambda self, x: shapes.append(tuple(x.shape)) or x)
    hidden_XD = encoder.forward(batch, 1)
    of_items = (len(batch.items_X), E)
    assert shapes == [of_items] + 2 * [of_items, (len(batch.items_X), 20), of_items]
    assert not np.allclose(hidden_XD, plain, atol=0.01), "attention drops by itself"
    for layer in encoder.module.layers:  # type: ignore[union-attr]
        layer.dropout = 0.0
    np.testing.assert_array_equal(encoder.forward(batch, 1), plain)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(("choice", "says"), [
    ("model=sasrec model.heads=3", r"model\.embedding \(64\) must be a multiple of model\.heads \(3\)"),
    ("model=sasrec model.heads=0", r"model\.heads must lie in \[1, model\.embedding\]"),
    ("model=sasrec model.length=0", r"model\.length must lie in \[1, 4096\]"),
    ("model=sasrec model.dropout=1", r"model\.dropout must lie in \[0, 1\)"),
    ("model=sasrec model.init=0", r"model\.init must lie in \(0, 10\]"),
    ("model=sasrec model.layers=0", r"model\.layers must lie in \[1, 64\]"),
    ("model=sasrec model.feed_forward=0", r"model\.feed_forward must lie in \[1, 65536\]"),
    ("model=sasrec model.hidden=9", r"unknown key 'model\.hidden'"),
    ("model=gru4rec model.hidden=0", r"model\.hidden must lie in \[1, 8192\]"),
    ("model=gru4rec model.embedding=0", r"model\.embedding must lie in \[1, 8192\]"),
    ("model=item_knn model.neighbours=0", r"model\.neighbours must lie in \[1, 100000\]"),
    ("model=item_knn model.shrink=-1", r"model\.shrink must lie in \[0, 1e6\]"),
    ("model=item_knn model.length=5000", r"model\.length must lie in \[1, 4096\]"),
    ("model=markov model.length=2", r"unknown key 'model\.length'"),
])  # fmt: skip
def test_a_mistake_names_its_key(choice: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose(choice.split())


def test_batches_of_one_item_each() -> None:
    """The shortest windows that there are: one item, one window."""
    for model, size in itertools.product(MODELS, (1, 4)):
        _, encoder = network_of(config_of(model))
        items_X = np.arange(size, dtype=np.int32)
        batch = SequenceBatch(items_X=items_X, length_S=np.ones(size, np.int64), targets=items_X)
        hidden_XD = encoder.forward(batch, 1)
        assert hidden_XD.shape == (size, E)
        encoder.gradients(np.ones_like(hidden_XD), 1)
