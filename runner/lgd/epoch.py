"""Take every example once in an epoch, in an order that is new in each, as training usually does.

Legend: B examples of a step, X all training examples.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner import rng
from runner.contracts import ExampleDraw, Examples, steps_per_epoch
from runner.lgd.base import Draws, ExampleSampler, ExampleSamplerConfig


@dataclass(frozen=True, kw_only=True)
class EpochConfig(ExampleSamplerConfig):
    """Take every example once in an epoch, in a new order in each epoch, unless the task needs their order."""

    keeps_order: ClassVar[bool] = True
    name: str = "epoch"

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "Epoch":
        """Make the sampler."""
        return Epoch(examples, batch_size, seed)


class Epoch(ExampleSampler):
    """Draw the parts of one permutation after another."""

    def __init__(self, examples: Examples, batch_size: int, seed: int) -> None:
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        self._steps = steps_per_epoch(examples.count, batch_size)
        self._epoch = -1
        self._order_X = np.zeros(0, dtype=np.int64)

    def draw(self, step: int, view: object = None) -> ExampleDraw:
        """Return the step's part of the epoch's permutation; all its examples weigh the same."""
        epoch, number = divmod(step - 1, self._steps)
        if epoch != self._epoch:
            self._epoch, self._order_X = epoch, self._order(epoch)
        begin = number * self.batch_size
        return ExampleDraw(rows_B=self._order_X[begin : begin + self.batch_size])

    def draws(self, first_step: int, steps: int, view: object = None) -> Draws:
        """Return the parts of several steps, which may be those of several epochs."""
        parts, sizes = [], []
        step, last = first_step, first_step + steps
        while step < last:
            number = (step - 1) % self._steps
            self.draw(step)  # makes the epoch's order
            upto = min(self._steps, number + last - step)
            parts.append(self._order_X[number * self.batch_size : upto * self.batch_size])
            ends = np.minimum(np.arange(number, upto + 1) * self.batch_size, self.examples.count)
            sizes.append(np.diff(ends))
            step += upto - number
        return Draws(
            rows_M=np.concatenate(parts),
            begin_S1=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
            count_M=None,
        )

    def _order(self, epoch: int) -> np.ndarray:
        if not self.examples.exchangeable:
            return np.arange(self.examples.count)
        return rng.generator(self.seed, rng.SHUFFLE, epoch).permutation(self.examples.count)
