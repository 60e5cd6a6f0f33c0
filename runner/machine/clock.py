"""Measure the time of each stage of a training step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

BUILD = "build"  # the making of a sampler's tables, once, before the first step
STAGES = ("encode", "sample", "score", "loss", "update", "refresh")


class StageClock:
    """Add up the seconds of each stage; ``total`` is the time of whole steps, batch assembly included."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.total = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the context to a stage, one of STAGES."""
        begin = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begin
