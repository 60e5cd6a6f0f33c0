"""Keep the first of equal ids, and draw from what is left, in tensors and without asking the device for a size.

Legend: B rows, X ids of a row, T drawn ids of a row, M places of a row's result or ids that a caller asks for, P
targets of all rows, N classes.
"""

import math
from functools import cache

import torch
from torch import Tensor

from runner.contracts import Query
from runner.output.torch import words
from runner.output.torch.batches import Targets, TorchProposal

_LOG_ODDS = 46.0  # of a row whose draws do not suffice: it happens once in e^46 = 1e20 rows


def first_of_each(ids: Tensor, *, is_sorted: bool = False) -> Tensor:
    """Tell of each id whether it is the first of its kind in its row, bool of the same shape."""
    order = None
    if not is_sorted:
        ids, order = ids.sort(dim=-1, stable=True)
    first = torch.ones_like(ids, dtype=torch.bool)
    first[..., 1:] = ids[..., 1:] != ids[..., :-1]
    return first if order is None else torch.empty_like(first).scatter_(-1, order, first)


def pushed_together(ids_BX: Tensor, kept_BX: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Return the ids that are kept, in their order, in the first places of each row, (B, M), and their number, (B,)."""
    place_BX = torch.where(kept_BX, kept_BX.cumsum(1) - 1, places)
    out_BM = ids_BX.new_zeros((len(ids_BX), places + 1)).scatter_(1, place_BX, ids_BX)
    return out_BM[:, :places], kept_BX.sum(1)


def drawn_outside(
    inside_BX: Tensor, key_B: Tensor, num_inside_B: Tensor, wanted_B: Tensor, most: int, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Draw classes uniformly without replacement from outside each row's own, as ``hashed.draw_outside`` does.

    Returns ids (B, T) and which of them are drawn. ``inside_BX``: the row's own classes, distinct; places with
    ``num_classes`` are empty. ``most``: the largest ``wanted_B``, or more.

    Where a row may have more than half of all classes in the end, this waits for the device, to learn if one has.
    """
    inside, device = inside_BX.shape[1], inside_BX.device
    draw_T = torch.arange(_draws_for(most, inside + most, num_classes), device=device)
    drawn_BT = words.below(words.word(key_B[:, None], draw_T), num_classes)
    is_new_BT = first_of_each(torch.cat([inside_BX, drawn_BT], dim=1))[:, inside:]
    taken_BT = is_new_BT & (is_new_BT.cumsum(1) <= wanted_B[:, None])
    if 2 * (inside + most) <= num_classes:
        return drawn_BT, taken_BT
    walks_B = 2 * (num_inside_B + wanted_B) > num_classes
    if not bool(walks_B.any()):
        return drawn_BT, taken_BT
    walked_BN = _walked(inside_BX, key_B, num_inside_B, wanted_B, num_classes) & walks_B[:, None]
    class_BN = torch.arange(num_classes, device=device).expand(walked_BN.shape)
    return torch.cat([drawn_BT, class_BN], dim=1), torch.cat([taken_BT & ~walks_B[:, None], walked_BN], dim=1)


class SureAndTail:
    """Hold the candidates of each row that are certain, (B, X), and how many others are drawn uniformly from outside.

    Empty places have ``num_classes``. ``log_outside_B``: the log expected count of every class that is not certain.
    """

    def __init__(self, sure_BX: Tensor, num_sure_B: Tensor, wanted_B: Tensor, num_classes: int) -> None:
        self.sure_BX, self.num_sure_B, self.wanted_B, self.num_classes = sure_BX, num_sure_B, wanted_B, num_classes
        self.log_outside_B = (wanted_B.double() / (num_classes - num_sure_B).clamp_min(1)).log().float()

    def proposal(self, key_B: Tensor, most: int, places: int) -> TorchProposal:
        """Draw the tails; return the proposal. ``most``: the largest number that is drawn; ``places``: of each row."""
        ids_BX, chosen_BX = self.sure_BX, self.sure_BX < self.num_classes
        if most > 0:
            drawn_BT, is_drawn_BT = drawn_outside(ids_BX, key_B, self.num_sure_B, self.wanted_B, most, self.num_classes)
            ids_BX, chosen_BX = torch.cat([ids_BX, drawn_BT], dim=1), torch.cat([chosen_BX, is_drawn_BT], dim=1)
        ids_BM, length_B = pushed_together(ids_BX, chosen_BX, places)
        place_M = torch.arange(places, device=ids_BM.device)
        log_count_BM = torch.where(place_M < self.num_sure_B[:, None], 0.0, self.log_outside_B[:, None])
        return TorchProposal(ids_BM, log_count_BM, place_M < length_B[:, None])

    def log_count_of(self, ids_M: Tensor) -> Tensor:
        """Return the log expected counts of these classes in every row, (B, M)."""
        is_sure_BN = torch.zeros((len(self.sure_BX), self.num_classes + 1), dtype=torch.bool, device=ids_M.device)
        is_sure_BN.scatter_(1, self.sure_BX, True)
        return torch.where(is_sure_BN[:, ids_M], 0.0, self.log_outside_B[:, None])

    def log_count_of_targets(self, query: Query) -> Tensor:
        """Return the log expected count of each target in its own row, (P,)."""
        targets = Targets.of(query, self.sure_BX.device)
        is_sure_P = (self.sure_BX[targets.row_P] == targets.ids_P[:, None]).any(1)
        return torch.where(is_sure_P, 0.0, self.log_outside_B[targets.row_P])


@cache
def _draws_for(wanted: int, taken: int, num_classes: int) -> int:
    """Return how many draws find ``wanted`` classes while up to ``taken`` are no longer new, in all rows there will be.

    By Chernoff's bound, of T draws with a chance p each, fewer than a T succeed with probability at most
    e^(-T KL(a || p)). Rows that would need more than half of all classes do not draw so.
    """
    chance = 1 - min(taken / num_classes, 0.5)
    draws = wanted
    while draws > 0:
        share = wanted / draws
        distance = share * math.log(share / chance)
        if share < 1:
            distance += (1 - share) * math.log((1 - share) / (1 - chance)) if chance < 1 else math.inf
        if share < chance and draws * distance >= _LOG_ODDS:
            break
        draws += 1 + draws // 64
    return draws


def _walked(inside_BX: Tensor, key_B: Tensor, num_inside_B: Tensor, wanted_B: Tensor, num_classes: int) -> Tensor:
    """Walk over all classes once and keep a uniform subset of those outside; return which are kept, (B, N) bool.

    Whether one is kept depends on how many were before it, so this takes a few operations for each class.
    """
    is_inside_BN = torch.zeros((len(inside_BX), num_classes + 1), dtype=torch.bool, device=inside_BX.device)
    is_outside_BN = ~is_inside_BN.scatter_(1, inside_BX, True)[:, :num_classes]
    before_BN = is_outside_BN.cumsum(1) - is_outside_BN.long()
    left_BN = (num_classes - num_inside_B)[:, None] - before_BN
    bar_BN = words.unit(words.word(key_B[:, None], before_BN)) * left_BN
    bar_NB = torch.where(is_outside_BN, bar_BN, torch.inf).t().contiguous()
    still_B, kept = wanted_B.double(), []
    for bar_B in bar_NB:
        kept.append(bar_B < still_B)
        still_B = still_B - kept[-1].double()
    return torch.stack(kept, dim=1)
