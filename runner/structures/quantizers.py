"""Quantise vectors by two codebooks of C codewords, by product (pq) or residual (rq) quantisation.

Both write a vector as the sum of one codeword of each codebook, w_hat = first[k1] + second[k2]. Under pq the first
codebook has the first half of the coordinates and the second the other half, so the sum is a concatenation. Under rq
both have all coordinates, and the second codebook quantises the residual of the first. The same code serves both, and
the query's score h . w_hat is the sum of two scores of codewords.

The codewords come from k-means on a subsample of the rows; ``nearest_pairs`` then gives every row its codes.

Legend: N rows (classes), D columns, C codewords of a codebook, S rows of a subsample, B queries; a leading 2 is the two
codebooks.

@article{jegou2011product, title={Product Quantization for Nearest Neighbor Search}, author={J{\\'e}gou, Herv{\\'e} and
Douze, Matthijs and Schmid, Cordelia}, journal={IEEE TPAMI}, year={2011}}
@article{chen2010approximate, title={Approximate Nearest Neighbor Search by Residual Vector Quantization},
author={Chen, Yongjian and Guan, Tao and Wang, Cheng}, journal={Sensors}, year={2010}}
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from runner.errors import Diverged, require
from runner.kernels.codewords import nearest_pairs, panels_of, squared_norms
from runner.optimizers import AdamConfig, dense_adam

_LARGEST = 1e30  # larger squared norms overflow when they are summed
_QUERIES = 256  # hidden states that codebooks learn from; more take longer and change little


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
        self, values_ND: np.ndarray, generator: np.random.Generator, start_2CD: np.ndarray | None = None
    ) -> np.ndarray:
        """Return codebooks (2, C, D) float32 made by k-means, from ``start_2CD`` if given, else from k-means++.

        If there are no more distinct vectors than codewords, these vectors are the codewords; the rest repeat the first
        one and are never assigned. Raise Diverged unless all vectors are finite.
        """
        check_usable(squared_norms(values_ND))
        rows = generator.choice(len(values_ND), min(self.rows, len(values_ND)), replace=False, shuffle=False)
        residual_SD = values_ND[np.sort(rows)]
        dim = values_ND.shape[1]
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


def check_usable(norm_N: np.ndarray, when: str = "") -> None:
    """Raise Diverged unless the squared norms of all vectors are finite and small enough to be summed."""
    if not (norm_N < _LARGEST).all():  # false for NaN too
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


# ---------------------------------------------------------------- learnt codebooks


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Train the codewords as parameters (MIDX-Learn) that reduce, by ``steps`` of Adam at ``lr``,

        mean over classes of |w - w_hat|^2  +  mean over queries of KL(p || q_hat).

    p is the softmax of the true logits (biases included). q_hat is the softmax of the logits h . w_hat (plus the log
    popularity of the class, if the sampler draws by it). Both are over ``classes`` classes, drawn anew at each step.

    assignment: how w_hat is made. ``soft`` is the paper's way: codewords averaged by the softmax of their inner
    products with the vector (with its residual, for the second codebook under rq). It learns a q_hat that no sampler
    draws from, and its codewords can be worse than those of k-means once each class has one pair. ``hard`` takes the
    nearest pair, as the sampler will, so that q_hat is the sampler's own distribution.
    """

    assignment: Literal["hard", "soft"]
    classes: int
    steps: int
    lr: float

    def train(
        self,
        quantizer: Quantizer,
        codebooks_2CD: np.ndarray,
        values_ND: np.ndarray,
        hidden_BD: np.ndarray,
        generator: np.random.Generator,
        *,
        bias_N: np.ndarray | None = None,
        log_weight_N: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return codebooks (2, C, D) float32 trained from the given ones. Raise Diverged on overflow.

        ``hidden_BD``: the queries. ``bias_N``: biases of the true logits; None: 0. ``log_weight_N``: log popularity of
        the classes; None: 0.
        """
        import torch

        place = np.zeros_like(codebooks_2CD)
        for book, part in enumerate(quantizer.parts(values_ND.shape[1])):
            place[book, :, part] = 1
        config, moments = AdamConfig(lr=self.lr), dict[str, Any]()
        codebooks = codebooks_2CD.copy()
        hidden = torch.from_numpy(hidden_BD[:_QUERIES])
        with _one_torch_thread():
            for step in range(1, self.steps + 1):
                size = min(self.classes, len(values_ND))
                rows = np.sort(generator.choice(len(values_ND), size, replace=False, shuffle=False))
                values = torch.from_numpy(values_ND[rows])
                bias, log_weight = (
                    torch.zeros(size) if of_N is None else torch.from_numpy(of_N[rows].astype(np.float32))
                    for of_N in (bias_N, log_weight_N)
                )
                parameter = torch.from_numpy(codebooks).requires_grad_()
                if self.assignment == "soft":
                    approximation = _soft(values, *parameter)
                else:
                    codes_2S, _ = quantizer.assign(values_ND[rows], codebooks)
                    first, second = torch.from_numpy(codes_2S.astype(np.int64))
                    approximation = parameter[0][first] + parameter[1][second]
                reconstruction = (values - approximation).square().sum(dim=1).mean()
                log_p = torch.log_softmax(hidden @ values.T + bias, dim=1)
                log_q = torch.log_softmax(hidden @ approximation.T + log_weight, dim=1)
                divergence = (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()
                (grad,) = torch.autograd.grad(reconstruction + divergence, parameter)
                dense_adam(config, moments, codebooks, grad.numpy() * place, step)
                if not (np.abs(codebooks) < _LARGEST**0.5).all():  # false for NaN too
                    raise Diverged("learning the codebooks diverged; try a smaller sampler.learn_lr")
        return codebooks


def _soft(values_SD: Any, first_CD: Any, second_CD: Any) -> Any:
    """Average each codebook's codewords by the softmax of inner products, with the value and then the residual; sum.

    Under pq, in the second codebook's half of the coordinates the residual is the value itself.
    """
    average = (values_SD @ first_CD.T).softmax(dim=1) @ first_CD
    return average + ((values_SD - average) @ second_CD.T).softmax(dim=1) @ second_CD


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Run torch on one thread, because bits of its sums (over a codeword's classes above all) depend on threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
