"""Values that pass between the rooms of the runner."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quality that a task measures and a report prints.

    ``key`` names it in metrics without the split: metrics hold ``test/p@1`` and ``valid/p@1`` for the key ``p@1``.
    ``label`` and ``unit`` (empty where it has none) are what people read. A metric is stored unscaled and printed times
    ``scale``, with ``decimals`` digits: 0.6641 with scale 100 is 66.41 %. ``higher_is_better`` decides which weights
    are kept, what stops a training early and what a report calls best. Exactly one measure of a task is the
    ``headline``, which progress bars, learning curves and comparisons show.
    """

    key: str
    label: str
    unit: str
    scale: float
    decimals: int
    higher_is_better: bool
    headline: bool

    def improves(self, value: float, best: float) -> bool:
        """Tell whether ``value`` is better than ``best``; equal values and nan are not."""
        return value > best if self.higher_is_better else value < best

    def text(self, value: float) -> str:
        """Print a stored value: ``66.41 %``."""
        return f"{self.scale * value:,.{self.decimals}f} {self.unit}".rstrip()
