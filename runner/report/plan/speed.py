"""Measure in a moment how slow this machine is, so that seconds of another machine hold for this one."""

import time
from functools import cache

_SECONDS = 0.25  # time given to the measurement
_FEWEST = 3
_USUAL_STEP = 0.26e-3  # seconds on the machine that the seconds of conf/table/seconds.csv fit


@cache
def slowness() -> float:
    """Return the factor by which runs, compiling and starting take longer than on a usual machine, once measured.

    What is timed is a forward and backward pass of a tiny LSTM: many small calls one after the other, as most of a
    short run is. What is bound by memory or by wide products differs more between machines: by such yardsticks plans
    were wrong by a factor of two. The LSTM is so small because one of 100 units is already bound by its products: held
    to AVX2 its step takes 1.7 times as long, a plain ``make reproduce`` 1.02 times. It has one thread, since threads
    wait for one another in every call if other work keeps a core busy. Only torch is timed, because nothing has to be
    compiled for it. The best of several repetitions counts: other work on the machine at this moment says nothing about
    the time of the runs.
    """
    import torch

    lstm, windows = torch.nn.LSTM(16, 16, batch_first=True), torch.rand(4, 35, 16)

    def step() -> None:
        lstm(windows)[0].sum().backward()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    step()
    found: list[float] = []
    until = time.perf_counter() + _SECONDS
    while len(found) < _FEWEST or time.perf_counter() < until:
        begin = time.perf_counter()
        step()
        found.append(time.perf_counter() - begin)
    torch.set_num_threads(threads)
    return min(found) / _USUAL_STEP
