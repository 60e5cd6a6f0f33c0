"""Assign classes to codewords where their vectors lie; pairs are those of ``structures.quantizers`` but for near ties.

k-means itself sees a subsample of some megabytes, which is copied to the CPU, so that codewords are the CPU's. What has
the size of the classes stays on the device.

Legend: N classes, U classes of a block, D hidden size, C codewords of a codebook, A first codewords that are tried.
"""

import numpy as np
import torch
from torch import Tensor

from runner.output.torch.arrays import array_of, tensor_of
from runner.output.torch.layer import TorchLayer
from runner.structures.quantizers import check_usable

_ELEMENTS = 2**24  # distances of a block: 64 MB


def assign_on(layer: TorchLayer, codebooks_2CD: np.ndarray, *, beam: int, step: int) -> tuple[np.ndarray, float, float]:
    """Return the classes' codes (2, N) uint16, and the sums of squares of their errors and of their vectors.

    ``beam``: how many of the nearest first codewords are each tried with all second ones (``Quantizer``). Raise
    Diverged, in the name of ``step``, unless all vectors are finite and of usable size.
    """
    books_2CD = tensor_of(codebooks_2CD, layer.device)
    codewords = books_2CD.shape[1]
    tried = min(beam, codewords)
    norm_2C = tensor_of(np.square(codebooks_2CD).sum(axis=2), layer.device)
    cross_CC = tensor_of(np.einsum("kd,ld->kl", *codebooks_2CD), layer.device)
    part = layer.part
    sums = torch.zeros(2, dtype=torch.float64, device=layer.device)  # of errors and of vectors, squared
    largest = torch.zeros((), device=layer.device)
    width = max(1, _ELEMENTS // (codewords * (1 + tried)))

    def codes(rows_U: None) -> Tensor:
        nonlocal sums, largest
        codes_2U = torch.empty((2, part.hi - part.lo), dtype=torch.uint16, device=layer.device)
        for rows in part.blocks_of_rows(rows_U, width):
            vectors_UD = part.vectors(rows)
            norm_U = vectors_UD.square().sum(1)
            codes_2U[:, rows], least_U = _pairs(vectors_UD, books_2CD, norm_2C, cross_CC, tried)
            sums += torch.stack([(norm_U + least_U).clamp_min(0), norm_U]).sum(1, dtype=torch.float64)
            if len(norm_U):
                largest = torch.maximum(largest, norm_U.max())  # NaN if one is
        return codes_2U

    codes_2N = layer.of_classes(None, codes, axis=1)
    check_usable(np.array([float(largest)]), f" after step {step}", layer.across)
    error, square = layer.across.sum(sums).tolist()
    return array_of(codes_2N), error, square


def _pairs(
    vectors_UD: Tensor, books_2CD: Tensor, norm_2C: Tensor, cross_CC: Tensor, tried: int
) -> tuple[Tensor, Tensor]:
    """Return the codes (2, U) of each vector, and its squared error less its squared norm, (U,).

    Of equally near first codewords, those with lower numbers are tried, and tried first.
    """
    first_UC, second_UC = (norm_C - 2 * vectors_UD @ book.t() for norm_C, book in zip(norm_2C, books_2CD, strict=True))
    near_UC = first_UC.argmin(1, keepdim=True) if tried == 1 else first_UC.sort(dim=1, stable=True).indices
    k1_UA = near_UC[:, :tried]
    joint_UAC = second_UC[:, None, :] + 2 * cross_CC[k1_UA]
    of_second_UA, k2_UA = joint_UAC.min(2)
    least_U, place_U = (first_UC.gather(1, k1_UA) + of_second_UA).min(1)
    codes = (k_UA.gather(1, place_U[:, None])[:, 0] for k_UA in (k1_UA, k2_UA))
    return torch.stack([code_U.int() for code_U in codes]), least_U
