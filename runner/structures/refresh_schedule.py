"""Say when tables are brought up to the vectors that they follow."""


class RefreshSchedule:
    """Come due after ``period`` steps, and then after intervals each ``growth`` times as long as the one before.

    ``count``: how many times it came due. ``next``: the step from which on it comes due again.
    """

    def __init__(self, period: int, growth: float = 1.0) -> None:
        self.period, self.growth = period, growth
        self.count, self.next = 0, float(period)

    def comes_due(self, step: int) -> bool:
        """Tell whether a refresh is due at the end of ``step``; if so, the next interval begins."""
        if step < self.next:
            return False
        self.count += 1
        self.next = step + self.period * self.growth**self.count
        return True

    def times_within(self, steps: int) -> int:
        """Return how many times a new schedule of this kind comes due in so many steps."""
        fresh = RefreshSchedule(self.period, self.growth)
        return sum(fresh.comes_due(step) for step in range(1, steps + 1))
