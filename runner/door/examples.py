"""Check what samplers of training examples hand over: rows and how often each is expected.

Legend: B examples of a step, S steps, M examples of all these steps, X all training examples.
"""

from typing import Any, Protocol

import numpy as np

from runner.contracts import ExampleDraw, Examples
from runner.door.arrays import (
    Wrong,
    check_array,
    check_arrays,
    check_count,
    check_offsets,
    demand,
    row_with_repeats,
    shown,
)
from runner.door.guard import Guard, is_from_outside


class _Config(Protocol):
    @property
    def name(self) -> str: ...

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> Any: ...


_METHODS = ("draw", "draws", "refresh", "make_tables", "observe", "check_view", "steps_without_refresh", "chances")


def build_example_sampler(config: _Config, *, examples: Examples, batch_size: int, seed: int) -> Any:
    """Make the sampler of examples of a configuration; all that one from outside returns is checked.

    Raises PluginError.
    """
    if not is_from_outside(config):
        return config.build(examples=examples, batch_size=batch_size, seed=seed)
    guard, count = Guard.of(config, "batch_sampler", config.name), examples.count
    sampler = guard.made(lambda: config.build(examples=examples, batch_size=batch_size, seed=seed))
    lacking = [name for name in _METHODS if not callable(getattr(sampler, name, None))]
    if lacking:
        raise guard.error(f"build must return an ExampleSampler, but {shown(sampler)} lacks {', '.join(lacking)}")
    guard.check(lambda: check_arrays(guard.made(sampler.state_dict), "state_dict()"))

    def draws(made: Any, first_step: int, steps: int, *_: Any, **__: Any) -> None:
        check_draws(made, steps, count)

    def chances(made: Any) -> None:
        if made is not None:
            check_array(made, "chances()", "float64", count)

    guard.watch(sampler, "draw", lambda made, *_, **__: check_draw(made, count), step=0)
    guard.watch(sampler, "draws", draws, step=0)
    guard.watch(sampler, "steps_without_refresh", lambda made, *_: check_count(made, "steps_without_refresh"), step=0)
    guard.watch(sampler, "refresh", _anything, step=0)
    guard.watch(sampler, "observe", _anything)
    guard.watch(sampler, "make_tables", _anything)
    guard.watch(sampler, "check_view", _anything)
    guard.watch(sampler, "chances", chances)
    guard.watch(sampler, "state_dict", lambda made: check_arrays(made, "state_dict()"))
    return sampler


def check_draw(made: Any, count: int) -> None:
    """Raise Wrong unless these are examples of a step, of ``count`` that there are."""
    demand(isinstance(made, ExampleDraw), f"draw must return an ExampleDraw, not {shown(made)}")
    _check_rows(made.rows_B, "rows_B", count)
    demand(len(made.rows_B) > 0, "rows_B is empty: a step needs an example")
    log_count_B = made.log_expected_count_B
    if log_count_B is None:
        whole = np.array([0, len(made.rows_B)])
        if row_with_repeats(made.rows_B, whole) >= 0:
            raise Wrong("rows_B has a row twice, so it is no part of a permutation: give log_expected_count_B")
        return
    check_array(log_count_B, "log_expected_count_B", "float64", len(made.rows_B))
    if not log_count_B.min() > -np.inf:  # NaN is not either; +inf makes the weight 0
        raise Wrong(f"log_expected_count_B must be above -inf, but one is {_least(log_count_B)}")


def check_draws(made: Any, steps: int, count: int) -> None:
    """Raise Wrong unless these are the draws of so many steps, of ``count`` examples that there are."""
    lacking = [name for name in ("rows_M", "begin_S1", "count_M") if not hasattr(made, name)]
    demand(not lacking, f"draws must return Draws, not {shown(made)}")
    _check_rows(made.rows_M, "rows_M", count)
    check_offsets(made.begin_S1, "begin_S1", steps, len(made.rows_M))
    demand((np.diff(made.begin_S1) > 0).all(), "begin_S1 has a step without an example")
    if made.count_M is None:
        return
    check_array(made.count_M, "count_M", "float64", len(made.rows_M))
    if not made.count_M.min() > 0:
        raise Wrong(f"count_M must be above 0, but one is {_least(made.count_M)}")


def _check_rows(rows: Any, name: str, count: int) -> None:
    check_array(rows, name, "int64", None)
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        wrong = rows[(rows < 0) | (rows >= count)][0]
        raise Wrong(f"row {wrong} of {count} examples; {name} must lie in [0, {count - 1}]")


def _least(numbers: np.ndarray) -> Any:
    return numbers.min()  # NaN if there is one


def _anything(*_: Any, **__: Any) -> None:
    """Check nothing: only errors of the plugin's own code are told in one line."""
