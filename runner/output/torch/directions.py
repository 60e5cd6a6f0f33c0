"""Take directions of vectors, and carry gradients back through them, for layers whose logits are cosines.

Legend: X vectors, D columns.
"""

from torch import Tensor
from torch.linalg import vector_norm

LEAST_NORM = 1e-12
"""A vector with a smaller norm counts as zero and has no direction (``kernels.rows``)."""


def inverse_norms(vectors_XD: Tensor) -> Tensor:
    """Return 1 / max(|w|, LEAST_NORM) of each vector, (X,)."""
    return 1 / vector_norm(vectors_XD, dim=1).clamp_min(LEAST_NORM)


def carry_to_rows(grad_XD: Tensor, vectors_XD: Tensor, inverse_X: Tensor) -> Tensor:
    """Turn the gradients G of directions u into those of the vectors, (G - u (u . G)) / norm, in place."""
    along_X = (grad_XD * vectors_XD).sum(1).mul_(inverse_X).mul_(inverse_X)
    return grad_XD.addcmul_(along_X[:, None], vectors_XD, value=-1).mul_(inverse_X[:, None])


class HiddenDirections:
    """Compute scale * h / |h| for the hidden states of a batch, and carry gradients back through it."""

    def __init__(self, hidden_BD: Tensor, scale: float) -> None:
        norm_B1 = vector_norm(hidden_BD, dim=1, keepdim=True)
        # A row of zeros has no direction: it scores 0 everywhere and learns nothing.
        self._inverse_B1 = (norm_B1 > LEAST_NORM) / norm_B1.clamp_min(LEAST_NORM)
        self._unit_BD = hidden_BD * self._inverse_B1
        self._scale = scale
        self.scaled_BD = scale * self._unit_BD

    def back(self, grad_BD: Tensor) -> Tensor:
        """Return the hidden states' gradient, scale (G - u (u . G)) / |h|, for the gradient G of ``scaled_BD``."""
        along_B1 = (self._unit_BD * grad_BD).sum(1, keepdim=True)
        return self._scale * self._inverse_B1 * (grad_BD - along_B1 * self._unit_BD)
