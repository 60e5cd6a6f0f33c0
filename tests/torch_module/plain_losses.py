"""The losses as their papers write them, over the whole graph of one row after the other."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner.contracts import Proposal
from runner.output.losses import GbceLoss, LossConfig
from runner.torch import SampledSoftmaxLoss
from runner.torch.inputs import ModuleQuery, targets_of


def candidates(module: SampledSoftmaxLoss, hidden: Tensor, target: Any, step: int) -> Proposal:
    """Return what the module draws at a step, as its sampler says it once more."""
    targets = targets_of(target, hidden, module.n_classes, module.ignore_index)
    return module.sampler.sample(ModuleQuery(hidden.detach(), targets), step)  # type: ignore[return-value]


def of_row(proposal: Proposal, row: int) -> tuple[np.ndarray, Tensor]:
    mine = slice(None) if proposal.indptr_B1 is None else slice(*proposal.indptr_B1[row : row + 2])
    return proposal.ids_N[mine], torch.from_numpy(proposal.log_expected_count_N[mine]).double()


def loss_of_row(
    logits_N: Tensor, targets: list[int], ids: np.ndarray, log_count: Tensor, of_targets: Tensor, loss: LossConfig,
    distinct: bool,
) -> Tensor:  # fmt: skip
    """``of_targets``: the targets' log expected counts, zeros where they are not corrected."""
    if loss.by_magnitude:
        logits_N = logits_N.abs()
    if loss.masks_hits and (distinct or not loss.corrects_targets):
        kept = ~np.isin(ids, targets)
        ids, log_count = ids[kept], log_count[torch.from_numpy(kept)]
    own, drawn = logits_N[targets] - of_targets, logits_N[ids.astype(np.int64)]
    if loss.corrects_candidates:
        drawn = drawn - log_count
    every = torch.cat([own, drawn])
    if loss.name in ("nce", "negative_sampling", "gbce"):
        alpha = len(ids) / (len(logits_N) - 1)
        beta = 1 - loss.t * (1 - alpha) if isinstance(loss, GbceLoss) else 1
        return beta * torch.nn.functional.softplus(-own).mean() + torch.nn.functional.softplus(drawn).sum()
    if loss.name == "blackout":
        p = torch.softmax(every, 0)
        return -p[: len(own)].log().mean() - (1 - p[len(own) :]).log().sum()
    if loss.name == "partition_estimate":
        return torch.logsumexp(drawn, 0) - own.mean()
    return torch.logsumexp(every, 0) - own.mean()


def losses(module: SampledSoftmaxLoss, hidden: Tensor, rows: list[list[int]], proposal: Proposal) -> Tensor:
    """Return the loss of each row, (B,) float64, with gradients of float64 copies of everything."""
    loss = module.loss_config
    weight = module.rows.weight.double()
    if module.scale is not None:
        weight = weight / weight.norm(dim=1, keepdim=True)
        hidden = module.scale * hidden / hidden.norm(dim=1, keepdim=True)
    bias = 0 if module.biases is None else module.biases.weight[:, 0].double()
    logits_BN = hidden.double() @ weight.T + bias
    found = []
    for row, targets in enumerate(rows):
        if not targets:
            found.append(0 * logits_BN[row].sum())
            continue
        of_targets = torch.zeros(len(targets), dtype=torch.float64)
        if loss.corrects_targets:
            of_targets = torch.from_numpy(module.sampler.log_count_N[targets]).double()  # type: ignore[attr-defined]
        args = (*of_row(proposal, row), of_targets, loss, proposal.distinct)
        found.append(loss_of_row(logits_BN[row], targets, *args))
    return torch.stack(found)
