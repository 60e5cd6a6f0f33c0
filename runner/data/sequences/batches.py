"""Cut users' sequences into windows, as training examples and as batches of an evaluation.

A batch holds no padding. Its windows lie one after another, the longest first, so windows of similar length are
neighbours and a model can lay them side by side with few empty cells.

Training. A window of l items has l targets: after each of its items, the item that the user took next. A user's
windows are cut from the newest training event backwards, so only the oldest window can be shorter than the others.
Every training event except a user's first is the target of exactly one window. Evaluation. Each event to predict has
a window of its own, the events just before it, and only the window's last position counts.

Legend: E events of all users, U users, S windows, X items of a batch's windows together, B rows of a batch,
N items of the catalogue.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from runner.contracts import Examples
from runner.data.shared.examples import examples_with_class
from runner.data.shared.manifests import Int32s

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_SHORT = 32  # windows of at most so many items share one array


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Say where items lie in an array (windows, places) whose rows are filled from the left.

    ``windows``, ``places``: the array's sizes. ``begin``: position of its first item in the batch. ``cell_X``: for that
    item and those after it, the number of the cell that holds it, row after row, int64.
    """

    windows: int
    places: int
    begin: int
    cell_X: np.ndarray

    @property
    def items(self) -> slice:
        """Return which items of the batch the array holds."""
        return slice(self.begin, self.begin + len(self.cell_X))

    @property
    def is_full(self) -> bool:
        """Return whether no cell is empty."""
        return len(self.cell_X) == self.windows * self.places


@dataclass(frozen=True, kw_only=True)
class SequenceBatch:
    """Hold windows of items, the longest first.

    ``items_X``: class ids of the windows' items, window after window. ``length_S``: (S,) int64 lengths, descending.
    ``targets``: (B,) int32, one for each row. ``only_last``: the rows are the windows (B = S), whose last position
    predicts the target; otherwise every item is a row (B = X). ``weight_B``: factors of the rows' losses, or None.
    """

    items_X: Int32s
    length_S: np.ndarray
    targets: Int32s
    only_last: bool = False
    weight_B: np.ndarray | None = None
    target_indptr: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_indptr", np.arange(len(self.targets) + 1, dtype=np.int64))

    @property
    def num_rows(self) -> int:
        """Return B, the number of rows that samplers and the output layer see."""
        return len(self.targets)

    @property
    def num_examples(self) -> int:
        """Return S, the number of windows."""
        return len(self.length_S)

    @cached_property
    def start_S(self) -> np.ndarray:
        """Return where each window begins in ``items_X``, (S,) int64."""
        return np.cumsum(self.length_S) - self.length_S

    @property
    def first_row_E1(self) -> np.ndarray:
        """Return where the rows of each window begin, and where the last ones end, (S + 1,) int64."""
        rows_S = np.ones_like(self.length_S) if self.only_last else self.length_S
        return np.concatenate([[0], np.cumsum(rows_S)])

    def part(self, lo: int, hi: int) -> "SequenceBatch":
        """Return the batch of the windows lo to hi - 1."""
        items = np.concatenate([[0], np.cumsum(self.length_S)])[[lo, hi]]
        rows = slice(*self.first_row_E1[[lo, hi]])
        return SequenceBatch(
            items_X=self.items_X[slice(*items)],
            length_S=self.length_S[lo:hi],
            targets=self.targets[rows],
            only_last=self.only_last,
            weight_B=None if self.weight_B is None else self.weight_B[rows],
        )

    @cached_property
    def grids(self) -> "list[Grid]":
        """Return arrays of windows and places that together hold all items, for what needs windows side by side.

        The windows of an array are neighbours in the batch, and all of them have more than half the items of its
        longest, or at most ``_SHORT``: a few large arrays are faster than one for each length, and little of them is
        empty.
        """
        grids, first = [], 0
        while first < len(self.length_S):
            longest = int(self.length_S[first])
            last = int(np.sum(self.length_S > (0 if longest <= _SHORT else longest // 2)))
            length_W = self.length_S[first:last]
            cell_X = _ranges(np.arange(last - first) * longest, length_W)
            grids.append(Grid(windows=last - first, places=longest, begin=int(self.start_S[first]), cell_X=cell_X))
            first = last
        return grids

    @cached_property
    def place_from_end_X(self) -> np.ndarray:
        """Return how many items of its window follow each item, (X,) int64: 0 for a window's last item."""
        last_S = self.start_S + self.length_S - 1
        return np.repeat(last_S, self.length_S) - np.arange(len(self.items_X))


@dataclass(frozen=True, kw_only=True)
class SequenceWindows:
    """Cut the training events of all users into windows of at most ``length`` items.

    ``items_E``: class ids of all events. ``begin_U``, ``end_U``: (U,) int64, where each user's training events begin
    and end in ``items_E``.
    """

    items_E: Int32s
    begin_U: np.ndarray
    end_U: np.ndarray
    length: int

    @cached_property
    def _windows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first position and length of every window, user after user, int64 each."""
        targets_U = np.maximum(self.end_U - self.begin_U - 1, 0)
        count_U = -(-targets_U // self.length)
        user_S = np.repeat(np.arange(len(count_U)), count_U)
        number_S = np.arange(len(user_S)) - np.repeat(np.cumsum(count_U) - count_U, count_U)
        # The newest window of a user is number count - 1. Its last target is the last event.
        last_target_S = self.end_U[user_S] - 1 - (count_U[user_S] - 1 - number_S) * self.length
        start_S = np.maximum(last_target_S - self.length, self.begin_U[user_S])
        return start_S, last_target_S - start_S

    @cached_property
    def target_places(self) -> np.ndarray:
        """Return the positions in ``items_E`` of all training targets, ascending int64."""
        start_S, length_S = self._windows
        return np.sort(_ranges(start_S + 1, length_S))

    @property
    def event_places(self) -> np.ndarray:
        """Return the positions in ``items_E`` of all training events, targets or not, ascending int64."""
        return _ranges(self.begin_U, self.end_U - self.begin_U)

    def users_items(self, num_items: int) -> "csr_array":
        """Return a matrix (U, N) of ones where a user took an item in training."""
        from scipy.sparse import coo_array

        count_U = self.end_U - self.begin_U
        user, item = np.repeat(np.arange(len(count_U)), count_U), self.items_E[self.event_places]
        taken = coo_array((np.ones(len(user)), (user, item)), shape=(len(count_U), num_items)).tocsr()
        taken.data[:] = 1  # an item that a user took several times counts once
        return taken

    @property
    def examples(self) -> Examples:
        """Return the windows as examples to draw."""
        return Examples(count=len(self._windows[0]))

    def count_examples(self, num_items: int) -> np.ndarray:
        """Return how many windows have each item among their targets, (num_items,) int64."""
        start_S, length_S = self._windows
        target_P = self.items_E[_ranges(start_S + 1, length_S)]
        return examples_with_class(target_P, np.repeat(np.arange(len(length_S)), length_S), num_items)

    def batch(self, rows_S: np.ndarray, weight_S: np.ndarray | None = None) -> SequenceBatch:
        """Return the windows numbered ``rows_S``.

        ``weight_S``: (S,) factors of the mean over all examples, or None. Here a factor becomes that of each target of
        the window in the mean over all training targets.
        """
        start_S, length_S = (part[rows_S] for part in self._windows)
        order_S = np.argsort(-length_S, kind="stable")
        start_S, length_S = start_S[order_S], length_S[order_S]
        place_X = _ranges(start_S, length_S)
        weight_B = None
        if weight_S is not None:
            examples_per_target = self.examples.count / len(self.target_places)
            weight_B = np.repeat((weight_S[order_S] * examples_per_target).astype(np.float32), length_S)
        return SequenceBatch(
            items_X=np.ascontiguousarray(self.items_E[place_X], dtype=np.int32),
            length_S=length_S,
            targets=np.ascontiguousarray(self.items_E[place_X + 1], dtype=np.int32),
            weight_B=weight_B,
        )


def windows_before(items_E: Int32s, begin_B: np.ndarray, place_B: np.ndarray, length: int) -> SequenceBatch:
    """Return a batch that predicts the events at ``place_B`` from at most ``length`` events before each.

    ``begin_B``: where the events of the same user begin, less than ``place_B``. Rows come in order of ``place_B`` only
    if all windows are equally long; ``order_by_length`` tells which row is where.
    """
    order_B = order_by_length(begin_B, place_B, length)
    place_B, begin_B = place_B[order_B], begin_B[order_B]
    start_B = np.maximum(place_B - length, begin_B)
    length_B = place_B - start_B
    return SequenceBatch(
        items_X=np.ascontiguousarray(items_E[_ranges(start_B, length_B)], dtype=np.int32),
        length_S=length_B,
        targets=np.ascontiguousarray(items_E[place_B], dtype=np.int32),
        only_last=True,
    )


def order_by_length(begin_B: np.ndarray, place_B: np.ndarray, length: int) -> np.ndarray:
    """Return the order in which ``windows_before`` puts its rows: longest window first, (B,) int64."""
    return np.argsort(-np.minimum(place_B - begin_B, length), kind="stable")


def _ranges(start_S: np.ndarray, length_S: np.ndarray) -> np.ndarray:
    """Return the numbers start, start + 1, ..., start + length - 1 of each entry, one entry after another, int64."""
    offset_S = np.cumsum(length_S) - length_S
    return np.arange(int(length_S.sum()), dtype=np.int64) + np.repeat(start_S - offset_S, length_S)
