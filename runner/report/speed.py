"""What this machine can do, measured in about a second, so that estimates of runs are its own.

Only torch is timed: nothing has to be compiled first. The best of several, as a moment's company says nothing about
that of the runs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_SECONDS_EACH = 0.25  # of each measurement
_FEWEST = 3
_DIM = 128
_USUAL_ENCODED_ROW = 2.5e-6  # on the machine whose seconds the constants of plans are


@dataclass(frozen=True, kw_only=True)
class Speed:
    """``products``: floating-point operations a second of logits of a batch; ``gathered``: bytes a second of class
    rows read here and there; ``encoded_row``: seconds of a row's features there and back through an embedding."""

    products: float
    gathered: float
    encoded_row: float

    @property
    def slowness(self) -> float:
        """How many times as long as on the machine of the constants it takes to start and to compile."""
        return self.encoded_row / _USUAL_ENCODED_ROW


def _least_seconds(work: Callable[[], Any]) -> float:
    work()
    found: list[float] = []
    until = time.perf_counter() + _SECONDS_EACH
    while len(found) < _FEWEST or time.perf_counter() < until:
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


@cache
def measure() -> Speed:
    """Measured once a process, with torch's threads as they are."""
    import torch

    generator = torch.Generator().manual_seed(0)
    batch, classes, features = 256, 2**14, 40
    hidden, rows = torch.rand(batch, _DIM), torch.rand(classes, _DIM)
    logits = torch.empty(batch, classes)
    products = _least_seconds(lambda: torch.mm(hidden, rows.t(), out=logits))

    table = torch.rand(2**17, _DIM)  # 64 MB, more than caches hold
    drawn = torch.randint(len(table), (2**16,), generator=generator)
    found = torch.empty(len(drawn), _DIM)
    gathered = _least_seconds(lambda: torch.index_select(table, 0, drawn, out=found))

    weight = torch.rand(2**15, _DIM, requires_grad=True)
    bags = torch.randint(len(weight), (batch, features), generator=generator)

    def encode() -> None:
        hidden = torch.nn.functional.embedding_bag(bags, weight, mode="sum", sparse=True)
        torch.relu(hidden).sum().backward()
        weight.grad = None

    return Speed(
        products=2.0 * batch * classes * _DIM / products,
        gathered=4.0 * _DIM * len(drawn) / gathered,
        encoded_row=_least_seconds(encode) / batch,
    )
