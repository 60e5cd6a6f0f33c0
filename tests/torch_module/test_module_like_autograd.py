"""The module's losses and gradients are those of autograd on the whole graph."""

from typing import Any

import plain_losses as plain
import pytest
import torch

from runner.output.losses import LOSSES, GbceLoss
from runner.torch import SampledSoftmaxLoss

B, D, N = 6, 8, 40
DENSE = torch.tensor([3, 0, 3, 39, 17, 1])
RAGGED = (torch.tensor([0, 2, 2, 3, 6, 7, 8]), torch.tensor([5, 3, 0, 39, 1, 7, 2, 2]))
ROWS = [[3, 5], [], [0], [1, 7, 39], [2], [2]]
ONE_EACH = [[int(target)] for target in DENSE]


def made(loss: Any = "sampled_softmax", **options: Any) -> SampledSoftmaxLoss:
    module = SampledSoftmaxLoss(D, N, num_samples=25, loss=loss, seed=1, **options)
    with torch.no_grad():
        module.rows.weight.mul_(3)
        if module.biases is not None:
            module.biases.weight.normal_(generator=torch.Generator().manual_seed(2))
    return module


def hidden_states() -> torch.Tensor:
    return torch.randn(B, D, generator=torch.Generator().manual_seed(5)).requires_grad_()


def gradients(module: SampledSoftmaxLoss, hidden: torch.Tensor) -> list[torch.Tensor]:
    parts = [hidden.grad, module.rows.weight.grad]
    parts += [] if module.biases is None else [module.biases.weight.grad]
    found = []
    for grad in parts:
        assert grad is not None
        found.append((grad.to_dense() if grad.is_sparse else grad).double())
    hidden.grad = None
    module.zero_grad()
    return found


def agree(module: SampledSoftmaxLoss, target: Any, rows: list[list[int]], factor: torch.Tensor) -> None:
    hidden = hidden_states()
    output, loss = module(hidden, target)
    (loss * factor).sum().backward()
    found = gradients(module, hidden)
    expected_loss = plain.losses(module, hidden, rows, plain.candidates(module, hidden, target, int(module.step)))
    (expected_loss * factor).sum().backward()
    torch.testing.assert_close(loss.double(), expected_loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output, -loss)
    for grad, expected in zip(found, gradients(module, hidden), strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-5)


CHOICES: list[Any] = [
    *[name for name in LOSSES if name != "full"],
    GbceLoss(name="gbce", t=0.2),
    LOSSES["sampled_softmax"](name="sampled_softmax", correct_target=True),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("loss", CHOICES, ids=str)
def test_losses_of_shared_and_own_candidates(loss: Any, shared: bool, unique: bool, sparse: bool) -> None:
    """The factors of rows may be anything, negative ones included."""
    module = made(loss, shared=shared, unique=unique, sparse=sparse, reduction="none")
    factor = torch.linspace(-1, 2, B)
    agree(module, DENSE, ONE_EACH, factor)
    agree(module, RAGGED, ROWS, factor)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_cosines(shared: bool, sparse: bool) -> None:
    module = made(scale=4.0, shared=shared, sparse=sparse, reduction="none")
    assert module.biases is None
    agree(module, DENSE, ONE_EACH, torch.ones(B))


def test_without_biases() -> None:
    agree(made(bias=False, reduction="none"), DENSE, ONE_EACH, torch.ones(B))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("options", [{}, {"shared": False}, {"sampler": "in_batch"}], ids=str)
def test_rows_that_are_ignored_count_for_nothing(options: dict[str, Any], sparse: bool) -> None:
    target = torch.tensor([3, -100, 3, 39, -100, 1])
    rows = [[3], [], [3], [39], [], [1]]
    if "sampler" in options:
        module = SampledSoftmaxLoss(D, N, "in_batch", reduction="none", sparse=sparse)
    else:
        module = made(reduction="none", sparse=sparse, **options)
    agree(module, target, rows, torch.ones(B))
    module.reduction = "mean"
    hidden = hidden_states()
    output, loss = module(hidden, target)
    torch.testing.assert_close(loss, -output.sum() / 4)
    loss.backward()
    assert hidden.grad is not None
    assert not hidden.grad[[1, 4]].any()
    _, loss = module(hidden, torch.full((B,), -100))
    loss.backward()
    assert float(loss.detach()) == 0


@pytest.mark.parametrize("options", [{}, {"sampler": "full"}, {"scale": 3.0, "sampler": "full"}], ids=str)
def test_evaluation_and_full_softmax_are_exact(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.output.torch.functions._blocks", lambda hidden, rows: [(0, 1), (1, 30), (30, N)])
    options = {"num_samples": 1000, **options}
    module = SampledSoftmaxLoss(D, N, reduction="none", **options)
    if "sampler" not in options:
        module.eval()
    hidden, factor = hidden_states(), torch.linspace(-1, 2, B)
    for target, rows in ((DENSE, ONE_EACH), (RAGGED, ROWS)):
        loss = module(hidden, target).loss
        (loss * factor).sum().backward()
        found = gradients(module, hidden) if "sampler" in options else [hidden.grad.double()]  # type: ignore[union-attr]
        hidden.grad = None
        weight, queries = module.rows.weight.double(), hidden.double()
        if module.scale is not None:
            weight = torch.nn.functional.normalize(weight)
            queries = module.scale * torch.nn.functional.normalize(queries)
        logits = queries @ weight.T + (0 if module.biases is None else module.biases.weight[:, 0])
        log_prob = torch.log_softmax(logits, 1)
        expected = torch.stack([-log_prob[row][targets].mean() if targets else 0 * log_prob[row, 0]
                                for row, targets in enumerate(rows)])  # fmt: skip
        (expected * factor).sum().backward()
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
        for grad, other in zip(found, gradients(module, hidden), strict=False):
            torch.testing.assert_close(grad, other, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(module.log_prob(hidden).double(), log_prob, rtol=1e-5, atol=1e-5)
        assert module.predict(hidden).tolist() == log_prob.argmax(1).tolist()
        assert module.predict(hidden, 3).tolist() == log_prob.topk(3).indices.tolist()
        ids = torch.tensor([[1, 5]] * B)
        for classes in (ids, ids[0]):
            torch.testing.assert_close(module.logits(hidden, classes).double(), logits[:, [1, 5]], rtol=1e-5, atol=1e-5)


def test_evaluation_of_magnitudes() -> None:
    module = made("absolute_softmax").eval()
    hidden = hidden_states().detach()
    output, _ = module(hidden, DENSE)
    assert module.biases is not None
    logits = (hidden @ module.rows.weight.T + module.biases.weight[:, 0]).abs()
    torch.testing.assert_close(output, torch.log_softmax(logits, 1)[torch.arange(B), DENSE], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.log_prob(hidden)[torch.arange(B), DENSE], output, rtol=1e-4, atol=1e-5)
    assert module.predict(hidden).tolist() == logits.argmax(1).tolist()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reductions(reduction: Any) -> None:
    each, module = made(reduction="none"), made(reduction=reduction)
    loss_B, loss = each(hidden_states(), DENSE)[1], module(hidden_states(), DENSE)[1]
    expected = {"mean": loss_B.mean(), "sum": loss_B.sum(), "none": loss_B}[reduction]
    torch.testing.assert_close(loss, expected)
