"""Encode tokens (words or items) as hidden states: torch computes, and the weights are kept in row tables.

The network between tokens and classes is a ``torch.nn.Module``; torch's autograd computes its backward pass. Its
parameters are views into one ``RowTable``, so that optimizers, clipping, checkpoints and resuming work as for all other
weights. The token vectors are a ``RowTable`` of their own, or (tied) the class matrix. A step reads and updates only
the rows of its tokens.

On a CPU dropout is a function of (seed, step); on a GPU, cuDNN itself draws the dropout between the layers of a
recurrent network. One thread and several give the same bits where BLAS keeps them, as MKL does on Intel's processors
(``tests/numerics/test_encoder_threads.py``); elsewhere they agree up to rounding.

On a GPU a copy of the module computes. Before each pass its parameters are copied from the module, and after it the
gradients are copied back, so weights and optimizers are the same wherever the module runs.

Legend: B rows of a batch, X tokens of a batch, E size of a token's vector, D hidden size, C columns of the table of
parameters, R its rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from runner import rng
from runner.kernels.groups import group_by_id
from runner.machine.threads import EncoderThreads
from runner.models.parameters import Parameters, draws_of, gradient_of_words, load_states, states_of
from runner.optimizers import OptimizerConfig
from runner.output.gradients import Gradient
from runner.output.layer import Rows

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
        optimizer: OptimizerConfig,
        seed: int,
    ) -> None:
        self.make_module = make_module
        self.dim = dim
        self.seed = seed
        self.words, self.owns_words = words, owns_words
        with draws_of(seed, rng.MODULE_INIT):
            self.module = make_module()
        self.parameters = Parameters(self.module.parameters(), optimizer)
        self.working = self.module  # the module that computes: this one, or its copy on another device
        self.tables: Sequence[Rows] = (self.parameters.table, *((words,) if owns_words else ()))
        self.dense: Sequence[np.ndarray] = ()
        self._threads = EncoderThreads()

    @abstractmethod
    def tokens(self, batch: Any) -> np.ndarray:
        """Return the token ids of a batch, int32 of any shape."""

    @abstractmethod
    def run(self, vectors: Tensor, batch: Any) -> Tensor:
        """Return the hidden states of the batch's rows, (B, D).

        ``vectors``: the vectors of the batch's tokens, in the shape of ``tokens`` and E.
        """

    # ------------------------------------------------------------ where it computes

    def move_to(self, device: torch.device) -> None:
        """Compute on ``device`` from now on, with a copy of the module there."""
        self.working = self.make_module().to(device)

    @property
    def device(self) -> torch.device:
        """Return where the module computes."""
        return next(self.working.parameters()).device

    def bring_parameters(self) -> None:
        """Copy the parameters to where they are needed, if that is elsewhere."""
        if self.working is not self.module:
            with torch.no_grad():
                for copy, parameter in zip(self.working.parameters(), self.module.parameters(), strict=True):
                    copy.copy_(parameter)

    def _bring_gradients_back(self) -> None:
        if self.working is not self.module:
            for copy, parameter in zip(self.working.parameters(), self.module.parameters(), strict=True):
                assert copy.grad is not None
                assert parameter.grad is not None
                parameter.grad.copy_(copy.grad)
                copy.grad = None

    def _with_threads(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Return the context of a part of a step; on a GPU, threads of the CPU do not matter."""
        return self._threads.part(is_last=is_last) if self.working is self.module else nullcontext()

    # ------------------------------------------------------------ at test time

    def encode(self, batch: Any) -> np.ndarray:
        """Return hidden states (B, D) float32 of a batch without anything before it; nothing is remembered.

        Rows of the token vectors must be current.
        """
        self.bring_parameters()
        self.working.eval()
        with torch.no_grad():
            return self.run(self.vectors(batch), batch).cpu().numpy()

    def vectors(self, batch: Any) -> Tensor:
        """Return the vectors of the batch's tokens where the module computes, in the shape of ``tokens`` and E."""
        return torch.from_numpy(self.words.rows()[self.tokens(batch)]).to(self.device)

    # ------------------------------------------------------------ training

    def forward(self, batch: Any, step: int) -> np.ndarray:
        """Return the hidden states (B, D) float32 of a training step."""
        self._groups = group_by_id(self.tokens(batch).reshape(-1), self.words.shape[0])
        if self.owns_words:
            self.words.before_step(step)
            self.words.read_for_update(self._groups[1], step)
        else:
            # This reads moments too, because the output layer may or may not read these rows later in the step.
            self.words.read(self._groups[1], step)
        self._x = self.vectors(batch).requires_grad_()
        self.bring_parameters()
        self.working.train()
        with self._with_threads(is_last=False), draws_of(self.seed, rng.DROPOUT, step):
            self._hidden = self.run(self._x, batch)
            return self._hidden.detach().cpu().numpy()

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        """Update the parameters and the vectors of the batch's tokens, which must be the encoder's own."""
        assert self.owns_words, "tied rows are updated once per step, by the gradients of both their uses"
        for gradient in self.gradients(grad_hidden_BD, step):
            gradient.apply(step)

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        """Return the gradients of the parameters and of the batch's tokens."""
        self.parameters.grad_RC.fill(0)
        with self._with_threads(is_last=True):
            self._hidden.backward(torch.from_numpy(grad_hidden_BD).to(self.device))
            self._bring_gradients_back()
        grad_x = self._x.grad
        assert grad_x is not None
        grad_XE = grad_x.cpu().numpy().reshape(-1, grad_x.shape[-1])
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
