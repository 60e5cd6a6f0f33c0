"""Draw classes through an inverted multi-index of their quantised vectors (MIDX).

Two codebooks of C codewords (``runner.structures.quantizers``) write the vector of class i as first[k1] + second[k2]
plus a residual. The cell Omega(k1, k2) holds the classes with these codes. With the query's scores s1, s2 of the
codewords, a class is drawn in three steps (Theorem 2):

    P(k1)      ~ exp(s1[k1]) psi(k1),    psi(k1) = sum over k2 of |Omega(k1, k2)| exp(s2[k2])
    P(k2 | k1) ~ |Omega(k1, k2)| exp(s2[k2])
    P(i | k1, k2) = 1 / |Omega(k1, k2)|

so that log q_i = s1 + s2 - log Z, where Z is the sum over classes of exp(s1 + s2). A query costs O(C d + C^2 + m);
only the build of the index depends on n. Draws are with replacement, so the expected count is m q_i.

The logit o_i has a part that q ignores: h . residual_i + b_i, as biases are not quantised. ``within=popularity``
restores what of it does not depend on the query: in the last step the weight v_i = max(count_i, 1) ^ exponent replaces
1, and the sum of v over the cell replaces |Omega|, so that log q_i = s1 + s2 + log v_i - log Z. Counts are the right
weights because, after training has converged, the softmax summed over the training queries gives each class its count.
So count_i over the cell's count is the softmax's own P(i | k1, k2), averaged over queries by how much they favour the
cell. Of all last factors that ignore the query it has the least KL divergence. Between cells, however, codewords and
popularity then both count frequency, and early in training popularity alone does. So exponents under 1 do better;
docs/log.md has the divergences that made 0.75 the default.

@article{chen2025adaptive, title={Adaptive Sampled Softmax with Inverted Multi-Index: Methods, Theory and
Applications}, author={Chen, Jin and Zhang, Jin and Huang, Xu and Yang, Yi and Lian, Defu and Chen, Enhong},
journal={arXiv:2501.08563}, year={2025}}

Legend: B rows (B' rounded up), D hidden size, N classes (in a ``Proposal``: candidates of all rows), C codewords of a
codebook, K columns of a row's scores (both codebooks, padded), M candidates of a row or ids that a caller asks for,
X pairs of a row and an id, P targets of all rows, U distinct classes. Matrices of cells (C, C) have the second codeword
k2 first, so that a loop over k2 serves every k1 at once.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.kernels import dense
from runner.kernels.codewords import panels_of, squared_norms
from runner.kernels.groups import CHUNKS, group_by_id, place_of
from runner.kernels.math import fast_exp
from runner.kernels.products import ROWS, round_up
from runner.kernels.rows import FAST
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig
from runner.structures.quantizers import Quantizer, check_usable
from runner.structures.refresh_schedule import RefreshSchedule

# ---------------------------------------------------------------- kernels


@njit(cache=True, fastmath=FAST)
def _fold(score_2C, log_mass_CC, top_C, total_C, cumulative_CC):
    """Sum mass exp(s2) over k2 for every k1, as total exp(top), and keep the running sums.

    Each k1 has its own maximum ``top``. Under a common maximum, the cells of a k1 with a high s1 could underflow to 0.
    """
    codewords = score_2C.shape[0]
    top_C[:] = np.float32(-np.inf)
    for k2 in range(codewords):
        for k1 in range(codewords):
            top_C[k1] = max(top_C[k1], log_mass_CC[k2, k1] + score_2C[k2])
    for k1 in range(codewords):
        if top_C[k1] == -np.inf:  # no class at all has this first codeword
            top_C[k1] = np.float32(0.0)
    total_C[:] = np.float32(0.0)
    for k2 in range(codewords):
        for k1 in range(codewords):
            total_C[k1] += fast_exp(log_mass_CC[k2, k1] + score_2C[k2] - top_C[k1])
            cumulative_CC[k2, k1] = total_C[k1]


@njit(cache=True)
def fold_cells(score_1C, score_2C, log_mass_CC, top_C, total_C, cumulative_CC, cumulative_C):
    """Fill running sums to draw from, ``cumulative_C`` over k1 and ``cumulative_CC`` over k2 given k1; return log Z.

    log Z is not finite when a score is not.
    """
    _fold(score_2C, log_mass_CC, top_C, total_C, cumulative_CC)
    highest = -np.inf
    for k1 in range(score_1C.shape[0]):
        cumulative_C[k1] = -np.inf
        if total_C[k1] > 0:
            cumulative_C[k1] = np.float64(score_1C[k1]) + np.float64(top_C[k1]) + np.log(np.float64(total_C[k1]))
        highest = max(highest, cumulative_C[k1])
    running = 0.0
    for k1 in range(score_1C.shape[0]):
        running += np.exp(cumulative_C[k1] - highest)
        cumulative_C[k1] = running
    return highest + np.log(running)


@njit(cache=True, inline="always")
def draw_cell(cumulative_C, cumulative_CC, bits_1, bits_2):
    """Draw codewords (k1, k2) by their probabilities.

    1 - unit lies in (0, 1], so the first place whose running sum reaches the target adds more than 0 to it.
    """
    last = cumulative_C.shape[0] - 1
    k1 = place_of((1.0 - rng.unit(bits_1)) * cumulative_C[last], cumulative_C, 0, last)
    target = (1.0 - rng.unit(bits_2)) * np.float64(cumulative_CC[last, k1])
    begin, end = 0, last
    while begin < end:
        middle = (begin + end) // 2
        if np.float64(cumulative_CC[middle, k1]) < target:
            begin = middle + 1
        else:
            end = middle
    return k1, begin


@njit(cache=True, parallel=True)
def _draw(
    scores_BK, second, log_mass_CC, start, members_N, popular_N, log_weight_N, log_samples, seed, step,
    ids_BM, log_count_BM, log_partition_B,
):  # fmt: skip
    """Fill the ids and log expected counts of each row, and its log partition (which needs no draws: M may be 0).

    Cell k1 C + k2 holds the classes ``members_N[start[cell] : start[cell + 1]]``. ``popular_N`` has the running sums of
    their weights where popularity decides within a cell; otherwise it is empty. A row whose scores are not finite gets
    uniform ids and NaN counts.
    """
    rows, num_samples = ids_BM.shape
    codewords = log_mass_CC.shape[0]
    by_popularity = popular_N.shape[0] > 0
    for part in prange(CHUNKS):
        top_C = np.empty(codewords, dtype=np.float32)
        total_C = np.empty(codewords, dtype=np.float32)
        cumulative_CC = np.empty((codewords, codewords), dtype=np.float32)
        cumulative_C = np.empty(codewords, dtype=np.float64)
        for row in range(part * rows // CHUNKS, (part + 1) * rows // CHUNKS):
            score_1C = scores_BK[row, :codewords]
            score_2C = scores_BK[row, second : second + codewords]
            log_partition = fold_cells(score_1C, score_2C, log_mass_CC, top_C, total_C, cumulative_CC, cumulative_C)
            log_partition_B[row] = log_partition
            key = rng.stream(seed, rng.SAMPLE, step, row)
            for draw in range(num_samples):
                bits = rng.word(key, 3 * draw + 2)
                if not np.isfinite(log_partition):
                    ids_BM[row, draw] = rng.below(bits, members_N.shape[0])
                    log_count_BM[row, draw] = np.nan
                    continue
                k1, k2 = draw_cell(cumulative_C, cumulative_CC, rng.word(key, 3 * draw), rng.word(key, 3 * draw + 1))
                begin, end = start[k1 * codewords + k2], start[k1 * codewords + k2 + 1]
                score = np.float64(score_1C[k1]) + np.float64(score_2C[k2])
                if by_popularity:
                    target = (1.0 - rng.unit(bits)) * popular_N[end - 1]
                    chosen = members_N[place_of(target, popular_N, begin, end - 1)]
                    score += log_weight_N[chosen]
                else:
                    chosen = members_N[begin + rng.below(bits, end - begin)]
                ids_BM[row, draw] = chosen
                log_count_BM[row, draw] = score + (log_samples - log_partition)


@njit(cache=True, parallel=True)
def _running_sums(weight_N, start, members_N):
    """Return running sums of weights over each cell's members; from 0 in each cell, so that rounding loses little."""
    sums_N = np.empty(members_N.shape[0], dtype=np.float64)
    for cell in prange(start.shape[0] - 1):
        running = 0.0
        for i in range(start[cell], start[cell + 1]):
            running += weight_N[members_N[i]]
            sums_N[i] = running
    return sums_N


# ---------------------------------------------------------------- settings


FEW_CODEWORDS = {"num_samples": 40, "codewords": 6, "refresh_every_steps": 3}  # for contract_cases


@dataclass(frozen=True, kw_only=True)
class IndexConfig(SamplerConfig):
    """Hold the options of every MIDX sampler."""

    refuses_nan: ClassVar[bool] = True
    num_samples: int = option(100, "draws of a row, with replacement", low=1)
    codewords: int = option(32, "size of each of the two codebooks", low=1, high=1024)
    refresh_every_steps: int | None = option(None, "steps between rebuilds of the index", null="once an epoch", low=1)
    kmeans_rows: int = option(16384, "number of classes that k-means sees, drawn anew at each rebuild", low=1)
    kmeans_iterations: int = option(20, "most passes of k-means over them", low=1)

    @property
    @abstractmethod
    def quantizer(self) -> Literal["pq", "rq"]:
        """Name the quantisation: ``pq`` (product) or ``rq`` (residual)."""

    @property
    def beam_of_quantizer(self) -> int:
        """Return ``Quantizer.beam``; 1 is the greedy assignment, which is exact under pq."""
        return 1

    def period(self, training: TrainingFacts) -> int:
        """Return the number of steps between rebuilds of the index."""
        return self.refresh_every_steps or max(1, training.steps_per_epoch)

    def build_quantizer(self) -> Quantizer:
        """Make the quantizer of these settings."""
        return Quantizer(
            kind=self.quantizer, codewords=self.codewords, rows=self.kmeans_rows, iterations=self.kmeans_iterations,
            beam=self.beam_of_quantizer,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MidxConfig(IndexConfig):
    """Draw a cell of the index, then a class of the cell."""

    within: Literal["uniform", "popularity"] = option("uniform", "how a class of the drawn cell is chosen")
    exponent: float = option(0.75, "of the training count, if within is popularity", low=0, high=4)

    def weights(self, training: TrainingFacts) -> np.ndarray | None:
        """Return the classes' weights v within a cell, (N,) float64; None if they are equal."""
        if self.within == "uniform":
            return None
        return np.maximum(training.label_counts_N, 1).astype(np.float64) ** self.exponent

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return Midx(self, layer, self.period(training), seed, self.weights(training))


@dataclass(frozen=True, kw_only=True)
class MidxPqConfig(MidxConfig):
    """Quantise each half of the vector by one codebook (MIDX-pq)."""

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "uniform": FEW_CODEWORDS,
        "popularity": {**FEW_CODEWORDS, "within": "popularity", "exponent": 0.5},
    }
    quantizer = "pq"


@dataclass(frozen=True, kw_only=True)
class MidxRqConfig(MidxConfig):
    """Quantise the residual of the first codebook by the second (MIDX-rq)."""

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "uniform": {**FEW_CODEWORDS, "kmeans_rows": 60},
        "popularity": {**FEW_CODEWORDS, "within": "popularity"},
    }
    quantizer = "rq"
    beam: int = option(
        4, "nearest first codewords, each tried with all second ones when a class is assigned; 1: greedy", low=1
    )

    @property
    def beam_of_quantizer(self) -> int:
        return self.beam


# ---------------------------------------------------------------- the samplers


class _ClassVectors:
    """Give vectors of some classes of a layer (``quantizers.RowsByNumber``)."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __len__(self) -> int:
        return self._layer.num_classes

    def __getitem__(self, rows_S: np.ndarray) -> np.ndarray:
        return self._layer.class_vectors(rows_S)


class MultiIndex(Sampler):
    """Hold the index over a layer's class matrix and its schedule of rebuilds; subclasses draw from it."""

    def __init__(
        self,
        config: IndexConfig,
        layer: Layer,
        period: int,
        seed: int,
        weight_N: np.ndarray | None = None,
    ) -> None:
        self.config = config
        self.layer = layer
        self.seed = seed
        self.quantizer = config.build_quantizer()
        self._weight_N = weight_N
        self._log_weight_N = None if weight_N is None else np.log(weight_N)
        self._popular_N = np.zeros(0, dtype=np.float64)
        self.schedule = RefreshSchedule(period)
        self.distortion = 0.0
        self.codebooks_2CD: np.ndarray | None = None
        self.rebuild(0)

    # ------------------------------------------------------------ following the weights

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        """Rebuild the index when the period is over."""
        if not self.schedule.comes_due(step):
            return False
        self.layer.read(None, step + 1)
        self.rebuild(step)
        return True

    def rebuild(self, step: int) -> None:
        """Make new codebooks from the present ones, and new codes. Raise Diverged if weights are not finite."""
        codebooks = self.new_codebooks(step)
        codes_2N, error, square = self.assign(codebooks, step)
        self.distortion = error / max(square, 1e-30)
        self._set(codebooks, codes_2N)

    def new_codebooks(self, step: int) -> np.ndarray:
        """Return the codebooks (2, C, D) to go on with: those that k-means makes from the present ones."""
        generator = rng.generator(self.seed, rng.QUANTIZE, step)
        when = f" after step {step}"
        return self.quantizer.fit(_ClassVectors(self.layer), generator, self.codebooks_2CD, when=when)

    def assign(self, codebooks_2CD: np.ndarray, step: int) -> tuple[np.ndarray, float, float]:
        """Return the classes' codes (2, N) uint16, and the sums of squares of their errors and of their vectors."""
        part, sums = self.layer.part, np.zeros(2)

        def codes(held_U: np.ndarray | None) -> np.ndarray:
            vectors_UD = part.class_vectors(held_U)
            norm_U = squared_norms(vectors_UD)
            check_usable(norm_U, f" after step {step}", part.across)
            codes_2U, error_U = self.quantizer.assign(vectors_UD, codebooks_2CD)
            sums[:] = error_U.sum(dtype=np.float64), norm_U.sum(dtype=np.float64)
            return codes_2U

        codes_2N = self.layer.of_classes(None, codes, axis=1)
        error, square = self.layer.across.sum(sums).tolist()
        return codes_2N, error, square

    def _set(self, codebooks_2CD: np.ndarray, codes_2N: np.ndarray) -> None:
        """Store codebooks and codes, and derive everything else from them."""
        codewords = self.config.codewords
        self.codebooks_2CD = codebooks_2CD
        self.codes_2N = codes_2N
        self._panels = panels_of(codebooks_2CD)
        cell_N = codes_2N[0].astype(np.int32) * codewords + codes_2N[1]
        self.members_N, _, _ = group_by_id(cell_N, codewords**2)
        self.cell_start = np.zeros(codewords**2 + 1, dtype=np.int64)
        np.cumsum(np.bincount(cell_N, minlength=codewords**2), out=self.cell_start[1:])

        mass = np.bincount(cell_N, weights=self._weight_N, minlength=codewords**2)
        with np.errstate(divide="ignore"):  # an empty cell has log mass -inf
            log_mass = np.log(mass).astype(np.float32).reshape(codewords, codewords)
        self._log_mass_CC = np.ascontiguousarray(log_mass.T)
        if self._weight_N is not None:
            self._popular_N = _running_sums(self._weight_N, self.cell_start, self.members_N)

    def scores(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return products with the codewords, (B', K); the second codebook's columns begin at ``second``."""
        rows, dim = hidden_BD.shape
        padded_BD = np.zeros((round_up(rows, ROWS), dim), dtype=np.float32)
        padded_BD[:rows] = self.layer.query_vectors(hidden_BD)
        num_panels, _, width = self._panels.shape
        scores_BK = np.empty((len(padded_BD), num_panels * width), dtype=np.float32)
        dense.logits(padded_BD, self._panels, np.zeros(0, dtype=np.float32), scores_BK)
        return scores_BK

    @property
    def second(self) -> int:
        """Return the column of the scores at which the second codebook begins."""
        num_panels, _, width = self._panels.shape
        return num_panels // 2 * width

    @property
    def statistics(self) -> dict[str, float]:
        sizes = np.diff(self.cell_start)
        held = (self.codes_2N, self.members_N, self.cell_start, self._log_mass_CC, self._popular_N)
        return {
            "refreshes": self.schedule.count,
            "distortion": self.distortion,
            "cells_in_use": int((sizes > 0).sum()),
            "largest_cell": int(sizes.max()),
            "index_mb": sum(array.nbytes for array in held) / 2**20,
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        assert self.codebooks_2CD is not None
        schedule = np.array([self.schedule.count, self.schedule.next, self.distortion], dtype=np.float64)
        return {"codebooks": self.codebooks_2CD, "codes": self.codes_2N, "schedule": schedule}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        count, self.schedule.next, self.distortion = state["schedule"].tolist()
        self.schedule.count = int(count)
        self._set(np.array(state["codebooks"]), np.array(state["codes"]))


class Midx(MultiIndex):
    """Draw by Theorem 2, or with popularity in the last factor."""

    config: MidxConfig

    def _draw(self, scores_BK: np.ndarray, rows: int, num_samples: int, step: int) -> tuple[np.ndarray, ...]:
        """Return ids (B, M) int32, their log expected counts (B, M) float32 and log Z (B,) float64."""
        ids_BM = np.empty((rows, num_samples), dtype=np.int32)
        log_count_BM = np.empty((rows, num_samples), dtype=np.float32)
        log_partition_B = np.empty(rows, dtype=np.float64)
        _draw(
            scores_BK, self.second, self._log_mass_CC, self.cell_start, self.members_N, self._popular_N,
            self._popular_N if self._log_weight_N is None else self._log_weight_N,
            np.log(self.config.num_samples), self.seed, step, ids_BM, log_count_BM, log_partition_B,
        )  # fmt: skip
        return ids_BM, log_count_BM, log_partition_B

    def sample(self, query: Query, step: int) -> Proposal:
        rows = query.num_rows
        ids_BM, log_count_BM, _ = self._draw(self.scores(query.hidden_BD), rows, self.config.num_samples, step)
        return Proposal(
            ids_N=ids_BM.reshape(-1),
            log_expected_count_N=log_count_BM.reshape(-1),
            indptr_B1=np.arange(rows + 1, dtype=np.int64) * self.config.num_samples,
            distinct=False,
        )

    def _log_count(self, query: Query, row_X: np.ndarray, ids_X: np.ndarray) -> np.ndarray:
        """Return log expected counts of pairs of rows and ids, which broadcast, by the arithmetic of ``_draw``."""
        scores_BK = self.scores(query.hidden_BD)
        _, _, log_partition_B = self._draw(scores_BK, query.num_rows, 0, 0)
        first, second = self.codes_2N[:, ids_X].astype(np.int64)
        log_count = scores_BK[row_X, first].astype(np.float64) + scores_BK[row_X, self.second + second]
        if self._log_weight_N is not None:
            log_count += self._log_weight_N[ids_X]
        log_count += np.log(self.config.num_samples) - log_partition_B[row_X]
        return log_count.astype(np.float32)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return self._log_count(query, np.arange(query.num_rows)[:, None], ids_M[None, :])

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        return self._log_count(query, query.row_P, query.targets_P)
