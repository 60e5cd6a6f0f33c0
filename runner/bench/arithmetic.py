"""Derive figures by counting: amortised refreshes, the least memory traffic, and the least floating-point operations.

Legend: n classes, D hidden size. A class row is the class's vector and its bias, (D + 1) float32.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_FLOAT = 4  # bytes
_STATES = 3  # weights, first moment, second moment


def amortised_refresh(seconds: float, refreshes: int, *, steps: int, batch: int) -> float:
    """Return the seconds of refreshing per 1,000 training rows.

    ``refreshes`` refreshes of ``seconds`` each fall in ``steps`` steps of ``batch`` rows.
    """
    return seconds * refreshes / (steps * batch) * 1000


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Hold the median, the lowest and the highest value of the repetitions."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise ``values``, which must not be empty."""
        return cls(median=statistics.median(values), lowest=min(values), highest=max(values))


@dataclass(frozen=True, kw_only=True)
class Least:
    """Hold the least work of a stage: bytes to and from memory, and floating-point operations of its products."""

    bytes: float
    flops: float

    def shares(self, seconds: float, *, bytes_per_second: float, flops_per_second: float) -> dict[str, float]:
        """Return the per cent of ``seconds`` that the traffic and the products would each take at the given rates."""
        seconds = max(seconds, 1e-12)
        return {
            "memory_percent": 100 * self.bytes / bytes_per_second / seconds,
            "products_percent": 100 * self.flops / flops_per_second / seconds,
        }


def least_work(
    *, touched_rows: float, pairs: float, num_classes: int, dim: int, rows: str, everything: bool
) -> dict[str, Least]:
    """Return the least work of one step's score and update.

    ``touched_rows``: distinct class rows of the step; ``pairs``: (batch row, class) pairs scored, targets included;
    ``rows``: the optimizer's policy; ``everything``: full softmax, whose rows never lag.

    - The score reads each row's weights once. Where rows may lag (``catch_up``) it reads both moments too. Under
      ``dense`` all n rows take the step they missed, which reads and writes weights and both moments.
    - The update reads and writes the weights and both moments of each touched row.
    - Products: each pair's logit takes 2 D operations; the gradients of hidden states and of class rows take 2 D each.
    """
    row_bytes = (dim + 1) * _FLOAT
    score_bytes: float
    if rows == "dense" and not everything:
        score_bytes = 2 * _STATES * num_classes * row_bytes
    else:
        score_bytes = (_STATES if rows == "catch_up" and not everything else 1) * touched_rows * row_bytes
    return {
        "score": Least(bytes=score_bytes, flops=2 * pairs * dim),
        "update": Least(bytes=2 * _STATES * touched_rows * row_bytes, flops=4 * pairs * dim),
    }
