"""Show samplers of examples how far each sentence pair's class is from being predicted (LGD paper, section 3.2).

With two classes and softmax cross-entropy, the gradient by a pair's logit of class 1 is p_i - y_i. Its magnitude is the
probability of the wrong class, sigmoid(-m_i), where m_i = s_i (h_i . (w_1 - w_0) + b_1 - b_0), and s_i is 1 for class 1
and -1 for class 0. So the stored vector of pair i is the direction of s_i [h_i, 1], and the query is -[w_1 - w_0, b_1 -
b_0]: the greater their product, the greater the gradient. Where the paper stores [CLS] alone, this adds the sign, so
that pairs that are predicted wrongly are near to the query, whatever their class, and a 1 for the bias.

Hidden states are those without dropout. They are computed when ``bring_up`` is called and kept until it is called
again; classifier and query are always the present ones.

Legend: R training pairs, D hidden size, E = D + 1, U pairs that are brought up, M pairs asked for, C classes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from runner.data.pairs.batches import PairBatch
from runner.errors import require
from runner.lgd.vectors import InMemory

if TYPE_CHECKING:
    from runner.network import ClassNetwork


class StoredPairs(InMemory):
    """Keep the vectors of the training pairs; all are 0 until ``bring_up`` is called. Implements ``contracts.Vectors``.

    ``training``: all training pairs. With more than two classes every s_i is 1.
    """

    def __init__(self, network: "ClassNetwork", training: PairBatch, num_classes: int) -> None:
        self.network, self.training = network, training
        count = training.num_rows
        self.sign_R = np.where((training.targets == 0) & (num_classes == 2), -1, 1).astype(np.float32)
        # The directions of s_i [h_i, 1], (R, E); a row is current after ``bring_up``.
        self.matrix = np.zeros((count, network.head.layer.dim + 1), dtype=np.float32)
        self.norm_R = np.zeros(count, dtype=np.float32)  # of [h_i, 1]

    def changed_since(self, step: int) -> np.ndarray:
        """Return all pairs, (R,) ascending int32: every training step moves the hidden states of every pair."""
        return np.arange(len(self.matrix), dtype=np.int32)

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Encode these pairs (None: all) again, with the weights at the end of ``step``."""
        here = slice(None) if rows_U is None else rows_U
        self.network.read_all(step + 1)
        batch = PairBatch(pairs=self.training.pairs, rows_B=self.training.rows_B[here])
        hidden_UD = self.network.encoder.encode(batch)
        norm_U = np.sqrt(1 + np.einsum("ud,ud->u", hidden_UD, hidden_UD, dtype=np.float64))
        scale_U1 = (self.sign_R[here] / norm_U)[:, None]
        self.norm_R[here] = norm_U
        self.matrix[here, :-1] = hidden_UD * scale_U1
        self.matrix[here, -1:] = scale_U1

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the vectors and their lengths before scaling, which the weights of a later step cannot give again."""
        return {"matrix": self.matrix, "norm": self.norm_R}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self.matrix[...], self.norm_R[...] = state["matrix"], state["norm"]


class PairsView:
    """Show a network and the stored vectors of its training pairs. Implements ``contracts.View``."""

    by_magnitude = False  # the sign of a product tells how wrong a prediction is

    def __init__(self, network: "ClassNetwork", training: PairBatch) -> None:
        self.network, self.training = network, training
        self.stored = StoredPairs(network, training, network.head.layer.num_classes)

    @property
    def examples(self) -> StoredPairs:
        """Return the stored vectors of the training pairs, (R, E)."""
        return self.stored

    @property
    def query_D(self) -> np.ndarray:
        """Return -[w_1 - w_0, b_1 - b_0], (E,) float32. Raises ConfigError unless there are two plain classes."""
        layer = self.network.head.layer
        require(
            layer.num_classes == 2,
            f"this batch_sampler needs two classes, because it asks for the sign of one logit; the data set has"
            f" {layer.num_classes}: choose batch_sampler=uniform or batch_sampler=epoch",
        )
        require(layer.scale is None, "this batch_sampler needs logits h . w + b: leave output.normalize=false")
        weights, bias = layer.rows(), layer.biases()
        return -np.append(weights[1] - weights[0], bias[1] - bias[0]).astype(np.float32)

    def gradient_norms(self, rows_M: np.ndarray | None = None) -> np.ndarray:
        """Return the norm of each pair's gradient by the classifier's weights and biases, (M,) float64.

        ``rows_M``: training pairs; None: all. The norm is sqrt(sum over classes of (p - y)^2) ||[h_i, 1]||, with two
        classes sqrt(2) |p_i - y_i| ||[h_i, 1]||. The hidden states are the stored ones, the classifier is the present
        one: norms are exact only right after ``examples.bring_up``, as encoding pairs at every step is too dear.
        """
        here = slice(None) if rows_M is None else rows_M
        layer, stored = self.network.head.layer, self.stored
        require(layer.scale is None, "this batch_sampler needs logits h . w + b: leave output.normalize=false")
        weights_CE = np.column_stack([layer.rows(), layer.biases()]).astype(np.float64)
        length_M = stored.norm_R[here].astype(np.float64)
        # einsum sums in one fixed order, whatever number of threads NumPy's BLAS has.
        logit_MC = np.einsum("me,ce->mc", stored.matrix[here], weights_CE) * (stored.sign_R[here] * length_M)[:, None]
        share_MC = np.exp(logit_MC - logit_MC.max(axis=1, keepdims=True))
        share_MC /= share_MC.sum(axis=1, keepdims=True)
        share_MC[np.arange(len(share_MC)), self.training.targets[here]] -= 1
        return np.sqrt(np.square(share_MC).sum(axis=1)) * length_M
