"""Draw from a distribution that is fixed before training: uniform, unigram or log-uniform (``log_uniform``).

All three samplers draw ``num_samples`` times with replacement from q by an alias table (Walker 1977; Vose 1991), in
O(1) a draw for any number of classes. Without ``unique``, the expected count of class i is num_samples * q_i. With
``unique``, repeated draws are dropped, and it is exactly 1 - (1 - q_i)^num_samples.

With ``with_targets`` the batch's targets join the draw, and their expected count is 1: the vocabulary of a step is a
subset that has all targets of the batch in it, over which Jean et al. take the softmax (``loss=active_set``).

@article{bengio2008adaptive, title={Adaptive Importance Sampling to Accelerate Training of a Neural
Probabilistic Language Model}, author={Bengio, Yoshua and Sen{\\'e}cal, Jean-S{\\'e}bastien},
journal={IEEE Transactions on Neural Networks}, year={2008}}
@inproceedings{jean2015using, title={On Using Very Large Target Vocabulary for Neural Machine Translation},
author={Jean, S{\\'e}bastien and Cho, Kyunghyun and Memisevic, Roland and Bengio, Yoshua}, booktitle={ACL}, year={2015}}

Legend: B rows, N classes (in a ``Proposal``: candidates of all rows), M ids that a caller asks for.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import get_num_threads, njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import require
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig
from runner.structures.alias_table import alias_table


@njit(cache=True, parallel=True)
def _draw(accept, alias, num_rows, num_samples, unique, seed, step, stamp):
    """Return ids (num_rows, num_samples) int32, and how many leading ones of each row are valid (num_rows,).

    stamp: (workers, N) zeros, which marks the classes that a row has drawn and is left as zeros.
    """
    n = accept.shape[0]
    ids = np.empty((num_rows, num_samples), dtype=np.int32)
    lengths = np.empty(num_rows, dtype=np.int64)
    workers = stamp.shape[0]
    for worker in prange(workers):
        for row in range(worker * num_rows // workers, (worker + 1) * num_rows // workers):
            key = rng.stream(seed, rng.SAMPLE, step, row)
            length = 0
            for draw in range(num_samples):
                slot = rng.below(rng.word(key, 2 * draw), n)
                if rng.unit(rng.word(key, 2 * draw + 1)) >= accept[slot]:
                    slot = alias[slot]
                if unique:
                    if stamp[worker, slot] == 1:
                        continue
                    stamp[worker, slot] = 1
                ids[row, length] = slot
                length += 1
            lengths[row] = length
            if unique:
                for i in range(length):
                    stamp[worker, ids[row, i]] = 0
    return ids, lengths


@dataclass(frozen=True, kw_only=True)
class StaticConfig(SamplerConfig):
    """Draw from a fixed distribution."""

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "shared": {"num_samples": 40},
        "per_row": {"num_samples": 40, "shared": False},
        "repeats": {"num_samples": 40, "unique": False},
        "per_row_repeats": {"num_samples": 40, "shared": False, "unique": False},
        "with_targets": {"num_samples": 40, "with_targets": True},
    }
    num_samples: int = option(1000, "draws, with replacement", low=1)
    shared: bool = option(True, "true: one draw for the whole batch; false: fresh candidates for each row")
    unique: bool = option(True, "drop repeated draws")
    with_targets: bool = option(
        False, "the batch's targets join the shared draw: a sub-sampled vocabulary (Jean et al. 2015)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.with_targets or (self.shared and self.unique),
            "sampler.with_targets=true joins a draw of distinct classes that the batch shares; leave shared and unique"
            " true",
        )

    @abstractmethod
    def distribution(self, label_counts_N: np.ndarray) -> np.ndarray:
        """Return q, (N,) float64 with sum 1, for a training set with these numbers of positives per class."""

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return Static(self, self.distribution(training.label_counts_N), seed)


@dataclass(frozen=True, kw_only=True)
class UniformConfig(StaticConfig):
    """Draw every class with the same probability: q_i = 1 / n."""

    def distribution(self, label_counts_N: np.ndarray) -> np.ndarray:
        return np.full(len(label_counts_N), 1 / len(label_counts_N))


@dataclass(frozen=True, kw_only=True)
class UnigramConfig(StaticConfig):
    """Draw class i with q_i proportional to count_i ** exponent, or to log(count_i + 1) ** exponent.

    A class without a training positive counts as if it had one, so that every q_i is above 0.
    """

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **StaticConfig.contract_cases,
        "flattened": {"num_samples": 40, "exponent": 0.75},
        "logs_of_counts": {"num_samples": 40, "weight": "log_count"},
    }
    exponent: float = option(
        1.0, "a class's probability is proportional to its training count ** exponent", low=0, high=4
    )
    weight: Literal["count", "log_count"] = option(
        "count",
        "",
        choices={
            "count": "the exponent is that of the count",
            "log_count": "it is that of log(count + 1), as in MIDX's released code",
        },
    )

    def distribution(self, label_counts_N: np.ndarray) -> np.ndarray:
        weight = np.maximum(label_counts_N, 1).astype(np.float64)
        if self.weight == "log_count":
            weight = np.log1p(weight)
        weight **= self.exponent
        return weight / weight.sum()


class Static(Sampler):
    """Draw from a fixed distribution q (N,)."""

    def __init__(self, config: StaticConfig, q_N: np.ndarray, seed: int) -> None:
        self.config = config
        self.seed = seed
        tries = config.num_samples
        with np.errstate(divide="ignore"):  # q = 1 (one class) has log1p(-1) = -inf and expected count 1
            count = -np.expm1(tries * np.log1p(-q_N)) if config.unique else tries * q_N
        self.log_count_N = np.log(count).astype(np.float32)
        self._accept, self._alias = alias_table(q_N)
        self._stamp = np.zeros((get_num_threads(), len(q_N)), dtype=np.int8)

    def _draw(self, num_rows: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        config = self.config
        return _draw(
            self._accept, self._alias, num_rows, config.num_samples, config.unique, self.seed, step, self._stamp
        )

    def draw(self, step: int) -> np.ndarray:
        """Return the ids of the step's draw for the whole batch, ascending int32."""
        ids, lengths = self._draw(1, step)
        return np.sort(ids[0, : lengths[0]])

    def _log_count_of(self, query: Query, ids_M: np.ndarray) -> np.ndarray:
        """Return the log expected count of classes (M,); targets that join the draw are certain to be in it."""
        log_count_M = self.log_count_N[ids_M]
        if self.config.with_targets:
            log_count_M = np.where(np.isin(ids_M, query.targets_P), np.float32(0), log_count_M)
        return log_count_M

    def sample(self, query: Query, step: int) -> Proposal:
        config = self.config
        if config.shared:
            chosen = self.draw(step)
            if config.with_targets:
                chosen = np.union1d(chosen, query.targets_P).astype(np.int32)
            return Proposal(
                ids_N=chosen, log_expected_count_N=self._log_count_of(query, chosen), distinct=config.unique
            )
        ids, lengths = self._draw(query.num_rows, step)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        chosen = ids[np.arange(config.num_samples) < lengths[:, None]]
        log_count = self.log_count_N[chosen]
        return Proposal(ids_N=chosen, log_expected_count_N=log_count, indptr_B1=indptr, distinct=config.unique)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.broadcast_to(self._log_count_of(query, ids_M), (query.num_rows, len(ids_M)))
