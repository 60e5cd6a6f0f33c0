"""Encode tokens (words or items) as hidden states: torch computes, and the weights are kept in row tables.

The network between tokens and classes is a ``torch.nn.Module``; torch's autograd computes its backward pass. Its
parameters are views into one ``RowTable``, so that optimizers, clipping, checkpoints and resuming work as for all other
weights. The token vectors are a ``RowTable`` of their own, or (tied) the class matrix. A step reads and updates only
the rows of its tokens.

On a CPU dropout is a function of (seed, step); on a GPU, cuDNN itself draws the dropout between the layers of a
recurrent network. One thread and several give the same bits where BLAS keeps them, as MKL does on Intel's processors
(``tests/numerics/test_encoder_threads.py``); elsewhere they agree up to rounding.

The module lies where its table of parameters lies, and hidden states and their gradients are passed on as that table's
engine passes numbers: as arrays, or as tensors that never leave a GPU.

Legend: B rows of a batch, X tokens of a batch, E size of a token's vector, D hidden size, C columns of the table of
parameters, R its rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from runner import rng
from runner.contracts import Passed
from runner.kernels.groups import group_by_id
from runner.machine.threads import EncoderThreads
from runner.models.parameters import Parameters, draws_of, gradient_of_words, load_states, states_of
from runner.output.gradients import Gradient
from runner.output.layer import Rows
from runner.output.torch.arrays import ids_of

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class TokenEncoder(ABC, Generic[AnyModule]):
    """Encode batches of tokens as hidden states of size ``dim``.

    ``make_module``: makes the module; torch's random numbers are a function of the seed meanwhile. ``words``: the token
    vectors (tokens, E). ``owns_words``: false if the output layer uses them too (tied).
    """

    def __init__(
        self,
        make_module: Callable[[], AnyModule],
        *,
        dim: int,
        words: Rows,
        owns_words: bool,
        seed: int,
    ) -> None:
        self.dim = dim
        self.seed = seed
        self.words, self.owns_words = words, owns_words
        with draws_of(seed, rng.MODULE_INIT):
            self.module = make_module()
        self.parameters = Parameters(self.module.parameters(), words.of_parameters)
        self.tables: Sequence[Rows] = (self.parameters.table, *((words,) if owns_words else ()))
        self.dense: Sequence[np.ndarray] = ()
        self.part = 0
        """Which part of each batch this encodes, if others encode others (``models.split_batch``)."""
        self._threads = EncoderThreads()

    @abstractmethod
    def tokens(self, batch: Any) -> np.ndarray:
        """Return the token ids of a batch, int32 of any shape."""

    @abstractmethod
    def run(self, vectors: Tensor, batch: Any) -> Tensor:
        """Return the hidden states of the batch's rows, (B, D).

        ``vectors``: the vectors of the batch's tokens, in the shape of ``tokens`` and E.
        """

    @property
    def device(self) -> torch.device:
        """Return where the module computes: where its parameters lie."""
        return self.parameters.grad_RC.device

    # ------------------------------------------------------------ at test time

    def encode(self, batch: Any) -> np.ndarray:
        """Return hidden states (B, D) float32 of a batch without anything before it; nothing is remembered.

        Rows of the token vectors must be current.
        """
        self.module.eval()
        with torch.no_grad():
            return self.run(self.vectors(batch), batch).cpu().numpy()

    def vectors(self, batch: Any) -> Tensor:
        """Return the vectors of the batch's tokens where the module computes, in the shape of ``tokens`` and E."""
        return self.words.tensor[ids_of(self.tokens(batch), self.device)]

    # ------------------------------------------------------------ training

    def forward(self, batch: Any, step: int) -> Passed:
        """Return the hidden states (B, D) float32 of a training step, as the engine passes them on."""
        self._groups = group_by_id(self.tokens(batch).reshape(-1), self.words.shape[0])
        if self.owns_words:
            self.words.before_step(step)
            self.words.read_for_update(self._groups[1], step)
        else:
            # This reads moments too, because the output layer may or may not read these rows later in the step.
            self.words.read(self._groups[1], step)
        self._x = self.vectors(batch).requires_grad_()
        self.module.train()
        with self._threads.part(is_last=False), draws_of(self.seed, rng.DROPOUT, step, self.part):
            self._hidden = self.run(self._x, batch)
            return self.words.passed_on(self._hidden)

    def backward(self, grad_hidden_BD: Passed, step: int) -> None:
        """Update the parameters and the vectors of the batch's tokens, which must be the encoder's own."""
        assert self.owns_words, "tied rows are updated once per step, by the gradients of both their uses"
        for gradient in self.gradients(grad_hidden_BD, step):
            gradient.apply(step)

    def gradients(self, grad_hidden_BD: Passed, step: int) -> list[Gradient]:
        """Return the gradients of the parameters and of the batch's tokens."""
        self.parameters.grad_RC.zero_()
        with self._threads.part(is_last=True):
            self._hidden.backward(torch.as_tensor(grad_hidden_BD))
        grad_x = self._x.grad
        assert grad_x is not None
        grad_XE = self.words.passed_on(grad_x).reshape(-1, grad_x.shape[-1])
        del self._hidden, self._x
        return [self.parameters.gradient(), gradient_of_words(self.words, self._groups, grad_XE, step)]

    # ------------------------------------------------------------ state

    @property
    def _held(self) -> dict[str, Rows]:
        held: dict[str, Rows] = {"module": self.parameters.table}
        return {**held, "words": self.words} if self.owns_words else held

    def state_dict(self) -> dict[str, np.ndarray]:
        return states_of(self._held)

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        load_states(self._held, state)
