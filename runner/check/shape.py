"""Check the types, shapes and ranges of proposals.

Legend: B rows.
"""

import numpy as np

from runner.check.cases import NUM_CLASSES, ROWS, Broken, Case, demand
from runner.contracts import Everything, Proposal
from runner.door.arrays import Wrong
from runner.door.samplers import check_proposal


def proposals_are_well_formed(case: Case) -> None:
    """Check what every reader of a proposal relies on: types, shapes, range, order, and ``distinct`` if it is true."""
    sampler, _, query = case.on_the_usual()
    for step in (1, 2, 900):
        well_formed(sampler.sample(query, step), ROWS, NUM_CLASSES, may_skip_rows=case.config.draws_for_the_batch)


def well_formed(
    proposal: Proposal | Everything, num_rows: int, num_classes: int, *, may_skip_rows: bool = False
) -> None:
    """Raise Broken unless the proposal of a batch is one that any loss can take.

    ``may_skip_rows``: rows may have no candidate of their own, as long as some row has one.
    """
    try:
        check_proposal(proposal, num_rows, num_classes)
    except Wrong as wrong:
        raise Broken(str(wrong)) from None
    if isinstance(proposal, Everything):
        return
    if proposal.indptr_B1 is not None and not may_skip_rows:
        demand((np.diff(proposal.indptr_B1) > 0).all(), "a row has no candidate; set draws_for_the_batch if it may")
    if proposal.distinct:
        largest = proposal.log_expected_count_N.max()
        demand(largest <= 0, f"distinct is true, so log expected counts are at most 0, but one is {largest:.6g}")
