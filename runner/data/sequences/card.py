"""Say what the cards of logs of events hold, and in which layouts a log may be."""

from dataclasses import dataclass
from typing import ClassVar

from runner.data.sequences.events import Filters
from runner.data.shared.card import Card, Layout, Size


@dataclass(frozen=True, kw_only=True)
class SequencesLayout(Layout):
    """Name the file of a log of events and say how it is laid out (`runner/data/sequences/logs.py`).

    Either each row is an event, in columns that `separator` (one character or several) separates and that have names
    if there is a `header`, otherwise numbers from 0; quotes are characters like any other. Or, with `users_in_lines`,
    each line holds the items of one user, oldest first, separated by blanks, and no columns are given.
    """

    data: str
    users_in_lines: bool = False
    separator: str = "\t"
    header: bool = False
    user: str | int | None = None
    item: str | int | None = None
    time: str | int | None = None  # a finite number or ISO 8601
    rating: str | int | None = None

    def file_names(self) -> dict[str, str]:
        return self.given("data")

    def problem(self) -> str | None:
        used = [column for column in (self.user, self.item, self.time, self.rating) if column is not None]
        if self.users_in_lines:
            return "users_in_lines leaves no use for user, item, time and rating" if used else None
        if None in (self.user, self.item, self.time):
            return "give user, item and time, or users_in_lines"
        if not self.separator or set(self.separator) & set("\r\n"):
            return "separator must be one character or several, but no line end"
        if len(set(used)) < len(used):
            return "user, item, time and rating must be different columns"
        if self.header != all(isinstance(column, str) for column in used):
            return "columns have names if there is a header, otherwise numbers"
        if not self.header and any(isinstance(column, str) or column < 0 for column in used):
            return "columns without a header are numbers from 0"
        return None


@dataclass(frozen=True, kw_only=True)
class ExpectedSequences:
    """Hold the published counts of a log after its filters, None if unknown."""

    num_users: int | None
    num_items: int | None
    num_events: int | None


@dataclass(frozen=True, kw_only=True)
class SequencesCard(Card):
    """Describe a log of events, each of which is a user, an item and a time.

    `min_rating`, `min_user`, `min_item`, `repeats`: which events stay; `runner/data/sequences/events.py` states the
    rules.
    """

    family: ClassVar[str] = "sequences"

    expected: ExpectedSequences
    min_rating: float | None = None
    min_user: int = 1
    min_item: int = 1
    repeats: str = "all"
    layouts: tuple[SequencesLayout, ...]

    @property
    def filters(self) -> Filters:
        """Return which events stay."""
        return Filters(min_rating=self.min_rating, min_user=self.min_user, min_item=self.min_item, repeats=self.repeats)

    @property
    def size(self) -> Size:
        """Return the size, whose `train` counts all events: a run chooses how they are split."""
        counts = self.expected
        return Size(unit="events", train=counts.num_events, users=counts.num_users, classes=counts.num_items)

    def problem(self) -> str | None:
        if self.min_rating is not None and any(layout.rating is None for layout in self.layouts):
            return "min_rating needs the column rating in every layout"
        return self.filters.problem()
