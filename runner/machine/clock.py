"""Measure the time of each stage of a training step."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

BUILD = "build"  # the making of a sampler's tables, once, before the first step
STAGES = ("encode", "sample", "score", "loss", "update", "refresh")


class StageClock:
    """Add up the seconds of each stage; ``total`` is the time of whole steps, batch assembly included.

    ``event``: makes a CUDA event that keeps its time. A GPU works on while the processor has gone ahead, so there the
    moments are events in the queue of its work, and reading ``seconds`` waits for the last of them.
    """

    def __init__(self, event: Callable[[], Any] | None = None) -> None:
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._event = event
        self._spans: list[tuple[str, Any, Any]] = []
        self.total = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage so far."""
        for name, begin, end in self._spans:
            end.synchronize()
            self._seconds[name] += begin.elapsed_time(end) / 1000
        self._spans.clear()
        return self._seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the context to a stage, one of STAGES."""
        if self._event is None:
            begin = time.perf_counter()
            yield
            self._seconds[name] += time.perf_counter() - begin
            return
        first, last = self._event(), self._event()
        first.record()
        yield
        last.record()
        self._spans.append((name, first, last))
