"""Hold queries and proposals in tensors; NumPy copies are made where a sampler on the CPU, or a check, asks for them.

Legend: B rows of a batch, D hidden size, P targets of the batch, M shared candidates, or places for each row's own.
"""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from runner.contracts import Batch, Proposal, Query
from runner.output.held import Held, indptr_of_kept
from runner.output.torch.arrays import array_of, ids_of, tensor_of


class TorchQuery(Query):
    """Hold hidden states on a device, and the targets in both memories, as they come from a batch.

    ``hidden_BD`` is a copy for those who read it from NumPy; ``hidden`` is the tensor (B, D).
    """

    def __init__(
        self,
        hidden: Tensor,
        target_indptr_B1: np.ndarray,
        targets_P: np.ndarray,
        num_examples: int | None = None,
    ) -> None:
        set_field = object.__setattr__  # the base class is frozen
        set_field(self, "hidden", hidden)
        set_field(self, "target_indptr_B1", target_indptr_B1)
        set_field(self, "targets_P", targets_P)
        set_field(self, "num_examples", num_examples)

    hidden: Tensor

    @classmethod
    def of_batch(cls, hidden: Tensor, batch: Batch) -> "TorchQuery":
        """Make the query of a batch whose rows have these hidden states."""
        return cls(hidden, batch.target_indptr, batch.targets, batch.num_examples)

    @cached_property
    def hidden_BD(self) -> np.ndarray:
        return array_of(self.hidden)


def hidden_on(query: Query, device: torch.device) -> Tensor:
    """Return the hidden states of a query as a tensor on a device, (B, D) float32."""
    hidden = query.hidden if isinstance(query, TorchQuery) else query.hidden_BD
    return tensor_of(hidden, device, torch.float32)


class Targets:
    """Hold the targets of a query on a device: rows of a table, (P,) int64, and the batch's rows, which begin where.

    ``held``: only the targets among these classes; None: all. ``counts_B``: the rows' numbers of targets, float32,
    wherever these are held. ``kept_P``: the places of the held targets among all; None if they are all held.
    """

    kept_P: Tensor | None = None

    def __init__(self, query: Query, device: torch.device, held: Held | None = None) -> None:
        indptr_B1, ids_P, row_P = query.target_indptr_B1, query.targets_P, query.row_P
        self.num_rows = query.num_rows
        self.counts_B = tensor_of(np.diff(indptr_B1).astype(np.float32), device)
        if held is not None:
            here_P = held.among(ids_P)
            self.kept_P = ids_of(np.flatnonzero(here_P), device)
            indptr_B1 = indptr_of_kept(indptr_B1, here_P)
            ids_P, row_P = ids_P[here_P] - np.int32(held.lo), row_P[here_P]
        self.ids_P = ids_of(ids_P, device)
        self.row_P = ids_of(row_P, device)
        self.indptr_B1 = ids_of(indptr_B1, device)

    @classmethod
    def of(cls, query: Query, device: torch.device) -> "Targets":
        """Return the targets of a query, which are copied to the device once, for all parts of a step."""
        held: Targets | None = query.__dict__.get("held_targets")
        if held is None or held.ids_P.device.type != device.type:
            held = Targets(query, device)
            object.__setattr__(query, "held_targets", held)  # the class is frozen
        return held


class TorchProposal(Proposal):
    """Hold candidates on a device, in places of which some may be empty, so that no size depends on what was drawn.

    ``ids`` and ``log_count``: (M,) if all rows share them, else (B, M). ``valid``: which places hold a candidate; None:
    all. The arrays of ``Proposal`` are copies without the empty places.
    """

    def __init__(self, ids: Tensor, log_count: Tensor, valid: Tensor | None = None, *, distinct: bool = True) -> None:
        set_field = object.__setattr__  # the base class is frozen
        set_field(self, "ids", ids)
        set_field(self, "log_count", log_count)
        set_field(self, "valid", valid)
        set_field(self, "distinct", distinct)

    ids: Tensor
    log_count: Tensor
    valid: Tensor | None

    @property
    def is_shared(self) -> bool:
        return self.ids.dim() == 1

    @cached_property
    def _order(self) -> Tensor | None:
        """Return the places of shared candidates by ascending id, as a proposal lists them."""
        return torch.argsort(self.ids, stable=True) if self.is_shared else None

    def _listed(self, values: Tensor) -> np.ndarray:
        valid = self.valid
        if self._order is not None:
            values = values[self._order]
            valid = None if valid is None else valid[self._order]
        return array_of(values.reshape(-1) if valid is None else values[valid])

    @cached_property
    def ids_N(self) -> np.ndarray:
        return self._listed(self.ids).astype(np.int32)

    @cached_property
    def log_expected_count_N(self) -> np.ndarray:
        return self._listed(self.log_count).astype(np.float32)

    @cached_property
    def indptr_B1(self) -> np.ndarray | None:
        if self.is_shared:
            return None
        rows, places = self.ids.shape
        if self.valid is None:
            return np.arange(rows + 1, dtype=np.int64) * places
        return np.concatenate([[0], np.cumsum(array_of(self.valid.sum(1)))]).astype(np.int64)

    def candidates_per_row(self, num_rows: int) -> float:
        """Return the mean number of candidates of ``num_rows`` rows."""
        if self.valid is None:
            return float(self.ids.shape[-1])
        return float(self.valid.sum()) / (1 if self.is_shared else max(1, num_rows))


def proposal_on(proposal: Proposal, device: torch.device) -> TorchProposal:
    """Return a proposal in tensors; that of a sampler on the CPU is copied, padded to the longest row."""
    if isinstance(proposal, TorchProposal):
        return proposal
    indptr_B1 = proposal.indptr_B1
    if indptr_B1 is None:
        ids, log_count = ids_of(proposal.ids_N, device), tensor_of(proposal.log_expected_count_N, device)
        return TorchProposal(ids, log_count, distinct=proposal.distinct)
    sizes_B = np.diff(indptr_B1)
    valid_BM = np.arange(max(1, sizes_B.max(initial=0))) < sizes_B[:, None]
    ids_BM, log_count_BM = np.zeros(valid_BM.shape, dtype=np.int64), np.zeros(valid_BM.shape, dtype=np.float32)
    ids_BM[valid_BM], log_count_BM[valid_BM] = proposal.ids_N, proposal.log_expected_count_N
    tensors = (tensor_of(array, device) for array in (ids_BM, log_count_BM, valid_BM))
    return TorchProposal(*tensors, distinct=proposal.distinct)


def held_candidates(proposal: TorchProposal, held: Held) -> TorchProposal:
    """Return the candidates among held classes, as rows of their table; this waits once, to learn how many they are.

    Without it, each holder would score all candidates.
    """
    here = held.among(proposal.ids)
    if proposal.valid is not None:
        here = here & proposal.valid
    ids, log_count, distinct = proposal.ids - held.lo, proposal.log_count, proposal.distinct
    if proposal.is_shared:
        return TorchProposal(ids[here], log_count[here], distinct=distinct)
    width = max(1, int(here.sum(1).max())) if here.numel() else 1
    order_BM = torch.argsort(~here, dim=1, stable=True)[:, :width]  # what is held comes first, in its order
    return TorchProposal(*(of.gather(1, order_BM) for of in (ids, log_count, here)), distinct=distinct)
