"""Compare a proposal with the softmax by rank of the model's logit, as in Figure 3 of the LNS paper."""

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.contracts import Batch, Query
from runner.measures.truth import logits_of, query_of
from runner.output.layer import Layer
from runner.samplers import Sampler

if TYPE_CHECKING:
    from runner.network import ClassNetwork


def proposal_against_truth(
    sampler: Sampler, layer: Layer, query: Query, step: int, *, by_magnitude: bool = False
) -> dict[str, Any]:
    """Return the mass of softmax and proposal by rank of the logit, as means over the rows (LNS paper, Figure 3).

    The classes other than a row's targets are ranked by its logits and cut into G groups at log-spaced ranks. The
    result holds three lists of length G. ``rank_end``: one past the last rank of each group; ``truth``: the softmax
    probability of the group, renormalised over non-targets; ``proposal``: the group's share of the drawn candidates.
    ``by_magnitude`` ranks and weighs by the logits' absolute values. Rows must be current.
    """
    with layer.table.frozen():
        proposal = sampler.sample(query, step)
    n = layer.num_classes
    ends = np.unique(np.geomspace(1, n, 40).astype(np.int64))
    truth, share = np.zeros(len(ends)), np.zeros(len(ends))
    for row in range(query.num_rows):
        logits = logits_of(layer, query.hidden_BD[row : row + 1], 0, n)[0]
        if by_magnitude:
            np.abs(logits, out=logits)
        targets = query.targets_of(row)
        weight = np.exp((logits - logits.max()).astype(np.float64))
        weight[targets] = 0
        order = np.argsort(-weight, kind="stable")
        group_of_rank = np.searchsorted(ends, np.arange(n), side="right").clip(max=len(ends) - 1)
        truth += np.bincount(group_of_rank, weights=weight[order] / max(weight.sum(), 1e-300), minlength=len(ends))
        ids = proposal.row(row).ids_M
        ids = ids[~np.isin(ids, targets)]
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        share += np.bincount(group_of_rank[rank[ids]], minlength=len(ends)) / max(1, len(ids))
    return {
        "rank_end": ends.tolist(),
        "truth": (truth / query.num_rows).tolist(),
        "proposal": (share / query.num_rows).tolist(),
    }


def proposal_of(network: "ClassNetwork", batch: Batch, step: int) -> dict[str, Any]:
    """Return ``proposal_against_truth`` for a network's own sampler on a batch."""
    head, query = network.head, query_of(network, batch)
    return proposal_against_truth(head.sampler, head.layer, query, step, by_magnitude=head.loss.by_magnitude)
