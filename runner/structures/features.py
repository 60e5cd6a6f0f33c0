"""Compute random Fourier features of the Gaussian kernel of directions, in bytes.

Legend: R vectors, H their dimension, U chosen rows, D frequencies, F = 2 D features.

phi(u) = D^-1/2 [cos(omega_1 . u) .. cos(omega_D . u), sin(omega_1 . u) .. sin(omega_D . u)] with omega ~ N(0, nu I)
gives E[phi(x) . phi(y)] = exp(-nu |x - y|^2 / 2). (The RF-softmax paper prints N(0, I / nu), which gives another
kernel.) For unit vectors that is e^-nu exp(nu x . y), a softmax's weights up to a factor.

The frequencies are drawn once, because phi(x) . phi(y) estimates the kernel only if both use the same ones.

Features are stored as round(127 cos), round(127 sin), one byte each. A table takes a quarter of float32's memory, and
sums of features are whole numbers, exact in any order. The rounding error is negligible beside the estimate's own
squared error of about 1 / 2D (docs/log.md).

@inproceedings{rahimi2007random, title={Random Features for Large-Scale Kernel Machines},
author={Rahimi, Ali and Recht, Benjamin}, booktitle={NIPS}, year={2007}}
@inproceedings{yu2016orthogonal, title={Orthogonal Random Features}, author={Yu, Felix X. and Suresh, Ananda Theertha
and Choromanski, Krzysztof and Holtmann-Rice, Daniel and Kumar, Sanjiv}, booktitle={NIPS}, year={2016}}
"""

import math
from typing import Literal

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.groups import CHUNKS
from runner.kernels.hadamard import LANES, hadamard, multiply, width_for
from runner.kernels.math import cos_of_turns

_ROUNDS = 3
_ONE = np.float32(127.0)
ONE = int(_ONE) ** 2  # the product of two features that are both 1

# The kernels below must not reorder sums: a row's features have the same bits wherever it stands in ``rows_U``.


@njit(cache=True)
def _inverse_norm(vector_H):
    """Return 1 / |u|, or 0 if u has no direction (it is zero or not finite)."""
    square = 0.0
    for k in range(vector_H.shape[0]):
        square += np.float64(vector_H[k]) * np.float64(vector_H[k])
    return np.float32(1.0 / math.sqrt(square)) if 1e-60 < square < np.inf else np.float32(0.0)


@njit(cache=True)
def _add_scaled(scale, values, sums):
    for j in range(sums.shape[0]):
        sums[j] += scale * values[j]


@njit(cache=True)
def _write(turns_D, shift, out_D):
    """Set ``out_D`` to round(127 cos(2 pi (turns - shift)))."""
    for j in range(turns_D.shape[0]):
        out_D[j] = np.int8(np.floor(_ONE * cos_of_turns(turns_D[j] - shift) + np.float32(0.5)))


@njit(cache=True, parallel=True)
def _plain(vectors_RH, rows_U, frequencies_HD, out_UF):
    dim, num_frequencies = frequencies_HD.shape
    for part in prange(CHUNKS):
        turns_D = np.empty(num_frequencies, dtype=np.float32)
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            inverse = _inverse_norm(vectors_RH[row])
            turns_D[:] = np.float32(0.0)
            if inverse > np.float32(0.0):
                for k in range(dim):
                    _add_scaled(vectors_RH[row, k] * inverse, frequencies_HD[k], turns_D)
            _write(turns_D, np.float32(0.0), out_UF[i, :num_frequencies])
            _write(turns_D, np.float32(0.25), out_UF[i, num_frequencies:])


@njit(cache=True, parallel=True)
def _orthogonal(vectors_RH, rows_U, signs, norms_D, out_UF):
    """Project by the rows of (M S)^3 times ``norms_D``, where S are random signs and M is the Hadamard matrix.

    ``signs`` (blocks, rounds, width * LANES) has each sign once per lane.
    """
    blocks, rounds, size = signs.shape
    width = size // LANES
    num_rows, dim = rows_U.shape[0], vectors_RH.shape[1]
    num_frequencies = norms_D.shape[0]
    groups = (num_rows + LANES - 1) // LANES
    for part in prange(CHUNKS):
        x = np.empty(size, dtype=np.float32)
        y = np.empty(size, dtype=np.float32)
        turns = np.zeros((LANES, num_frequencies), dtype=np.float32)
        for group in range(part * groups // CHUNKS, (part + 1) * groups // CHUNKS):
            first = group * LANES
            lanes = min(LANES, num_rows - first)
            x[:] = np.float32(0.0)
            for lane in range(lanes):
                row = rows_U[first + lane]
                inverse = _inverse_norm(vectors_RH[row])
                if inverse > np.float32(0.0):
                    for k in range(dim):
                        x[k * LANES + lane] = vectors_RH[row, k] * inverse
            for block in range(blocks):
                y[:] = x
                for turn in range(rounds):
                    multiply(y, signs[block, turn])
                    hadamard(y)
                begin = block * width
                for lane in range(lanes):
                    for k in range(min(width, num_frequencies - begin)):
                        turns[lane, begin + k] = y[k * LANES + lane] * norms_D[begin + k]
            for lane in range(lanes):
                _write(turns[lane], np.float32(0.0), out_UF[first + lane, :num_frequencies])
                _write(turns[lane], np.float32(0.25), out_UF[first + lane, num_frequencies:])


class RandomFourier:
    """Map vectors to features by one draw of D frequencies, ``plain`` (independent) or ``orthogonal``.

    Orthogonal frequencies are at right angles within blocks of W, a power of two >= H. This lowers the error, and a
    transform costs O(D log H) instead of O(D H). Their norms are drawn like those of Gaussian vectors. So each
    frequency is N(0, nu I), as far as the directions of (M S)^3 (random signs S, Hadamard matrix M) are uniform, and
    the estimate has the kernel as its mean.
    """

    def __init__(self, *, dim: int, D: int, nu: float, kind: Literal["plain", "orthogonal"], seed: int) -> None:
        self.D = D
        self.kind = kind
        generator = rng.generator(seed, rng.HASH, 2)
        turns = math.sqrt(nu) / (2 * math.pi)
        if kind == "plain":
            self.frequencies_HD = np.float32(turns) * generator.standard_normal((dim, D), dtype=np.float32)
        else:
            width = width_for(dim)
            flips = generator.integers(0, 2, size=(-(-D // width), _ROUNDS, width))
            self.flips = (2 * flips - 1).astype(np.float32)
            self._signs = np.repeat(self.flips, LANES, axis=2)
            norms = np.sqrt(generator.chisquare(width, D))
            self.norms_D = (turns * norms * width ** (-_ROUNDS / 2)).astype(np.float32)

    @property
    def num_features(self) -> int:
        """Return F = 2 D."""
        return 2 * self.D

    def features(self, vectors_RH: np.ndarray, rows_U: np.ndarray, out_UF: np.ndarray | None = None) -> np.ndarray:
        """Return the features of the directions of the given rows, (U, F) int8; a zero vector stays zero.

        phi(x) . phi(y) is the integer product of two rows of features, divided by ``ONE`` D.
        """
        out = np.empty((len(rows_U), self.num_features), dtype=np.int8) if out_UF is None else out_UF
        if self.kind == "plain":
            _plain(vectors_RH, rows_U, self.frequencies_HD, out)
        else:
            _orthogonal(vectors_RH, rows_U, self._signs, self.norms_D, out)
        return out
