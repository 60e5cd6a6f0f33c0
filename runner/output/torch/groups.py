"""Add up values by row of a matrix, in a fixed order and without asking the device how many rows there are.

Sizes that depend on numbers of a device would make the processor wait for it. So what would be a list of distinct rows
has a place for every row that there can be, and the places that are left over name the row *nobody*, one past the last.

Legend: N values, D columns, G places of groups, S sources, X bags.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Group N values by the row that each belongs to.

    ``order_N``: the values sorted by row, stably. ``rows_G``: the distinct rows, ascending, and then ``nobody``.
    ``offset_G1``: where each group begins and ends in that order.
    """

    order_N: Tensor
    rows_G: Tensor
    offset_G1: Tensor

    def sums(self, values_N: Tensor) -> Tensor:
        """Return the sum of each group's values, (G,)."""
        return segment_sums(values_N[self.order_N], self.offset_G1)

    def weighted_sums(self, sources_SD: Tensor, source_N: Tensor, weight_N: Tensor) -> Tensor:
        """Return the sum over each group's values of weight_N[n] sources_SD[source_N[n]], (G, D)."""
        order_N = self.order_N
        return bag_sums(sources_SD, source_N[order_N], weight_N[order_N], self.offset_G1)


def group_rows(rows_N: Tensor, nobody: int) -> Groups:
    """Group values by row, int64; those whose row is ``nobody`` come last.

    There are as many places as there can be distinct rows: one for every value, or for every row there is.
    """
    places = min(rows_N.shape[0], nobody + 1)
    sorted_N, order_N = torch.sort(rows_N, stable=True)
    first_N = torch.ones_like(sorted_N, dtype=torch.bool)
    first_N[1:] = sorted_N[1:] != sorted_N[:-1]
    place_N = torch.cumsum(first_N, 0) - 1
    rows_G = torch.full((places,), nobody, device=rows_N.device)
    rows_G.scatter_(0, place_N, sorted_N)  # the values of a group write the same row
    offset_G1 = torch.searchsorted(place_N, torch.arange(places + 1, device=rows_N.device))
    return Groups(order_N=order_N, rows_G=rows_G, offset_G1=offset_G1)


def bag_sums(sources_SD: Tensor, source_N: Tensor, weight_N: Tensor, offset_X1: Tensor) -> Tensor:
    """Return the sum of weight[n] sources[source[n]] over n from offset[x] to offset[x + 1] - 1, (X, D).

    No product of a weight and a source is stored, and sums are taken in order.
    """
    if len(source_N) == 0:
        return sources_SD.new_zeros((len(offset_X1) - 1, sources_SD.shape[1]))
    return embedding_bag(
        source_N, sources_SD, offset_X1, mode="sum", per_sample_weights=weight_N, include_last_offset=True
    )


def segment_sums(values_N: Tensor, offset_X1: Tensor) -> Tensor:
    """Return the sums of values[offset[x] : offset[x + 1]], (X,), taken in order."""
    if len(values_N) == 0:
        return values_N.new_zeros(len(offset_X1) - 1)
    return torch.segment_reduce(values_N, "sum", offsets=offset_X1, unsafe=True, initial=0)


def segment_tops(values_N: Tensor, offset_X1: Tensor) -> Tensor:
    """Return the largest of values[offset[x] : offset[x + 1]], (X,); -inf where there is none."""
    if len(values_N) == 0:
        return values_N.new_full((len(offset_X1) - 1,), -torch.inf)
    return torch.segment_reduce(values_N, "max", offsets=offset_X1, unsafe=True, initial=-torch.inf)
