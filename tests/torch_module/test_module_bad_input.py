"""What the module cannot use is refused in one line, by one of two exceptions."""

from typing import Any

import pytest
import torch
from torch import nn

from runner.torch import ConfigError, InputError, RowAdam, SampledSoftmaxLoss

D, N = 4, 20


@pytest.mark.parametrize(("options", "line"), [
    ({"sampler": "log_unifrom"}, "sampler: unknown 'log_unifrom'; did you mean 'log_uniform'"),
    ({"loss": "nces"}, "loss: unknown 'nces'; did you mean 'nce'"),
    ({"temperature": 3}, "unknown key 'sampler.temperature'"),
    ({"shared": "yes"}, "sampler.shared: expected bool"),
    ({"num_samples": 0}, "sampler.num_samples must be at least 1"),
    ({"sampler": "topk", "num_samples": 5}, "sampler=topk has no num_samples"),
    ({"sampler": "topk", "loss": "nce"}, "loss=nce does not go with sampler=topk"),
    ({"sampler": "full", "loss": "nce"}, "loss=nce does not go with sampler=full"),
    ({"loss": "full"}, "loss=full does not go with sampler=log_uniform"),
    ({"loss": "active_set", "correct_target": True}, "loss=active_set has no correct_target"),
    ({"reduction": "max"}, "reduction: 'max' is not one of"),
    ({"scale": 0.0}, "scale must be above 0"),
    ({"dtype": torch.float64}, "dtype: rows are float32"),
    ({"class_counts": [1, 2]}, "class_counts: expected 20 numbers"),
    ({"class_counts": torch.ones(N)}, "class_counts: expected integers"),
    ({"class_counts": [-1] * N}, "class_counts: a count is negative"),
    ({"rows": nn.Linear(D, N)}, "rows: expected an nn.Embedding, got Linear"),
    ({"rows": nn.Embedding(N, D + 1, sparse=True)}, "rows: expected \\(20, 4\\)"),
    ({"rows": nn.Embedding(N, D)}, "rows: the nn.Embedding has sparse=False"),
    ({"rows": nn.Embedding(N, D, sparse=True, dtype=torch.float64)}, "rows: expected float32"),
    ({"rows": nn.Embedding(N, D, sparse=True, max_norm=1.0)}, "max_norm"),
    ({"rows": nn.Embedding(N, D, sparse=True, scale_grad_by_freq=True)}, "scale_grad_by_freq"),
], ids=str)  # fmt: skip
def test_settings(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        SampledSoftmaxLoss(D, N, **options)
    assert "\n" not in str(caught.value)


H, T = torch.zeros(3, D), torch.tensor([0, 1, 2])
INT = torch.int64


@pytest.mark.parametrize(("hidden", "target", "line"), [
    (H, torch.tensor([0, 1, N]), "target: a class is not in 0 to 19"),
    (H, torch.tensor([0, 1, -1]), "target: a class is not in 0 to 19"),
    (H, T[:2], "target: expected 3 classes"),
    (H, T.float(), "target: expected int64 or int32"),
    (H, T[:, None], "target: expected one dimension"),
    (H, [0, 1, 2], "expected \\(indptr, ids\\), got 3 parts"),
    (H, 3, "target: expected a tensor, got int"),
    (H[:0], T[:0], "the batch is empty"),
    (torch.zeros(3, D + 1), T, "expected shape \\(batch, 4\\), got \\(3, 5\\)"),
    (H[0], T[0], "expected shape \\(batch, 4\\), got \\(4,\\)"),
    (H.double(), T, "input: expected float32, bfloat16 or float16, got torch.float64"),
    (H.long(), T, "input: expected float32"),
    (H.numpy(), T, "input: expected a tensor, got ndarray"),
    (H.to("meta"), T, "input is on meta"),
    (H, T.to("meta"), "target is on meta"),
    (H, (torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, N])), "target's ids: a class is not in"),
    (H, (torch.tensor([0, 1, 3]), T), "indptr: expected 4 numbers"),
    (H, (torch.tensor([0, 2, 1, 3]), T), "indptr must ascend"),
    (H, (torch.tensor([0, 1, 1, 2]), T), "indptr must ascend"),
    (H, (torch.tensor([0, 3, 3, 3]), torch.tensor([4, 1, 4])), "a row has a class twice"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("training", [True, False])
def test_inputs(hidden: Any, target: Any, line: str, training: bool) -> None:
    module = SampledSoftmaxLoss(D, N, num_samples=5).train(training)
    with pytest.raises(InputError, match=line) as caught:
        module(hidden, target)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert int(module.step) == 0


def test_inputs_of_predictions() -> None:
    module = SampledSoftmaxLoss(D, N)
    for call in (
        lambda: module.predict(H, 0),
        lambda: module.predict(H, N + 1),
        lambda: module.predict(H[:, :3]),
        lambda: module.log_prob(H.double()),
        lambda: module.logits(H, torch.tensor([N])),
        lambda: module.logits(H, torch.tensor([[1, 2]])),
        lambda: module.logits(H, torch.tensor([0.5])),
    ):
        with pytest.raises(InputError):
            call()


def test_settings_of_row_adam() -> None:
    module = SampledSoftmaxLoss(D, N)
    for make in (
        lambda: RowAdam(module, rows="dense"),  # type: ignore[arg-type]
        lambda: RowAdam(module, lr=0.0),
        lambda: RowAdam(module, betas=(0.9, 1.0)),
        lambda: RowAdam(module.parameters()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            make()
