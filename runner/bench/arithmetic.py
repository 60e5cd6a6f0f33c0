"""What follows from measured seconds by counting: amortised refreshes, least traffic, least products.

Legend: n classes, D hidden size, B rows of a batch; a class row is its vector and its bias, (D + 1) float32.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_FLOAT = 4  # bytes
_STATES = 3  # weights, first moment, second moment


def refreshes_in_schedule(period: int, growth: float, steps: int) -> int:
    """Refreshes that fall due in ``steps`` training steps when each interval is ``growth`` times the one before."""
    done, due = 0, float(period)
    for step in range(1, steps + 1):
        if step >= due:
            done += 1
            due = step + period * growth**done
    return done


def amortised_refresh(seconds: float, refreshes: int, *, steps: int, batch: int) -> float:
    """Seconds of refreshing per 1,000 training rows, when ``refreshes`` of ``seconds`` each fall in ``steps`` steps."""
    return seconds * refreshes / (steps * batch) * 1000


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median, lowest and highest of the repetitions."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median=statistics.median(values), lowest=min(values), highest=max(values))


@dataclass(frozen=True, kw_only=True)
class Least:
    """What a stage cannot do without: bytes to and from memory, floating-point operations of its products."""

    bytes: float
    flops: float

    def shares(self, seconds: float, *, bytes_per_second: float, flops_per_second: float) -> dict[str, float]:
        """Per cent of the stage's ``seconds`` that the traffic, and the products, would take at the machine's best."""
        seconds = max(seconds, 1e-12)
        return {
            "memory_percent": 100 * self.bytes / bytes_per_second / seconds,
            "products_percent": 100 * self.flops / flops_per_second / seconds,
        }


def least_work(
    *, touched_rows: float, pairs: float, num_classes: int, dim: int, rows: str, everything: bool
) -> dict[str, Least]:
    """Least work of the score and of the update of one step.

    ``touched_rows``: distinct class rows of the step; ``pairs``: (batch row, class) pairs scored, targets included;
    ``rows``: the optimizer's policy; ``everything``: full softmax, whose rows never lag.

    - score reads each row's weights once; where rows may lag (``catch_up``) both moments too; under ``dense`` all n
      rows take the step they missed, a read and a write of all three;
    - update reads and writes weights and both moments of each touched row;
    - products: logits 2 D operations a pair; gradients of hidden states and of class rows 2 D each.
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
