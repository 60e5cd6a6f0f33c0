"""What a sampler proposes beside what the softmax would: the data of the LNS paper's Figure 3.

Legend: B rows, N classes, G groups of ranks.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.batches import Batch
from runner.samplers import Everything, Query

if TYPE_CHECKING:
    from runner.experiment import Network


def proposal_against_truth(network: "Network", batch: Batch, step: int) -> dict[str, Any]:
    """Mass of softmax and of proposal by rank of the logit, mean over the batch's rows.

    Classes other than a row's targets are ranked by its logits and cut at log-spaced ranks. ``rank_end`` (G,):
    one past the last rank of each group; ``truth`` (G,): softmax probability in the group, renormalised over
    non-targets; ``proposal`` (G,): share of the drawn candidates. Rows must be current.
    """
    hidden = network.encoder.encode(batch)
    query = Query(hidden_BD=hidden, target_indptr_B1=batch.target_indptr, targets_P=batch.targets)
    proposal = network.sampler.sample(query, step)
    layer = network.layer
    n = layer.num_classes
    ends = np.unique(np.geomspace(1, n, 40).astype(np.int64))
    truth, share = np.zeros(len(ends)), np.zeros(len(ends))
    logits = np.empty((1, n), dtype=np.float32)
    for row in range(batch.num_rows):
        layer.block_logits(hidden[row : row + 1], 0, n, logits)
        if network.loss.by_magnitude:
            np.abs(logits, out=logits)
        targets = batch.targets[batch.target_indptr[row] : batch.target_indptr[row + 1]]
        weight = np.exp((logits[0] - logits[0].max()).astype(np.float64))
        weight[targets] = 0
        order = np.argsort(-weight, kind="stable")
        group_of_rank = np.searchsorted(ends, np.arange(n), side="right").clip(max=len(ends) - 1)
        truth += np.bincount(group_of_rank, weights=weight[order] / max(weight.sum(), 1e-300), minlength=len(ends))
        if isinstance(proposal, Everything):
            ids = np.arange(n)
        elif proposal.indptr_B1 is None:
            ids = proposal.ids_N
        else:
            ids = proposal.ids_N[proposal.indptr_B1[row] : proposal.indptr_B1[row + 1]]
        ids = ids[~np.isin(ids, targets)]
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        share += np.bincount(group_of_rank[rank[ids]], minlength=len(ends)) / max(1, len(ids))
    return {
        "rank_end": ends.tolist(),
        "truth": (truth / batch.num_rows).tolist(),
        "proposal": (share / batch.num_rows).tolist(),
    }
