"""Check the types, shapes and ranges of proposals.

Legend: B rows, N candidates of all rows.
"""

import numpy as np

from runner.check.cases import NUM_CLASSES, ROWS, Case, demand, rows_of
from runner.contracts import Everything, Proposal


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
    if isinstance(proposal, Everything):
        demand(
            proposal.num_classes == num_classes, f"Everything is for {proposal.num_classes} classes, not {num_classes}"
        )
        return
    ids_N, log_count_N = proposal.ids_N, proposal.log_expected_count_N
    demand(ids_N.dtype == np.int32, f"ids_N must be int32, not {ids_N.dtype}")
    demand(log_count_N.dtype == np.float32, f"log_expected_count_N must be float32, not {log_count_N.dtype}")
    demand(
        ids_N.shape == log_count_N.shape == (len(ids_N),),
        f"ids_N and log_expected_count_N must have the same length, but are {ids_N.shape} and {log_count_N.shape}",
    )
    demand(len(ids_N) > 0, "the proposal has no candidate")
    demand(
        ids_N.min() >= 0 and ids_N.max() < num_classes,
        f"ids must lie in [0, {num_classes - 1}], not in [{ids_N.min()}, {ids_N.max()}]",
    )
    demand(np.isfinite(log_count_N).all(), "a candidate's log expected count is not finite")
    if proposal.indptr_B1 is None:
        demand((np.diff(ids_N) >= 0).all(), "shared ids must ascend, because hits are found by bisection")
    else:
        _cuts_are_well_formed(proposal.indptr_B1, num_rows, len(ids_N), least=0 if may_skip_rows else 1)
    if proposal.distinct:
        for row, (ids, log_counts) in enumerate(rows_of(proposal, num_rows)):
            demand(len(np.unique(ids)) == len(ids), f"distinct is true, but row {row} has a class twice")
            largest = log_counts.max(initial=-np.inf)
            demand(
                largest <= 0,
                f"distinct is true, so log expected counts are at most 0, but row {row} has {largest:.6g}",
            )


def _cuts_are_well_formed(indptr_B1: np.ndarray, num_rows: int, length: int, *, least: int) -> None:
    demand(indptr_B1.dtype == np.int64, f"indptr_B1 must be int64, not {indptr_B1.dtype}")
    demand(indptr_B1.shape == (num_rows + 1,), f"indptr_B1 must be {(num_rows + 1,)}, not {indptr_B1.shape}")
    demand(
        indptr_B1[0] == 0 and indptr_B1[-1] == length,
        f"indptr_B1 must go from 0 to {length}, not from {indptr_B1[0]} to {indptr_B1[-1]}",
    )
    demand((np.diff(indptr_B1) >= 0).all(), "indptr_B1 must ascend")
    demand((np.diff(indptr_B1) >= least).all(), "a row has no candidate; set draws_for_the_batch if that may happen")
