"""Draw examples in proportion to the norms of their gradients: the bound that no cheap sampler can pass.

These chances minimise the variance of the gradient's estimate (Alain et al. 2015; LGD paper, section 1.1). Computing
them reads every example, so a step costs as much as a full gradient. With ``refresh_every_steps`` above 1 the norms are
those of the last refresh, and a share of the draws is uniform, so that no example is forgotten; this is what an
adaptive sampler without hash tables can afford.

Legend: X all training examples, B examples of a step, M examples of several steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from runner import rng
from runner.contracts import Examples, View
from runner.errors import require
from runner.lgd.base import BulkSampler, Draws, ExampleSamplerConfig
from runner.options.fields import option
from runner.structures.alias_table import alias_table


@njit(cache=True)
def _draw(seed, first_step, per_step, accept, alias, rows):
    """Set rows[m] to the draw number m % per_step of step first_step + m // per_step."""
    key = np.uint64(0)
    for m in range(rows.shape[0]):
        j = m % per_step
        if j == 0:
            key = rng.stream(seed, rng.EXAMPLES, first_step + m // per_step, 0)
        slot = rng.below(rng.word(key, 2 * j), accept.shape[0])
        rows[m] = slot if rng.unit(rng.word(key, 2 * j + 1)) < accept[slot] else alias[slot]


@njit(cache=True)
def _search(seed, first_step, per_step, cumulative, rows):
    """Do as ``_draw`` does, by searches among cumulative chances (X,) float64."""
    last = cumulative.shape[0] - 1
    for m in range(rows.shape[0]):
        key = rng.stream(seed, rng.EXAMPLES, first_step + m // per_step, 0)
        place = rng.unit(rng.word(key, m % per_step)) * cumulative[last]
        rows[m] = min(np.searchsorted(cumulative, place, side="right"), last)


@dataclass(frozen=True, kw_only=True)
class NormOracleConfig(ExampleSamplerConfig):
    """Draw examples in proportion to the norms of their gradients."""

    needs_view: ClassVar[bool] = True
    name: str = "norm_oracle"
    refresh_every_steps: int = option(
        1, "steps between two computations of all gradient norms, each of which reads every example", low=1
    )
    uniform_share: float = option(
        0.0,
        "share of draws from all examples alike, whose inverse bounds every weight; it must be above 0 if"
        " refresh_every_steps is above 1",
        low=0,
        below=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.refresh_every_steps == 1 or self.uniform_share > 0,
            "batch_sampler.uniform_share must be above 0 if batch_sampler.refresh_every_steps is above 1: otherwise an"
            " example without a gradient at the last refresh is never drawn",
        )

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "NormOracle":
        """Make the sampler."""
        return NormOracle(self, examples, batch_size, seed)


class NormOracle(BulkSampler):
    """Draw by an alias table over the norms of the last refresh."""

    def __init__(self, config: NormOracleConfig, examples: Examples, batch_size: int, seed: int) -> None:
        self.config, self.batch_size, self.seed = config, batch_size, seed
        self._chance_X = np.full(examples.count, 1 / examples.count)
        self._tabulate()

    def _tabulate(self) -> None:
        if self.config.refresh_every_steps == 1:
            self._cumulative_X = np.cumsum(self._chance_X)
        else:
            self._accept_X, self._alias_X = alias_table(self._chance_X)

    def draws(self, first_step: int, steps: int, view: View | None = None) -> Draws:
        """Return the draws of several steps."""
        rows_M = np.empty(steps * self.batch_size, dtype=np.int64)
        if self.config.refresh_every_steps == 1:  # an alias table takes longer to make than a few searches
            _search(self.seed, first_step, self.batch_size, self._cumulative_X, rows_M)
        else:
            _draw(self.seed, first_step, self.batch_size, self._accept_X, self._alias_X, rows_M)
        return Draws(
            rows_M=rows_M,
            begin_S1=np.arange(steps + 1) * self.batch_size,
            count_M=self.batch_size * self._chance_X[rows_M],
        )

    def chances(self) -> np.ndarray:
        """Return the chances by the norms of the last refresh."""
        return self._chance_X.copy()

    def steps_without_refresh(self, step: int) -> int:
        """Return the number of steps to the next refresh."""
        every = self.config.refresh_every_steps
        return every - (step - 1) % every

    def refresh(self, step: int, view: View | None = None) -> bool:
        """Compute the norms of all gradients if that is due. If all are 0, every example is as likely."""
        if step % self.config.refresh_every_steps:
            return False
        assert view is not None, "the task shows this sampler its examples"
        view.examples.bring_up(None, step)
        norms_X = view.gradient_norms()
        total, share, count = norms_X.sum(), self.config.uniform_share, len(norms_X)
        if total > 0 and np.isfinite(total):
            self._chance_X = (1 - share) / total * norms_X + share / count
        else:  # without any gradient, or after an overflow that the loss will tell of
            self._chance_X = np.full(count, 1 / count)
        self._tabulate()
        return True

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the chances of the last refresh."""
        return {"chance": self._chance_X}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self._chance_X = np.array(state["chance"])
        self._tabulate()
