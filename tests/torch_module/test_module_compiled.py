"""``torch.compile(fullgraph=True)`` takes the module with samplers of fixed distributions, and steps stay the same."""

from typing import Any

import pytest
import torch

from runner.torch import SampledSoftmaxLoss

B, D, N = 6, 8, 50


def compare(backend: str, options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    module, expected = (SampledSoftmaxLoss(D, N, num_samples=20, sparse=False, **options) for _ in range(2))
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for step in range(1, 4):
        generator = torch.Generator().manual_seed(step)
        hidden, other = (torch.randn(B, D, generator=generator).requires_grad_() for _ in range(2))
        other.data = hidden.detach().clone()
        target = torch.randint(N, (B,), generator=generator)
        found = compiled(hidden, target)
        found.loss.backward()
        wanted = expected(other, target)
        wanted.loss.backward()
        torch.testing.assert_close(found.output, wanted.output)
        torch.testing.assert_close(hidden.grad, other.grad)
        torch.testing.assert_close(module.rows.weight.grad, expected.rows.weight.grad)
        assert int(module.step) == step


@pytest.mark.filterwarnings("ignore")  # torch's own, of what it traces
@pytest.mark.parametrize("options", [
    {"shared": False, "loss": "nce"},
    pytest.param({}, marks=pytest.mark.slow),
    pytest.param({"unique": False, "scale": 2.0}, marks=pytest.mark.slow),
], ids=str)  # fmt: skip
def test_traced_whole(options: dict[str, Any]) -> None:
    compare("aot_eager", options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_whole() -> None:
    compare("inductor", {})


def test_sparse_gradients_are_refused() -> None:
    torch._dynamo.reset()
    module = torch.compile(SampledSoftmaxLoss(D, N), fullgraph=True, backend="aot_eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="take sparse=False"):
        module(torch.zeros(B, D), torch.zeros(B, dtype=torch.int64))
