"""Wrong things of every kind, as plugins hand them over, and what must come of them.

Classes of tests count as a plugin's, because their modules are none of the package's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from runner.check.cases import NUM_CLASSES, random_query
from runner.contracts import TrainingFacts
from runner.errors import PluginError

QUERY = random_query()
ROWS, DIM = QUERY.num_rows, QUERY.hidden_BD.shape[1]
FACTS = TrainingFacts.one_label_a_row(np.ones(NUM_CLASSES, dtype=np.int64))
NO_ARRAYS = [None, 7, 0.5, "ids", [1, 2], (), {}, object, np.float32(1), np.int64(1)]
fuzz = settings(max_examples=60)


def spoiled(
    good: np.ndarray, *, below: int | None = None, finite: str = "", any_length: bool = False
) -> st.SearchStrategy[Any]:
    """Arrays and others that are wrong where ``good`` is right: its type, its shape and, if asked, its numbers.

    ``below``: ids lie in [0, below - 1]. ``finite``: the numbers, of these, that are wrong.
    ``any_length``: shorter and longer ones are right.
    """
    others = {"int32": "int64", "int64": "int32", "float32": "float64", "float64": "float32"}
    shapes = [good[None], good[..., None]]
    shapes += [] if any_length else [good[:-1], np.concatenate([good, good[-1:]])]
    types = [good.astype(others[str(good.dtype)]), good.astype(object), good.astype(">" + good.dtype.str[1:])]
    types += [good.tolist(), np.ma.masked_array(good), good.astype(bool), good.astype(str), good.astype(complex)]

    def with_one(number: Any, place: int) -> np.ndarray:
        wrong = good.copy()
        wrong.ravel()[place % wrong.size] = number
        return wrong

    places = st.integers(0, good.size - 1)
    ways = [st.sampled_from(NO_ARRAYS), st.sampled_from(types), st.sampled_from(shapes)]
    if below is not None:
        limits = np.iinfo(good.dtype)
        outside = st.integers(int(limits.min), -1) | st.integers(below, int(limits.max))
        ways.append(st.builds(with_one, outside | st.sampled_from([-1, below]), places))
    if finite:
        numbers = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
        ways.append(st.builds(with_one, st.sampled_from([numbers[word] for word in finite.split()]), places))
    return st.one_of(ways)


def refused(do: Callable[[], object], who: str, step: int | None = None) -> str:
    """Return the problem that the error names; it must be one line and say who handed it over, and at which step."""
    with pytest.raises(PluginError) as caught:
        do()
    text = str(caught.value)
    start = f"{who}: " + ("" if step is None else f"step {step}: ")
    assert text.startswith(start), text
    assert "\n" not in text, text
    assert len(text) < 400, text
    return text.removeprefix(start)
