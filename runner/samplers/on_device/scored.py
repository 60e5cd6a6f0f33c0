"""Draw by the weights of all logits, or take the classes with the largest ones, on a device.

Draws are those of ``samplers.scored``, up to rounding of the weights.

Legend: B rows, C classes of a block, M draws of a row, P targets of all rows, K candidates of a row.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.errors import Diverged
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.batches import Targets, TorchProposal, TorchQuery
from runner.output.torch.layer import TorchLayer
from runner.samplers.scored import Scored, ScoredConfig
from runner.samplers.topk import TopK


def _hidden(query: Query) -> np.ndarray | Tensor:
    return query.hidden if isinstance(query, TorchQuery) else query.hidden_BD


class TorchTopK(TopK):
    """Propose to each row the k classes with its largest logits, with expected count 1."""

    def __init__(self, k: int, layer: TorchLayer) -> None:
        super().__init__(k, layer)
        self.on_device = layer

    def sample(self, query: Query, step: int) -> TorchProposal:
        self.layer.read(None, step)
        ids_BK = self.on_device.top(_hidden(query), self.k)[0].sort(dim=1).values
        return TorchProposal(ids_BK, torch.zeros(ids_BK.shape, device=ids_BK.device))


class TorchScored(Scored):
    """Score all classes and draw by the weight of each logit.

    In training, logits that are not finite make the loss so, which the training loop reports. For others it raises
    Diverged.
    """

    def __init__(self, config: ScoredConfig, layer: TorchLayer, seed: int) -> None:
        super().__init__(config, layer, seed)
        self.on_device = layer
        self._latest_on_device: tuple[TorchProposal, Tensor] | None = None

    def _logits(self, query: Query, step: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the first class and the logits (B, C) of every block; targets to avoid have logit -inf."""
        layer = self.on_device
        layer.read(None, step)
        queries_BD, targets = layer.queries(_hidden(query)), Targets.of(query, layer.device)
        # A row whose targets are all classes draws from the softmax over them.
        avoids_B = (np.diff(query.target_indptr_B1) < layer.num_classes) & self.avoids_targets
        avoided_P = tensor_of(avoids_B[query.row_P], layer.device)
        for lo, hi in layer.blocks(query.num_rows):
            logits_BC = layer.block(queries_BD, lo, hi)
            if self.avoids_targets:
                here_P = avoided_P & (targets.ids_P >= lo) & (targets.ids_P < hi)
                place_P = (targets.row_P, (targets.ids_P - lo).clamp(0, hi - lo - 1))
                mask_P = torch.zeros_like(here_P, dtype=torch.float32).masked_fill_(here_P, -torch.inf)
                logits_BC.index_put_(place_P, mask_P, accumulate=True)
            yield lo, logits_BC

    def _weights(self, logits_BC: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights e^(o - shift) or alpha o^2 + 1, summed up along each row, (B, C) float64, and the shifts."""
        alpha = self.config.kernel_alpha
        if alpha > 0:
            return logits_BC.square().mul_(alpha).add_(1).cumsum(1, dtype=torch.float64), logits_BC.new_zeros(1)
        top_B = logits_BC.amax(1)
        shift_B = torch.where(top_B == -torch.inf, 0, top_B)
        return (logits_BC - shift_B[:, None]).exp_().cumsum(1, dtype=torch.float64), shift_B

    def _pass(self, query: Query, step: int, draws: int, ids: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return drawn ids, their logits (B, M), the targets' logits (P,), totals (B,) and the logits of ``ids`` (X,).

        ``ids``: classes whose logits are wanted of all rows, (B, X).
        """
        layer, rows = self.on_device, query.num_rows
        device, targets = layer.device, Targets.of(query, layer.device)
        row_B1 = torch.arange(rows, device=device)[:, None]
        key_B1 = words.stream(self.seed, rng.SAMPLE, step, row_B1, device)
        key_BM = words.word(key_B1, torch.arange(draws, device=device))
        log_total_B = torch.full((rows,), -torch.inf, dtype=torch.float64, device=device)
        ids_BM = torch.zeros((rows, draws), dtype=torch.int64, device=device)
        logit_BM, target_logit_P = (
            torch.zeros((rows, draws), device=device),
            torch.zeros(len(targets.ids_P), device=device),
        )
        asked_BX = torch.zeros((rows, 0 if ids is None else len(ids)), device=device)
        for lo, logits_BC in self._logits(query, step):
            width = logits_BC.shape[1]
            here_P, place_P = (
                (targets.ids_P >= lo) & (targets.ids_P < lo + width),
                (targets.ids_P - lo).clamp(0, width - 1),
            )
            target_logit_P = torch.where(here_P, logits_BC[targets.row_P, place_P], target_logit_P)
            if ids is not None:
                asked_BX = torch.where(
                    (ids >= lo) & (ids < lo + width), logits_BC[:, (ids - lo).clamp(0, width - 1)], asked_BX
                )
            upto_BC, shift_B = self._weights(logits_BC)
            whole_B1 = upto_BC[:, -1:].contiguous()
            log_block_B = whole_B1[:, 0].log() + shift_B
            total_B = torch.logaddexp(log_total_B, log_block_B)
            # A uniform number below ``share`` moves the draw into this block; divided by it, it chooses the class.
            share_B1 = (log_block_B - total_B).exp()[:, None].nan_to_num(0.0)
            unit_BM = words.unit(words.mix(key_BM ^ lo))
            goal_BM = unit_BM / share_B1.clamp_min(1e-300) * whole_B1
            # Rounding may lead past the last class with weight, which is where the sum is first the whole.
            place_BM = torch.minimum(
                torch.searchsorted(upto_BC, goal_BM, right=True), torch.searchsorted(upto_BC, whole_B1)
            )
            moves_BM = unit_BM < share_B1
            ids_BM = torch.where(moves_BM, lo + place_BM, ids_BM)
            logit_BM = torch.where(moves_BM, logits_BC.gather(1, place_BM.clamp_max(width - 1)), logit_BM)
            log_total_B = total_B
        if not isinstance(query, TorchQuery) and not bool(log_total_B.isfinite().all()):
            raise Diverged(f"sampler={self.config.name}: a logit is not a finite number; try a smaller optimizer.lr")
        return ids_BM, logit_BM, target_logit_P, log_total_B, asked_BX

    def sample(self, query: Query, step: int) -> TorchProposal:
        ids_BM, logit_BM, target_logit_P, log_total_B, _ = self._pass(query, step, self.config.num_samples)
        proposal = TorchProposal(ids_BM, self._counts(logit_BM, log_total_B[:, None]), distinct=False)
        row_P = Targets.of(query, log_total_B.device).row_P
        self._latest_on_device = proposal, self._counts(target_logit_P, log_total_B[row_P])
        return proposal

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        *_, log_total_B, logit_BM = self._pass(query, step, 0, ids_of(ids_M, self.on_device.device))
        return array_of(self._counts(logit_BM, log_total_B[:, None]))

    def _counts(self, logits: Tensor, log_total: Tensor) -> Tensor:
        alpha, logits = self.config.kernel_alpha, logits.double()
        log_weight = logits if alpha == 0 else (logits.square() * alpha + 1).log()
        return (log_weight - log_total + np.log(self.config.num_samples)).float()

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return what the pass that made the proposal found; a second pass over all classes would cost as much."""
        if self._latest_on_device is not None and self._latest_on_device[0] is proposal:
            return self._latest_on_device[1]
        return super().log_expected_count_of_targets(query, proposal, step)
