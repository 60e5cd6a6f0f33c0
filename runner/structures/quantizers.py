"""Quantise vectors by two codebooks of C codewords, by product (pq) or residual (rq) quantisation.

Both write a vector as the sum of one codeword of each codebook, w_hat = first[k1] + second[k2]. Under pq the first
codebook has the first half of the coordinates and the second the other half, so the sum is a concatenation. Under rq
both have all coordinates, and the second codebook quantises the residual of the first. The same code serves both, and
the query's score h . w_hat is the sum of two scores of codewords.

The codewords come from k-means on a subsample of the rows; ``nearest_pairs`` then gives every row its codes.

Legend: N rows (classes), D columns, C codewords of a codebook, S rows of a subsample; a leading 2 is the two
codebooks.

@article{jegou2011product, title={Product Quantization for Nearest Neighbor Search}, author={J{\\'e}gou, Herv{\\'e} and
Douze, Matthijs and Schmid, Cordelia}, journal={IEEE TPAMI}, year={2011}}
@article{chen2010approximate, title={Approximate Nearest Neighbor Search by Residual Vector Quantization},
author={Chen, Yongjian and Guan, Tao and Wang, Cheng}, journal={Sensors}, year={2010}}
"""

import warnings
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from runner.errors import Diverged, require
from runner.kernels.codewords import nearest_pairs, panels_of, squared_norms
from runner.output.across import ALONE, Across

_LARGEST = 1e30  # larger squared norms overflow when they are summed


class RowsByNumber(Protocol):
    """Give some rows of a matrix, which may lie elsewhere; an array does so."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows_S: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """Make codebooks and assign rows to their codewords.

    kind: ``pq`` or ``rq``.
    codewords: C.
    rows: size of the subsample that k-means sees.
    iterations: the most passes of k-means.
    beam: number of nearest first codewords that are each tried with all second ones when a row is assigned; 1 is
    greedy. A beam of a few lowers the distortion a little, at little cost (docs/log.md). Under pq the halves do not
    interact, and greedy is exact.
    """

    kind: Literal["pq", "rq"]
    codewords: int
    rows: int
    iterations: int
    beam: int = 1

    def parts(self, dim: int) -> list[slice]:
        """Return the coordinates of each codebook. Raise ConfigError if one coordinate is to be split in two."""
        if self.kind == "rq":
            return [slice(0, dim), slice(0, dim)]
        require(dim >= 2, "product quantisation (pq) needs class vectors of at least 2 coordinates; take an rq sampler")
        return [slice(0, (dim + 1) // 2), slice((dim + 1) // 2, dim)]

    def fit(
        self,
        values_ND: RowsByNumber,
        generator: np.random.Generator,
        start_2CD: np.ndarray | None = None,
        *,
        when: str = "",
    ) -> np.ndarray:
        """Return codebooks (2, C, D) float32 made by k-means, from ``start_2CD`` if given, else from k-means++.

        If there are no more distinct vectors than codewords, these vectors are the codewords; the rest repeat the first
        one and are never assigned. Only the subsample is read. Raise Diverged, with the words ``when``, unless its
        vectors are finite.
        """
        rows = generator.choice(len(values_ND), min(self.rows, len(values_ND)), replace=False, shuffle=False)
        residual_SD = values_ND[np.sort(rows)]
        check_usable(squared_norms(residual_SD), when)
        dim = residual_SD.shape[1]
        codebooks = np.zeros((2, self.codewords, dim), dtype=np.float32)
        for book, part in enumerate(self.parts(dim)):
            start = None if start_2CD is None else start_2CD[book, :, part]
            points = np.ascontiguousarray(residual_SD[:, part])
            codebooks[book, :, part] = _k_means(points, self.codewords, self.iterations, generator, start)
            alone = np.zeros_like(codebooks)
            alone[0] = codebooks[book]
            codes_2S, _ = self.assign(residual_SD, alone, beam=1)
            residual_SD -= codebooks[book, codes_2S[0]]
        return codebooks

    def assign(
        self, values_ND: np.ndarray, codebooks_2CD: np.ndarray, *, beam: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes (2, N) uint16 of the nearest pair of codewords, and the squared errors (N,) float32.

        ``beam``: overrides the quantizer's. Raise Diverged unless all vectors are finite.
        """
        norm_N = squared_norms(values_ND)
        check_usable(norm_N)
        norm_2C = np.square(codebooks_2CD).sum(axis=2)
        cross_CC = np.einsum("kd,ld->kl", *codebooks_2CD)  # sums in a fixed order, which BLAS does not
        codes_2N = np.empty((2, len(values_ND)), dtype=np.uint16)
        error_N = np.empty(len(values_ND), dtype=np.float32)
        beam = min(beam or self.beam, self.codewords)
        nearest_pairs(
            values_ND, norm_N, panels_of(codebooks_2CD), norm_2C, cross_CC, beam, codes_2N, error_N
        )  # fmt: skip
        return codes_2N, error_N


def check_usable(norm_N: np.ndarray, when: str = "", across: Across = ALONE) -> None:
    """Raise Diverged unless the squared norms of all vectors are finite and small enough to be summed.

    ``across``: those who hold the vectors, who all raise it if one of them has other vectors.
    """
    if not across.all(bool((norm_N < _LARGEST).all())):  # false for NaN too
        raise Diverged(f"class vectors are not finite numbers of usable size{when}; try a smaller optimizer.lr")


def _distinct(points_SD: np.ndarray, most: int) -> np.ndarray | None:
    """Return the distinct points in order of first appearance, or None if there are more than ``most``."""
    seen: dict[bytes, np.ndarray] = {}
    for point in points_SD:
        seen.setdefault(point.tobytes(), point)
        if len(seen) > most:
            return None
    return np.stack(list(seen.values()))


def _k_means(
    points_SD: np.ndarray,
    codewords: int,
    iterations: int,
    generator: np.random.Generator,
    start_CD: np.ndarray | None,
) -> np.ndarray:
    """Return the centres (C, D) of the points. One thread computes them, so that bits do not depend on threads."""
    seed = int(generator.integers(2**31))
    few = _distinct(points_SD, codewords)
    if few is not None:
        places = np.arange(codewords)
        places[len(few) :] = 0
        return few[places]
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    start = "k-means++" if start_CD is None else np.ascontiguousarray(start_CD)
    model = KMeans(codewords, init=start, n_init=1, max_iter=iterations, random_state=seed, algorithm="lloyd")
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Nearly equal points may form fewer clusters than there are codewords; unused codewords do no harm.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(points_SD).cluster_centers_
