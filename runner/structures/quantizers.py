"""Quantisation of vectors by two codebooks of C codewords: product (pq) and residual (rq).

Both write a vector as the sum of one codeword of each codebook, w_hat = first[k1] + second[k2]. Under pq the first
codebook lives in the first half of the coordinates and the second in the other, so that a sum is a concatenation; under
rq both have every coordinate and the second is made for what the first leaves over. One code serves both, and the
query's score h . w_hat is the sum of two scores of codewords.

Codewords come from k-means on a subsample of the rows; every row is then given its codes by ``nearest_pairs``.

Legend: N rows (classes), D columns, C codewords of a codebook, S rows of a subsample, B queries.

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

_LARGEST = 1e30  # squared norms beyond it overflow when they are summed
_QUERIES = 256  # hidden states that codebooks learn from; more cost time and change little


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """How codebooks are made and rows assigned.

    codewords: C. rows: size of the subsample that k-means sees. iterations: its most passes. beam: how many first
    codewords, the nearest, are tried jointly with all second ones when a row is assigned; 1 is greedy. The gain in
    distortion is small but cheap: for C = 64, half a percent on Gaussian vectors (.8304 of their square to .8265) and
    on trained ones (.4056 to .4035) with 4, and hardly more with all 64; for 500,000 classes 4 take 0.3 s, 64 take 3 s.
    Under pq the halves do not see each other, and greedy is exact.
    """

    kind: Literal["pq", "rq"]
    codewords: int
    rows: int
    iterations: int
    beam: int = 1

    def parts(self, dim: int) -> list[slice]:
        """The coordinates that each codebook lives in."""
        if self.kind == "rq":
            return [slice(0, dim), slice(0, dim)]
        require(dim >= 2, "product quantisation needs class vectors of at least 2 coordinates")
        return [slice(0, (dim + 1) // 2), slice((dim + 1) // 2, dim)]

    def fit(
        self, values_ND: np.ndarray, generator: np.random.Generator, start_2CD: np.ndarray | None = None
    ) -> np.ndarray:
        """Codebooks (2, C, D) float32 by k-means, from ``start`` where given, else from k-means++.

        Where there are fewer distinct vectors than codewords, those vectors are the codewords; the rest repeat the
        first one and are never assigned. Diverged unless all vectors are finite.
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
        """Codes (2, N) uint16 of the nearest pair of codewords, and the squared errors (N,) float32."""
        norm_N = squared_norms(values_ND)
        check_usable(norm_N)
        norm_2C = np.square(codebooks_2CD).sum(axis=2)
        cross_CC = np.einsum("kd,ld->kl", *codebooks_2CD)  # by a fixed order, not BLAS
        codes_2N = np.empty((2, len(values_ND)), dtype=np.uint16)
        error_N = np.empty(len(values_ND), dtype=np.float32)
        beam = min(beam or self.beam, self.codewords)
        nearest_pairs(
            values_ND, norm_N, panels_of(codebooks_2CD), norm_2C, cross_CC, beam, codes_2N, error_N
        )  # fmt: skip
        return codes_2N, error_N


def check_usable(norm_N: np.ndarray, when: str = "") -> None:
    """Diverged unless the squared norms of all vectors are numbers that can be summed."""
    if not (norm_N < _LARGEST).all():  # false for NaN too
        raise Diverged(f"class vectors are not finite numbers of usable size{when}; try a smaller optimizer.lr")


def _distinct(points_SD: np.ndarray, most: int) -> np.ndarray | None:
    """The distinct points in order of first appearance, or None when there are more than ``most``."""
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
    """Centres (C, D) of the points; one thread, so that bits do not depend on how many there are."""
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
        # Nearly equal points may fall into fewer clusters than asked for; codewords to spare do no harm.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(points_SD).cluster_centers_


# ---------------------------------------------------------------- learnt codebooks


@dataclass(frozen=True, kw_only=True)
class Learning:
    """MIDX-Learn: codewords as parameters that reduce, by ``steps`` of Adam at ``lr``,

        mean over classes of |w - w_hat|^2  +  mean over queries of KL(p || q_hat),

    p the softmax of the true logits (biases included) and q_hat that of the logits h . w_hat (plus the log popularity
    of the class, where the sampler draws by it), over ``classes`` classes drawn anew at each step.

    assignment: what w_hat is made of. ``soft`` is the paper's, codewords averaged by the softmax of their inner
    products with the vector (of the residual under rq): it learns a q_hat that no sampler draws from, and the
    codewords it leaves can be worse than k-means' once each class has one pair of them. ``hard`` takes the nearest
    pair, as the sampler will, so that q_hat is the sampler's own distribution.
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
        """Codebooks (2, C, D) that learning makes of the given ones. Diverged on overflow."""
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
    """Sum of the codewords averaged by the softmax of their inner products with the value, then the residual.

    Under pq the residual's half that the second codebook lives in is the value's own.
    """
    average = (values_SD @ first_CD.T).softmax(dim=1) @ first_CD
    return average + ((values_SD - average) @ second_CD.T).softmax(dim=1) @ second_CD


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Bits of torch's sums, those over a codeword's classes above all, depend on the number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
