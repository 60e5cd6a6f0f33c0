"""Measure this machine's speed in about a second, so that estimates of runs hold for this machine.

Only torch is timed, because nothing has to be compiled for it. The best of several repetitions counts: other work on
the machine at this moment says nothing about the time of the runs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_SECONDS_EACH = 0.25  # time given to each measurement
_FEWEST = 3
_DIM = 128
USUAL_RECURRENT_STEP = 0.26e-3  # ``Speed.recurrent_step`` of the machine that the seconds of conf/table/seconds.csv fit


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of this machine.

    ``products``: floating-point operations per second in a product that makes a batch's logits. ``gathered``: bytes per
    second when class rows are read in random order. ``encoded_row``: seconds per row for a forward and backward pass of
    its features through an embedding. ``recurrent_step``: seconds for a forward and backward pass of a tiny LSTM
    on one thread.
    """

    products: float
    gathered: float
    encoded_row: float
    recurrent_step: float

    @property
    def slowness(self) -> float:
        """The factor by which starting, compiling and runs measured elsewhere take longer than on a usual machine.

        A recurrent step is many small calls one after the other, as most of a short run is. What is bound by memory or
        by wide products differs more between machines: by such yardsticks plans were wrong by a factor of two. The LSTM
        is so small because one of 100 units is already bound by its products: held to AVX2 its step takes 1.7 times as
        long, a plain ``make reproduce`` 1.02 times. It has one thread, since threads wait for one another in every call
        if other work keeps a core busy.
        """
        return self.recurrent_step / USUAL_RECURRENT_STEP


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
    """Measure the speed once per process: the recurrent step with one thread, the rest with all that torch has."""
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

    lstm, windows = torch.nn.LSTM(16, 16, batch_first=True), torch.rand(4, 35, 16)

    def step() -> None:
        lstm(windows)[0].sum().backward()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recurrent = _least_seconds(step)
    torch.set_num_threads(threads)
    return Speed(
        products=2.0 * batch * classes * _DIM / products,
        gathered=4.0 * _DIM * len(drawn) / gathered,
        encoded_row=_least_seconds(encode) / batch,
        recurrent_step=recurrent,
    )
