"""The module lives with what PyTorch has: optimizers, scalers, autocast, tied embeddings, checkpoints, plugins."""

import copy
import io
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from runner.registry import register_sampler
from runner.samplers import SAMPLERS, Sampler
from runner.samplers.static import UniformConfig
from runner.torch import ConfigError, RowAdam, SampledSoftmaxLoss

B, D, N = 16, 8, 50


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states near a vector of each one's class."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(N, D, generator=torch.Generator().manual_seed(99))
    target = torch.randint(N, (B,), generator=generator)
    return vectors[target] + 0.1 * torch.randn(B, D, generator=generator), target


def train(module: SampledSoftmaxLoss, optimizer: Any, steps: int = 60) -> float:
    """Return the exact loss after some steps."""
    for step in range(steps):
        module(*batch(step)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        module.after_step()
    module.eval()
    with torch.no_grad():
        return float(module(*batch(1000)).loss)


def test_sparse_adam_row_adam_and_adamw_learn() -> None:
    for sparse, make in (
        (True, lambda module: torch.optim.SparseAdam(module.parameters(), lr=0.05)),
        (True, lambda module: RowAdam(module, lr=0.05)),
        (False, lambda module: torch.optim.AdamW(module.parameters(), lr=0.05)),
        (True, lambda module: torch.optim.SGD(module.parameters(), lr=20.0)),
    ):
        module = SampledSoftmaxLoss(D, N, num_samples=20, sparse=sparse)
        assert train(module, make(module)) < 2.5 < torch.tensor(float(N)).log()


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_every_sampler_learns(name: str) -> None:
    small: dict[str, dict[str, Any]] = {"topk": {"num_nearest": 20}, "lsh_topk": {"num_nearest": 10, "num_tail": 10}}
    fits = {"rff": {"scale": 4.0}}
    config = SAMPLERS[name]
    loss = config.losses[0]
    options = small.get(name, {})
    if "num_samples" in config.__dataclass_fields__:
        options = {"num_samples": 20, **options}
    options = {key: value for key, value in options.items() if key in config.__dataclass_fields__}
    module = SampledSoftmaxLoss(D, N, name, loss=loss, **options, **fits.get(name, {}))  # type: ignore[arg-type]
    module(*batch(0)).loss.backward()
    if not module.loss_config.by_magnitude and loss != "nce":
        start = float(copy.deepcopy(module).eval()(*batch(1000)).loss.detach())
        assert train(module, RowAdam(module, lr=0.05), 30) < start


def test_gradients_are_coalesced_and_add_up() -> None:
    words = nn.Embedding(N, D, sparse=True)
    module = SampledSoftmaxLoss(D, N, num_samples=20, rows=words)
    ids, target = torch.tensor([1, 1, 4, 7]), torch.tensor([4, 2, 2, 30])
    module(words(ids), target).loss.backward()
    tied = words.weight.grad
    assert tied is not None
    assert tied.is_sparse
    assert tied.is_coalesced()
    both = tied.to_dense()
    words.weight.grad, module.step = None, torch.zeros_like(module.step)
    hidden = words.weight.detach()[ids].requires_grad_()
    module(hidden, target).loss.backward()
    assert words.weight.grad is not None
    assert words.weight.grad.is_coalesced()
    of_inputs = torch.zeros(N, D).index_add_(0, ids, hidden.grad)
    torch.testing.assert_close(both, words.weight.grad.to_dense() + of_inputs)
    assert [name for name, _ in module.named_parameters()] == ["rows.weight", "biases.weight"]


def test_a_tied_embedding_is_current_when_it_is_looked_up() -> None:
    words = nn.Embedding(N, D, sparse=True)
    module = SampledSoftmaxLoss(D, N, num_samples=2, rows=words)
    optimizer = RowAdam(module, lr=0.05)
    for step in range(6):
        ids = torch.tensor([step, step])
        module(words(ids), ids + 10).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    found = words(torch.arange(16)).detach()
    optimizer.current()
    torch.testing.assert_close(found, words.weight.detach()[:16], rtol=0, atol=0)


def test_gradients_accumulate() -> None:
    module = SampledSoftmaxLoss(D, N, num_samples=20)
    alone = []
    for seed in (1, 2):
        module(*batch(seed)).loss.backward()
        assert module.rows.weight.grad is not None
        alone.append(module.rows.weight.grad.to_dense())
        module.zero_grad()
    module.step.zero_()
    for seed in (1, 2):
        module(*batch(seed)).loss.backward()
    assert module.rows.weight.grad is not None
    assert module.rows.weight.grad.is_coalesced()
    torch.testing.assert_close(module.rows.weight.grad.to_dense(), alone[0] + alone[1])


def test_clipping_of_dense_gradients() -> None:
    module = SampledSoftmaxLoss(D, N, num_samples=20, sparse=False)
    module(*batch()).loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
    assert norm > 1e-2
    total = sum(float(p.grad.square().sum()) for p in module.parameters() if p.grad is not None)
    assert total**0.5 == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_scaler_finds_the_gradients(sparse: bool) -> None:
    module = SampledSoftmaxLoss(D, N, num_samples=20, sparse=sparse)
    make = torch.optim.SparseAdam if sparse else torch.optim.Adam
    optimizer, scaler = make(module.parameters(), lr=0.05), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    module(*batch()).loss.backward()
    expected = [p.grad.to_dense() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    module.step.zero_()
    before = module.rows.weight.detach().clone()
    scaler.scale(module(*batch()).loss).backward()
    scaler.unscale_(optimizer)
    for parameter, grad in zip(module.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.to_dense(), grad, rtol=1e-4, atol=1e-7)
    scaler.step(optimizer)
    scaler.update()
    assert (module.rows.weight - before).abs().max() > 0.01


@pytest.mark.parametrize("sampler", ["log_uniform", "full"])
def test_autocast(sampler: str) -> None:
    """Products have operands of bfloat16; losses and gradients of rows stay float32."""
    options = {} if sampler == "full" else {"num_samples": 20}
    module = SampledSoftmaxLoss(D, N, sampler, **options)  # type: ignore[arg-type]
    encoder = nn.Linear(D, D)
    hidden, target = batch()

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        module.zero_grad()
        encoder.zero_grad()
        module.step.zero_()
        loss = module(encoder(hidden), target).loss
        loss.backward()  # inside of autocast, as some do
        assert module.rows.weight.grad is not None
        return loss.detach(), module.rows.weight.grad.to_dense()

    exact, exact_grad = step()
    with torch.autocast("cpu", torch.bfloat16):
        loss, grad = step()
    assert loss.dtype == grad.dtype == torch.float32
    assert loss != exact
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0)
    torch.testing.assert_close(grad, exact_grad, rtol=0.1, atol=2e-3)
    assert encoder.weight.grad is not None


@pytest.mark.parametrize("sampler", ["log_uniform", "lsh_embedding", "midx_pq", "rff"])
def test_a_checkpoint_goes_on_with_the_same_draws(sampler: str) -> None:
    def fresh() -> tuple[SampledSoftmaxLoss, RowAdam]:
        options = {"num_samples": 20} if sampler != "lsh_embedding" else {}
        loss = "active_set" if sampler == "lsh_embedding" else "sampled_softmax"
        scale = 4.0 if sampler == "rff" else None
        module = SampledSoftmaxLoss(D, N, sampler, loss=loss, scale=scale, **options)  # type: ignore[arg-type]
        return module, RowAdam(module, lr=0.05)

    def steps(module: SampledSoftmaxLoss, optimizer: RowAdam, lo: int, hi: int) -> None:
        for step in range(lo, hi):
            module(*batch(step)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            module.after_step()

    whole = fresh()
    steps(*whole, 0, 8)
    half = fresh()
    steps(*half, 0, 4)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in half], file)
    file.seek(0)
    resumed = fresh()
    for part, state in zip(resumed, torch.load(file), strict=True):  # weights_only
        part.load_state_dict(state)
    steps(*resumed, 4, 8)
    for module, optimizer in (whole, resumed):
        assert int(module.step) == 8
        optimizer.current()
    torch.testing.assert_close(resumed[0].rows.weight, whole[0].rows.weight, rtol=0, atol=0)


def test_the_state_of_another_sampler_is_refused() -> None:
    state = SampledSoftmaxLoss(D, N, "uniform").state_dict()
    with pytest.raises(ConfigError, match="the state is that of sampler=uniform, not of sampler=unigram"):
        SampledSoftmaxLoss(D, N, "unigram").load_state_dict(state)


def test_a_sampler_with_tables_asks_for_after_step() -> None:
    module = SampledSoftmaxLoss(D, N, "lsh_embedding", loss="active_set")
    for _ in range(99):
        module(*batch())
    with pytest.warns(UserWarning, match="call after_step"):
        module(*batch())
    with warnings.catch_warnings():
        for _ in range(150):
            module(*batch())
            module.after_step()
    assert not module.after_step()


def test_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(UniformConfig):
        """Draw as uniform does."""

    monkeypatch.setattr("runner.registry.FROM_OUTSIDE", {})
    monkeypatch.delitem(SAMPLERS, "mine", raising=False)
    register_sampler("mine", Mine)
    try:
        found = SampledSoftmaxLoss(D, N, "mine", num_samples=20)
        expected = SampledSoftmaxLoss(D, N, "uniform", num_samples=20)
        assert isinstance(found.sampler, Sampler)
        torch.testing.assert_close(found(*batch()).loss, expected(*batch()).loss)
    finally:
        del SAMPLERS["mine"]


def test_a_copy_has_a_life_of_its_own() -> None:
    module = SampledSoftmaxLoss(D, N, "midx_pq", num_samples=20)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.rows.weight.zero_()
    assert not other.predict(batch()[0]).any()
    assert module.predict(batch()[0]).any()
    assert not other.layer.rows().any()
    assert "sampler=midx_pq, loss=sampled_softmax" in repr(module)
