"""Make the class matrix and the batches that methods are timed on.

Legend: N classes (drawn candidates in ``ids_N``), D hidden size, B rows of a batch, P targets (one a row).
"""

import numpy as np

from runner.contracts import Query
from runner.optimizers import AdamConfig
from runner.options.settings import HardwareConfig
from runner.output.engines import on_device, rows_on

_SPREAD = np.float32(0.1)


def matrix_bytes(num_classes: int, dim: int) -> float:
    """Return the bytes of weights and both moments, biases included."""
    return 3.0 * 4 * num_classes * (dim + 1)


class Workload:
    """Hold one row table, one step counter for all methods that train on it, and the targets.

    ``dim``: hidden size D. ``seed``: of the weights. ``hardware``: where the matrix and the hidden states lie.
    ``uniform_labels``: classes are as frequent as each other; else they follow Zipf's law.
    """

    def __init__(
        self,
        optimizer: AdamConfig,
        *,
        num_classes: int,
        dim: int,
        seed: int = 0,
        hardware: HardwareConfig | None = None,
        uniform_labels: bool = False,
    ) -> None:
        self.num_classes, self.dim = num_classes, dim
        self.hardware = HardwareConfig() if hardware is None else hardware
        weights = np.random.default_rng(seed).standard_normal((num_classes, dim), dtype=np.float32)
        weights *= _SPREAD
        self.table = rows_on(self.hardware, optimizer, weights)
        # The table is as it would be after an epoch: every class has been updated, so none is exempt from catching up.
        # Filling the moments also maps all their pages before any timing.
        for name, value in {"first": 1e-6, "second": 1e-9, "last_step": 1}.items():
            getattr(self.table, name)[:] = value
        self.step = 2
        rank_N = np.arange(1, num_classes + 1, dtype=np.int64)
        self.label_counts_N = np.ones_like(rank_N) if uniform_labels else np.maximum(1, num_classes // rank_N)
        self._cumulative_N = np.cumsum(self.label_counts_N) / self.label_counts_N.sum()
        self._distinct_N = np.zeros(num_classes, dtype=bool)

    def queries(self, count: int, batch: int, seed: int) -> list[Query]:
        """Draw ``count`` batches of ``batch`` rows.

        The same ``seed`` gives all methods of a repetition the same batches. Hidden states lie near their class's
        vector, as in a trained network, so that lookups hit buckets as they would there.
        """
        generator = np.random.default_rng([seed, self.num_classes])
        made = []
        for _ in range(count):
            targets = np.searchsorted(self._cumulative_N, generator.random(batch)).astype(np.int32)
            np.minimum(targets, self.num_classes - 1, out=targets)
            noise = generator.standard_normal((batch, self.dim), dtype=np.float32) * _SPREAD
            hidden = np.maximum(self.table.rows(targets) + noise, 0)
            indptr = np.arange(batch + 1, dtype=np.int64)
            query = Query(hidden_BD=hidden, target_indptr_B1=indptr, targets_P=targets)
            made.append(query if self.hardware.engine == "numba" else on_device(query, self.hardware))
        return made

    def skip_step(self) -> None:
        """Let a step pass that touches no row, so that under ``catch_up`` every row lags, as in real training."""
        self.step += 1

    def distinct_rows(self, query: Query, ids_N: np.ndarray | None) -> int:
        """Return the number of distinct class rows among targets and candidates ``ids_N`` (None: all classes)."""
        if ids_N is None:
            return self.num_classes
        self._distinct_N.fill(False)
        self._distinct_N[query.targets_P] = True
        self._distinct_N[ids_N] = True
        return int(np.count_nonzero(self._distinct_N))
