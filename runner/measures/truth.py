"""Compute the softmax itself at fixed weights, which every sampler is compared with.

Legend: B rows, C classes of a block, N classes, D hidden size.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from runner.contracts import Batch, Query
from runner.output.layer import Layer

if TYPE_CHECKING:
    from runner.network import ClassNetwork


def query_of(network: "ClassNetwork", batch: Batch) -> Query:
    """Return the query that a sampler gets for a batch; rows of the input matrix must be current."""
    return Query.of(network.encoder.encode(batch), batch)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Full softmax on the probe: log partition (B,) and gradient with regard to the hidden state (B, D), both float64.

    If the output layer normalises, the gradient is that of the scaled direction of the hidden state. ``by_magnitude``
    marks the softmax of the logits' absolute values, for a model that was trained so.
    """

    layer: Layer
    query: Query
    by_magnitude: bool
    log_partition_B: np.ndarray
    hidden_gradient_BD: np.ndarray

    @classmethod
    def of(cls, layer: Layer, query: Query, *, by_magnitude: bool = False) -> "Truth":
        """Pass over the classes twice, for the partition and for the gradient. Rows must be current."""
        rows, weights = query.num_rows, layer.class_vectors()
        blocks = layer.blocks(rows)
        top_B, sum_B = np.full(rows, -np.inf), np.zeros(rows)
        for lo, hi in blocks:
            logits_BC = logits_of(layer, query.hidden_BD, lo, hi).astype(np.float64)
            if by_magnitude:
                np.abs(logits_BC, out=logits_BC)
            new_top_B = np.maximum(top_B, logits_BC.max(1))
            sum_B = sum_B * np.exp(top_B - new_top_B) + np.exp(logits_BC - new_top_B[:, None]).sum(1)
            top_B = new_top_B
        truth = cls(
            layer=layer,
            query=query,
            by_magnitude=by_magnitude,
            log_partition_B=top_B + np.log(sum_B),
            hidden_gradient_BD=np.zeros((rows, layer.dim)),
        )
        for lo, hi in blocks:
            grad_BC = truth._gradient(np.arange(rows), lo, hi)[1].astype(np.float32)
            truth.hidden_gradient_BD[:] += (torch.from_numpy(grad_BC) @ torch.from_numpy(weights[lo:hi])).numpy()
        return truth

    def softmax(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one row's log p (N,) and the gradient (N,) of its cross-entropy with regard to the logits, float64."""
        log_p_1N, grad_1N = self._gradient(np.array([row]), 0, self.layer.num_classes)
        return log_p_1N[0], grad_1N[0]

    def _gradient(self, rows_B: np.ndarray, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as ``softmax`` for some rows and the classes [lo, hi), each (B, C)."""
        logits_BC = logits_of(self.layer, self.query.hidden_BD[rows_B], lo, hi).astype(np.float64)
        log_p_BC = (np.abs(logits_BC) if self.by_magnitude else logits_BC) - self.log_partition_B[rows_B, None]
        grad_BC = np.exp(log_p_BC)
        for place, row in enumerate(rows_B):
            targets = self.query.targets_of(row)
            grad_BC[place, targets[(targets >= lo) & (targets < hi)] - lo] -= 1 / len(targets)
        if self.by_magnitude:
            grad_BC *= np.sign(logits_BC)
        return log_p_BC, grad_BC


def logits_of(layer: Layer, hidden_BD: np.ndarray, lo: int, hi: int) -> np.ndarray:
    """Return the logits of the classes [lo, hi), (B, hi - lo) float32."""
    logits_BC = np.empty((len(hidden_BD), hi - lo), dtype=np.float32)
    layer.block_logits(hidden_BD, lo, hi, logits_BC)
    return logits_BC
