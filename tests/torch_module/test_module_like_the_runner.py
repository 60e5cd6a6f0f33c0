"""The module draws what the runner draws and, with ``RowAdam``, takes the runner's steps."""

from typing import Any

import numpy as np
import pytest
import torch

from runner.contracts import Query, TrainingFacts
from runner.heads.classes import estimate
from runner.machine.clock import StageClock
from runner.optimizers import AdamConfig
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable
from runner.output.torch.layer import TorchLayer
from runner.output.torch.row_table import TorchRowTable
from runner.samplers import SAMPLERS
from runner.torch import RowAdam, SampledSoftmaxLoss

B, D, N, STEPS = 8, 12, 120, 4
COUNTS = np.arange(N, 0, -1) * 3


def query(step: int) -> Query:
    generator = np.random.default_rng(step)
    return Query(
        hidden_BD=generator.standard_normal((B, D)).astype(np.float32),
        target_indptr_B1=np.arange(B + 1, dtype=np.int64),
        targets_P=generator.integers(0, N, B).astype(np.int32),
    )


CASES = [
    ("log_uniform", "sampled_softmax", {"num_samples": 40}),
    ("unigram", "nce", {"num_samples": 40, "shared": False}),
    ("uniform", "sampled_softmax", {"num_samples": 40, "unique": False}),
    ("log_uniform", "sampled_softmax", {"num_samples": 40, "until_distinct": True}),
    ("in_batch", "sampled_softmax", {}),
    ("topk", "active_set", {"num_nearest": 20}),
    ("exact", "sampled_softmax", {"num_samples": 20}),
    ("lsh_embedding", "active_set", {"K": 3, "L": 4, "min_candidates": 10, "refresh_every_steps": 2}),
    ("lsh", "sampled_softmax", {"num_samples": 20, "K": 3, "L": 4}),
    ("midx_rq", "sampled_softmax", {"num_samples": 20, "codewords": 4, "refresh_every_steps": 2}),
    ("rff", "sampled_softmax", {"num_samples": 20, "refresh_every_steps": 2}),
    ("full", "full", {}),
]


@pytest.mark.parametrize("rows", ["catch_up", "touched"])
@pytest.mark.parametrize("engine", ["numba", "torch"])
@pytest.mark.parametrize(("sampler", "loss", "options"), CASES, ids=lambda case: str(case))
def test_steps(sampler: str, loss: str, options: dict[str, Any], engine: str, rows: Any) -> None:
    if engine == "torch" and rows == "touched":
        pytest.skip("once is enough")
    scale = 2.0 if sampler == "rff" else None
    module = SampledSoftmaxLoss(D, N, sampler, loss=loss, class_counts=COUNTS, scale=scale, seed=7, **options)
    start = module.rows.weight.detach().numpy().copy()
    adam = AdamConfig(lr=0.01, rows=rows)
    layer: Any
    if engine == "numba":
        layer = NumbaLayer(RowTable(adam, start, bias=True, bias_moves=scale is None), scale)
    else:
        layer = TorchLayer(TorchRowTable(adam, start, bias=True, bias_moves=scale is None), scale)
    layer.table.write(None, biases=0.0 if scale else -np.log(N))
    theirs = SAMPLERS[sampler](name=sampler, **options).build(
        layer=layer, training=TrainingFacts.one_label_a_row(COUNTS), seed=7
    )
    optimizer = RowAdam(module, lr=0.01, rows=rows)
    for step in range(1, STEPS + 1):
        given = query(step)
        made = estimate(layer, theirs, module.loss_config, given, step, StageClock())
        loss_B, proposal = np.asarray(made.loss_B).copy(), made.proposal
        grad_hidden = np.array(made.scores.update())
        theirs.refresh(given, step, made.scores.touched_U)

        hidden = torch.from_numpy(given.hidden_BD.copy()).requires_grad_()
        output, value = module(hidden, torch.from_numpy(given.targets_P))
        value.backward()
        if sampler != "full":
            ids = np.unique(np.concatenate([proposal.ids_N, given.targets_P]))
            assert module.rows.weight.grad is not None
            assert module.rows.weight.grad.indices()[0].tolist() == ids.tolist(), f"step {step}"
        optimizer.step()
        optimizer.zero_grad()
        module.after_step()
        assert hidden.grad is not None
        np.testing.assert_allclose(-output.detach(), loss_B, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(hidden.grad, grad_hidden, rtol=1e-3, atol=1e-6)
    layer.read(None, STEPS + 1)
    if rows == "catch_up":
        optimizer.current()
    np.testing.assert_allclose(module.rows.weight.detach(), layer.rows(), rtol=1e-4, atol=1e-5)
    if module.biases is not None:
        np.testing.assert_allclose(module.biases.weight.detach()[:, 0], layer.biases(), rtol=1e-4, atol=1e-5)


def test_row_adam_goes_on_from_its_state() -> None:
    def trained(split: bool) -> torch.Tensor:
        module = SampledSoftmaxLoss(D, N, num_samples=5, seed=3)
        optimizer = RowAdam(module, lr=0.01)
        for step in range(1, 9):
            given = query(step)
            module(torch.from_numpy(given.hidden_BD), torch.from_numpy(given.targets_P)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if split and step == 4:
                saved, of_optimizer = module.state_dict(), optimizer.state_dict()
                module = SampledSoftmaxLoss(D, N, num_samples=5, seed=3)
                module.load_state_dict(saved)
                optimizer = RowAdam(module, lr=0.5)
                optimizer.load_state_dict(of_optimizer)
        optimizer.current()
        return module.rows.weight.detach()

    torch.testing.assert_close(trained(True), trained(False), rtol=0, atol=0)


def test_row_adam_is_dense_adam() -> None:
    """Rows that a step does not touch move by their momentum, as dense Adam's do; up to a known closed form."""

    def trained(make: Any, sparse: bool) -> torch.Tensor:
        module = SampledSoftmaxLoss(D, N, num_samples=5, seed=3, sparse=sparse)
        optimizer = make(module)
        for step in range(1, 13):
            given = query(step)
            module(torch.from_numpy(given.hidden_BD), torch.from_numpy(given.targets_P)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = 0.01 if step < 6 else 0.002
        module.eval()
        module.predict(torch.from_numpy(query(1).hidden_BD))  # what is read is current
        return module.rows.weight.detach()

    dense = trained(lambda module: torch.optim.Adam(module.parameters(), lr=0.01), False)
    for sparse in (True, False):
        ours = trained(lambda module: RowAdam(module, lr=0.01), sparse)
        torch.testing.assert_close(ours, dense, rtol=0, atol=2e-3)
    lazy = trained(lambda module: RowAdam(module, lr=0.01, rows="touched"), True)
    theirs = trained(lambda module: torch.optim.SparseAdam(module.parameters(), lr=0.01), True)
    torch.testing.assert_close(lazy, theirs, rtol=0, atol=1e-3)  # they add epsilon before a correction, we after
    assert (lazy - dense).abs().max() > 1e-2
