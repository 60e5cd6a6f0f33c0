"""Draw from a fixed distribution on a device; the draws are those of ``samplers.static``.

Legend: B rows, N classes, M draws of a row or of the batch.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.output.torch import words
from runner.output.torch.arrays import ids_of, tensor_of
from runner.output.torch.batches import Targets, TorchProposal
from runner.samplers.in_batch import InBatch
from runner.samplers.on_device.subsets import first_of_each
from runner.samplers.static import Static, StaticConfig


class TorchStatic(Static):
    """Draw from a fixed distribution q (N,) by an alias table on the device."""

    def __init__(self, config: StaticConfig, q_N: np.ndarray, seed: int, device: torch.device) -> None:
        super().__init__(config, q_N, seed)
        self.device = device
        self._accept_N = tensor_of(self._accept, device)
        self._alias_N = ids_of(self._alias, device)
        self._log_count_N = tensor_of(self.log_count_N, device)
        # Held, not made in each step: a compiler would multiply the numbers of a range without wrapping.
        draw_M = torch.arange(config.num_samples, device=device)
        self._slot_M, self._coin_M = words.multiples(2 * draw_M), words.multiples(2 * draw_M + 1)

    def sample(self, query: Query, step: int | Tensor) -> TorchProposal:
        rows: int | Tensor = 0
        if self.config.shared and self.config.unique and isinstance(step, int):
            # One draw for all rows depends on nothing of the device. The CPU makes it ahead, and so knows its size.
            ids = ids_of(self.draw(step), self.device)
            return TorchProposal(ids, self._log_count_N[ids])
        if not self.config.shared:
            rows = torch.arange(query.num_rows, device=self.device)[:, None]
        ids = self._draws(words.stream(self.seed, rng.SAMPLE, step, rows, self.device))
        valid = None
        if self.config.shared:
            ids = ids.sort().values
        if self.config.unique:
            valid = first_of_each(ids, is_sorted=self.config.shared)
        return TorchProposal(ids, self._log_count_N[ids], valid, distinct=self.config.unique)

    def _draws(self, key: Tensor) -> Tensor:
        """Return the classes that the streams draw, (..., M) int64, by an alias table (Walker 1977; Vose 1991)."""
        slot = words.below(words.mix(key + self._slot_M), len(self._accept_N))
        is_alias = words.unit(words.mix(key + self._coin_M)) >= self._accept_N[slot]
        return torch.where(is_alias, self._alias_N[slot], slot)

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target, (P,) float32, as a tensor."""
        return self.log_count_of(Targets.of(query, self.device).ids_P)

    def log_count_of(self, ids: Tensor) -> Tensor:
        """Return the log expected counts of classes, float32, in the shape of ``ids``."""
        return self._log_count_N[ids]


class TorchInBatch(InBatch):
    """Take the other rows' targets as each row's negatives; counts are kept on the device."""

    def __init__(self, *args: Any, device: torch.device) -> None:
        super().__init__(*args)
        self.device = device
        self._on_device: tuple[np.ndarray, Tensor] | None = None

    def _counts(self, query: Query) -> Tensor:
        log_count_N = self._log_count_N(query)
        if self._on_device is None or self._on_device[0] is not log_count_N:
            self._on_device = log_count_N, tensor_of(log_count_N, self.device)
        return self._on_device[1]

    def sample(self, query: Query, step: int) -> TorchProposal:
        ids_M = ids_of(np.unique(query.targets_P), self.device)  # targets come from the batch, which the CPU made
        return TorchProposal(ids_M, self._counts(query)[ids_M])

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target, (P,) float32, as a tensor."""
        return self._counts(query)[Targets.of(query, self.device).ids_P]
