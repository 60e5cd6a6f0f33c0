"""Draw from the softmax itself, factored through the cells of an inverted multi-index (MIDX paper, Theorem 1).

With the residual logit r_i = o_i - s1[k1] - s2[k2] (it contains the class's bias b_i, as o_i does),

    omega(k1, k2)  = sum over the cell of exp(r_i)
    psi(k1)        = sum over k2 of omega(k1, k2) exp(s2[k2])
    P(k1)          = psi(k1) exp(s1[k1]) / sum of the same over all first codewords
    P(k2 | k1)     = omega(k1, k2) exp(s2[k2]) / psi(k1)
    P(i | k1, k2)  = exp(r_i) / omega(k1, k2)

whose product is exp(o_i) / Z for any codebooks. This needs every logit, O(n d) a query: it is an oracle to compare the
fast samplers with, not a way to save time. Draws are with replacement, so the expected count is m p_i. The sampler
works on W rows of the batch at a time, the width of a register tile, so it holds n W logits at most.

BibTeX: see ``runner.samplers.midx``.

Legend: B rows (B' rounded up), D hidden size, N classes (in a ``Proposal``: candidates of all rows), M listed classes,
C codewords of a codebook, K columns of the scores, W rows worked on together, X draws of a row. Matrices of cells
(C, C) have the second codeword first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.kernels.groups import CHUNKS
from runner.kernels.math import fast_exp
from runner.kernels.products import COLUMNS, ROWS, round_up, tile_float32
from runner.kernels.rows import FAST
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler
from runner.samplers.midx import FEW_CODEWORDS, IndexConfig, MultiIndex, draw_cell, fold_cells

# ---------------------------------------------------------------- kernels


@njit(cache=True, parallel=True)
def _logits(weights_ND, bias_N, ids_M, panel_DW, logits_MW):
    """Compute the logits of the listed classes for the rows of one panel; ``bias_N`` may be empty."""
    dim, width = panel_DW.shape
    listed = ids_M.shape[0]
    tiles = (listed + ROWS - 1) // ROWS
    at_panel = panel_DW.ctypes.data
    for part in prange(CHUNKS):
        block = np.zeros((ROWS, dim), dtype=np.float32)
        tile = np.empty((ROWS, width), dtype=np.float32)
        at_block, at_tile = block.ctypes.data, tile.ctypes.data
        for lo in range(part * tiles // CHUNKS * ROWS, (part + 1) * tiles // CHUNKS * ROWS, ROWS):
            size = min(ROWS, listed - lo)
            for i in range(size):
                for k in range(dim):
                    block[i, k] = weights_ND[ids_M[lo + i], k]
            tile_float32(at_block, dim, 1, at_panel, width, dim, at_tile, width, False)
            for i in range(size):
                bias = bias_N[ids_M[lo + i]] if bias_N.shape[0] > 0 else np.float32(0.0)
                for w in range(width):
                    logits_MW[lo + i, w] = tile[i, w] + bias


@njit(cache=True)
def _subtract(logits_MW, begin, end, base_W):
    for i in range(begin, end):
        for w in range(base_W.shape[0]):
            logits_MW[i, w] -= base_W[w]


@njit(cache=True, fastmath=FAST)
def _log_sum(residual_MW, begin, end, top_W, total_W):
    """Write the log of the sum of exp over a cell's classes to ``total_W``.

    The sum is in double precision, because a cell can hold all classes.
    """
    top_W[:] = np.float32(-np.inf)
    for i in range(begin, end):
        for w in range(top_W.shape[0]):
            top_W[w] = max(top_W[w], residual_MW[i, w])
    total_W[:] = 0.0
    for i in range(begin, end):
        for w in range(top_W.shape[0]):
            total_W[w] += np.float64(fast_exp(residual_MW[i, w] - top_W[w]))
    for w in range(top_W.shape[0]):
        total_W[w] = top_W[w] + np.log(total_W[w])


@njit(cache=True, parallel=True)
def _cell_masses(logits_NW, start, scores_WK, second, log_mass_WCC):
    """Turn logits (classes in the order of cells) into residual logits; write log omega of every cell and row."""
    width, codewords = log_mass_WCC.shape[:2]
    cells = codewords * codewords
    for part in prange(CHUNKS):
        base_W = np.empty(width, dtype=np.float32)
        top_W = np.empty(width, dtype=np.float32)
        total_W = np.empty(width, dtype=np.float64)
        for cell in range(part * cells // CHUNKS, (part + 1) * cells // CHUNKS):
            k1, k2 = cell // codewords, cell % codewords
            begin, end = start[cell], start[cell + 1]
            total_W[:] = -np.inf
            if end > begin:
                for w in range(width):
                    base_W[w] = scores_WK[w, k1] + scores_WK[w, second + k2]
                _subtract(logits_NW, begin, end, base_W)
                _log_sum(logits_NW, begin, end, top_W, total_W)
            for w in range(width):
                log_mass_WCC[w, k2, k1] = total_W[w]


@njit(cache=True, parallel=True)
def _draw(
    scores_WK, second, log_mass_WCC, residual_NW, start, members_N, log_samples, seed, step, first_row,
    ids_BX, log_count_BX, log_partition_B,
):  # fmt: skip
    """Fill the rows from ``first_row`` on, as many as have scores; see ``midx._draw``."""
    codewords = log_mass_WCC.shape[1]
    num_samples = ids_BX.shape[1]
    for w in prange(min(scores_WK.shape[0], ids_BX.shape[0] - first_row)):
        row = first_row + w
        top_C = np.empty(codewords, dtype=np.float32)
        total_C = np.empty(codewords, dtype=np.float32)
        cumulative_CC = np.empty((codewords, codewords), dtype=np.float32)
        cumulative_C = np.empty(codewords, dtype=np.float64)
        score_1C = scores_WK[w, :codewords]
        score_2C = scores_WK[w, second : second + codewords]
        log_partition = fold_cells(score_1C, score_2C, log_mass_WCC[w], top_C, total_C, cumulative_CC, cumulative_C)
        log_partition_B[row] = log_partition
        key = rng.stream(seed, rng.SAMPLE, step, row)
        if not np.isfinite(log_partition):
            for draw in range(num_samples):
                ids_BX[row, draw] = rng.below(rng.word(key, draw), members_N.shape[0])
                log_count_BX[row, draw] = np.nan
            continue
        cell_X = np.empty(num_samples, dtype=np.int64)
        share_X = np.empty(num_samples, dtype=np.float64)
        for draw in range(num_samples):
            k1, k2 = draw_cell(cumulative_C, cumulative_CC, rng.word(key, 3 * draw), rng.word(key, 3 * draw + 1))
            cell_X[draw] = k1 * codewords + k2
            share_X[draw] = rng.unit(rng.word(key, 3 * draw + 2))
        # Walk each cell once for all its draws, in ascending order of their uniform numbers.
        current, place, running = np.int64(-1), np.int64(0), 0.0
        for draw in np.argsort(cell_X + share_X):
            cell = cell_X[draw]
            k1, k2 = cell // codewords, cell % codewords
            log_mass = log_mass_WCC[w, k2, k1]
            if cell != current:
                current, place = cell, start[cell]
                running = np.exp(np.float64(residual_NW[place, w] - log_mass))
            while running <= share_X[draw] and place < start[cell + 1] - 1:
                place += 1
                running += np.exp(np.float64(residual_NW[place, w] - log_mass))
            score = np.float64(score_1C[k1]) + np.float64(score_2C[k2]) + np.float64(residual_NW[place, w])
            ids_BX[row, draw] = members_N[place]
            log_count_BX[row, draw] = score + (log_samples - log_partition)


# ---------------------------------------------------------------- the sampler


@dataclass(frozen=True, kw_only=True)
class MidxExactConfig(IndexConfig):
    """Draw from the softmax itself, factored through the cells of an index."""

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rq": FEW_CODEWORDS,
        "pq": {**FEW_CODEWORDS, "quantizer": "pq"},
    }
    quantizer: Literal["pq", "rq"] = option(
        "rq", "quantisation of the index; draws have the softmax's probabilities with either"
    )

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return MidxExact(self, layer, self.period(training), seed)


class MidxExact(MultiIndex):
    """Draw by Theorem 1 from the current weights; codebooks of any age give the same distribution."""

    def _listed_logits(self, query: Query, lo: int, ids_M: np.ndarray, vectors_ND: np.ndarray) -> np.ndarray:
        """Return the logits (M, W) of listed classes for the rows from ``lo`` on; columns without a row hold biases."""
        panel_DW = np.zeros((self.layer.dim, COLUMNS), dtype=np.float32)
        rows = self.layer.query_vectors(query.hidden_BD[lo : lo + COLUMNS])
        panel_DW[:, : len(rows)] = rows.T
        logits_MW = np.empty((len(ids_M), COLUMNS), dtype=np.float32)
        _logits(vectors_ND, self.layer.biases(), ids_M, panel_DW, logits_MW)
        return logits_MW

    def _draw(self, query: Query, num_samples: int, step: int) -> tuple[np.ndarray, ...]:
        """Return scores (B', K), drawn ids (B, X), their log expected counts (B, X) and log Z (B,)."""
        rows, codewords = query.num_rows, self.config.codewords
        self.layer.read(None, step)
        vectors_ND = self.layer.class_vectors()
        scores = self.scores(query.hidden_BD)
        scores_BK = np.zeros((round_up(rows, COLUMNS), scores.shape[1]), dtype=np.float32)
        scores_BK[:rows] = scores[:rows]
        ids_BX = np.empty((rows, num_samples), dtype=np.int32)
        log_count_BX = np.empty((rows, num_samples), dtype=np.float32)
        log_partition_B = np.empty(rows, dtype=np.float64)
        log_mass_WCC = np.empty((COLUMNS, codewords, codewords), dtype=np.float32)
        for lo in range(0, rows, COLUMNS):
            residual_NW = self._listed_logits(query, lo, self.members_N, vectors_ND)
            scores_WK = scores_BK[lo : lo + COLUMNS]
            _cell_masses(residual_NW, self.cell_start, scores_WK, self.second, log_mass_WCC)
            _draw(
                scores_WK, self.second, log_mass_WCC, residual_NW, self.cell_start, self.members_N,
                np.log(self.config.num_samples), self.seed, step, lo, ids_BX, log_count_BX, log_partition_B,
            )  # fmt: skip
        return scores_BK, ids_BX, log_count_BX, log_partition_B

    def sample(self, query: Query, step: int) -> Proposal:
        _, ids_BX, log_count_BX, _ = self._draw(query, self.config.num_samples, step)
        return Proposal(
            ids_N=ids_BX.reshape(-1),
            log_expected_count_N=log_count_BX.reshape(-1),
            indptr_B1=np.arange(query.num_rows + 1, dtype=np.int64) * self.config.num_samples,
            distinct=False,
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        scores_BK, _, _, log_partition_B = self._draw(query, 0, step)
        first, second = self.codes_2N[:, ids_M].astype(np.int64)
        log_count_BM = np.empty((query.num_rows, len(ids_M)), dtype=np.float32)
        vectors_ND = self.layer.class_vectors()
        for lo in range(0, query.num_rows, COLUMNS):
            hi = min(lo + COLUMNS, query.num_rows)
            logits_MW = self._listed_logits(query, lo, ids_M, vectors_ND)
            score_1, score_2 = scores_BK[lo:hi, first], scores_BK[lo:hi, self.second + second]
            residual = logits_MW.T[: hi - lo] - (score_1 + score_2)
            log_count = score_1.astype(np.float64) + score_2 + residual
            log_count += np.log(self.config.num_samples) - log_partition_B[lo:hi, None]
            log_count_BM[lo:hi] = log_count
        return log_count_BM
