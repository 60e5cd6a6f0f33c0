"""Keep the weights of torch modules in row tables, and make torch's random numbers functions of seed and step.

The parameters of a module are views into one ``RowTable``, so that optimizers, clipping, checkpoints and resuming work
as for all other weights. Word vectors are a ``RowTable`` of their own; a step reads and updates only the rows of its
words.

Legend: P parameters, R rows and C columns of the table of parameters, X tokens of a batch, E size of a word's vector.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
import torch
from torch import nn

from runner import rng
from runner.output.layer import RowGradient, Rows

_COLUMNS = 256  # columns of the table that holds a module's parameters
Groups = tuple[np.ndarray, np.ndarray, np.ndarray]


def draws_of(seed: int, purpose: int, step: int = 0, part: int = 0) -> AbstractContextManager[Any]:
    """Return a context in which torch's random numbers are a function of the arguments.

    After it, torch's generator for the CPU is in the same state as before. ``part``: the part of a batch they are for.
    """
    inside = ExitStack()
    inside.enter_context(torch.random.fork_rng(devices=[]))
    number = int(rng.generator(seed, purpose, step).integers(2**63, size=part + 1)[part])
    # torch.manual_seed does both, but writes a stack trace for each kind of GPU, which takes a millisecond.
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)
    return inside


class Parameters:
    """Keep parameters and their gradients as views into the rows of a table, which ``make_table`` makes.

    The parameters move to where the table lies.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], make_table: Callable[[np.ndarray], Rows]) -> None:
        held = list(parameters)
        rows = -(-sum(parameter.numel() for parameter in held) // _COLUMNS)
        self.table = make_table(np.zeros((rows, _COLUMNS), dtype=np.float32))
        self.grad_RC = torch.zeros_like(self.table.tensor)
        weights_P, grad_P = self.table.tensor.view(-1), self.grad_RC.view(-1)
        begin = 0
        for parameter in held:
            here = slice(begin, begin + parameter.numel())
            view = weights_P[here].view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.grad = grad_P[here].view(parameter.shape)
            begin = here.stop

    def gradient(self) -> RowGradient:
        """Return what autograd has added to the gradients since they were cleared."""
        return self.table.gradient_of(self.grad_RC)


def gradient_of_words(words: Rows, groups: Groups, grad_XE: Any, step: int) -> RowGradient:
    """Return the gradient of the word vectors, summed over the tokens of a batch.

    ``groups``: the tokens grouped by word (``kernels.groups.group_by_id``). ``grad_XE``: the gradient of each token's
    vector, float32, an array or a tensor.
    """
    tokens, size = grad_XE.shape
    place_X = np.arange(tokens, dtype=np.int32)
    once_X = np.ones(tokens, dtype=np.float32)
    nobody = np.zeros((0, size), dtype=np.float32)
    no_bias_X = np.zeros(tokens, dtype=np.float32)
    return words.gradients_of_groups(groups, grad_XE, place_X, once_X, nobody, step, no_bias_X)


def states_of(tables: Mapping[str, Rows]) -> dict[str, np.ndarray]:
    """Return the arrays of tables under ``<name of the table>.<name of the array>``."""
    return {f"{part}.{name}": array for part, table in tables.items() for name, array in table.state_dict().items()}


def load_states(tables: Mapping[str, Rows], state: Mapping[str, np.ndarray]) -> None:
    """Restore what ``states_of`` returned; other entries are ignored."""
    for part, table in tables.items():
        prefix = f"{part}."
        table.load_state_dict({n.removeprefix(prefix): array for n, array in state.items() if n.startswith(prefix)})
