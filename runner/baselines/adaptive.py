"""Build the head that is PyTorch's adaptive softmax, a baseline for language models.

``torch.nn.AdaptiveLogSoftmaxWithLoss`` puts the classes into bands by frequency. The first band, the head, has vectors
of the full size and one more entry for each later band; band i has vectors of the hidden size divided by ``div_value``
to the power i, after a projection. A step computes the logits of the head, and of a later band only for the rows whose
target is in it. Probabilities of all classes sum to 1, so perplexity is exact. It is no sampled softmax: nothing is
drawn, and its model is another one, with fewer weights for rare classes.

torch wants class 0 to be the most frequent; here classes keep their ids, and this module maps them to ranks.

@inproceedings{grave2017efficient, title={Efficient softmax approximation for {GPU}s}, author={Grave, Edouard and
Joulin, Armand and Ciss{\'e}, Moustapha and Grangier, David and J{\'e}gou, Herv{\'e}}, booktitle={ICML}, year={2017}}

Legend: B rows of a batch, D hidden size, N classes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from runner import rng
from runner.contracts import LARGEST_OUTPUT, Batch
from runner.errors import require
from runner.heads.base import Head
from runner.machine.clock import StageClock
from runner.models.parameters import Parameters, draws_of, load_states, states_of
from runner.optimizers import of_parameters
from runner.output.layer import RowGradient, Rows
from runner.output.numba.row_table import RowTable

if TYPE_CHECKING:
    from runner.options.settings import RunConfig


def usual_cutoffs(num_classes: int, dim: int, div_value: float) -> list[int]:
    """Return after how many of the most frequent classes bands end: a tenth and a half of all, both rounded.

    A text's few most frequent words are most of its targets, so most rows need the head alone. There are fewer bands if
    classes are too few for three, or if hidden states are too short to be divided so often.
    """
    ends = dict.fromkeys(max(1, round(num_classes * share)) for share in (0.1, 0.5))
    fitting = [end for number, end in enumerate(ends, 1) if number == 1 or dim >= div_value**number]
    return [end for end in fitting if end < num_classes]


class AdaptiveScores:
    """Hold a batch that the adaptive softmax has scored."""

    def __init__(
        self, head: "AdaptiveHead", hidden: Tensor, loss: Tensor, candidates_per_row: float, step: int
    ) -> None:
        self._head, self._hidden, self._loss, self._step = head, hidden, loss, step
        self.loss = float(loss.detach())
        self.candidates_per_row = candidates_per_row

    @property
    def touched_U(self) -> np.ndarray:
        """Return all rows of the table of parameters."""
        return np.arange(self._head.parameters.table.shape[0], dtype=np.int32)

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        """Return the gradient of the parameters, without applying it, and that of the hidden states (B, D)."""
        self._head.parameters.grad_RC.zero_()
        self._loss.backward()
        assert self._hidden.grad is not None
        return self._head.parameters.gradient(), self._hidden.grad.numpy()

    def update(self) -> np.ndarray:
        """Apply the gradient of the parameters; return that of the hidden states (B, D)."""
        of_parameters, grad_hidden_BD = self.gradients()
        of_parameters.apply(self._step)
        return grad_hidden_BD


class AdaptiveHead(Head):
    """Keep the adaptive softmax, whose weights are views into a table of rows (``runner.models.parameters``).

    ``label_counts_N``: how often each class is a target in training. Of equally frequent classes the lower id has the
    lower rank. Raises ConfigError if a cutoff is not below the number of classes.
    """

    def __init__(self, config: "RunConfig", label_counts_N: np.ndarray) -> None:
        num_classes, output = len(label_counts_N), config.output
        cutoffs = (
            usual_cutoffs(num_classes, config.model.dim, output.div_value)
            if output.cutoffs is None
            else list(output.cutoffs)
        )
        require(
            bool(cutoffs) and cutoffs[-1] < num_classes,
            f"output.cutoffs={cutoffs}: the last must be below the {num_classes:,} classes of {config.dataset.name}",
        )
        require(
            config.model.dim >= output.div_value ** len(cutoffs),
            f"output.cutoffs={cutoffs} leaves the last band no dimension of the model's {config.model.dim}: give fewer,"
            " or a smaller output.div_value",
        )
        self.rank_N = np.empty(num_classes, dtype=np.int64)
        self.rank_N[np.argsort(-label_counts_N, kind="stable")] = np.arange(num_classes)
        with draws_of(config.seed, rng.CLASS_INIT):
            self.module = nn.AdaptiveLogSoftmaxWithLoss(
                config.model.dim, num_classes, cutoffs, div_value=output.div_value, head_bias=output.bias
            )
            if config.model.init is not None:
                for parameter in self.module.parameters():
                    nn.init.uniform_(parameter, -config.model.init, config.model.init)
        self.parameters = Parameters(
            self.module.parameters(), partial(RowTable, of_parameters(config.optimizer), bias=False)
        )
        self._ends = np.array([*cutoffs, num_classes])
        # The classes that a row of each band is compared with: the head's and, in a later band, those of the band too.
        self._candidates = np.diff(self._ends, prepend=0) + cutoffs[0] + len(cutoffs)
        self._candidates[0] = cutoffs[0] + len(cutoffs)

    @property
    def tables(self) -> Sequence[Rows]:
        """Return the table of all parameters."""
        return (self.parameters.table,)

    def _ranks(self, target_B: np.ndarray) -> Tensor:
        return torch.from_numpy(self.rank_N[target_B])

    # ------------------------------------------------------------ a training step

    def score(self, hidden_BD: np.ndarray, batch: Batch, step: int, clock: StageClock) -> AdaptiveScores:
        """Compute the logits that the targets need, and the loss. Each row has one target."""
        hidden = torch.from_numpy(hidden_BD).requires_grad_()
        rank_B = self._ranks(batch.targets)
        with clock.stage("score"):
            log_probability_B = self.module(hidden, rank_B).output
        with clock.stage("loss"):
            weight_B = batch.weight_B
            loss = -log_probability_B.mean() if weight_B is None else -(torch.from_numpy(weight_B) @ log_probability_B)
        band_B = np.searchsorted(self._ends, rank_B.numpy(), side="right")
        return AdaptiveScores(self, hidden, loss, float(self._candidates[band_B].mean()), step)

    # ------------------------------------------------------------ predicting

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray) -> np.ndarray:
        """Return -log probability of each row's target, (B,) float64 in nats."""
        with torch.no_grad():
            return -self.module(torch.from_numpy(hidden_BD), self._ranks(target_B)).output.double().numpy()

    def log_probabilities(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return the log probability of every class, (B, N) float32, in the order of ids."""
        with torch.no_grad():
            by_rank_BN = self.module.log_prob(torch.from_numpy(hidden_BD)).numpy()
        return np.take(by_rank_BN, self.rank_N, axis=1)

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether no log probability is below -``LARGEST_OUTPUT``."""
        return bool((self.log_probabilities(hidden_BD) > -LARGEST_OUTPUT).all())

    # ------------------------------------------------------------ what a run tells of it

    def about(self) -> dict[str, Any]:
        """Return where bands end."""
        return {"cutoffs": self._ends[:-1].tolist()}

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the parameters with their optimizer state, under ``adaptive.``."""
        return states_of({"adaptive": self.parameters.table})

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        load_states({"adaptive": self.parameters.table}, state)
