"""List all checks by name.

A check takes a ``Case`` (a sampler and settings) and raises ``Broken`` with a readable message if the sampler breaks a
promise of ``runner.samplers.base``. Statistical checks also take a number of draws: more draws detect smaller mistakes.
"""

from collections.abc import Callable

from runner.check import counts, odd_input, partition, purity, shape, state
from runner.check.cases import Case

CHECKS: dict[str, Callable[[Case], None]] = {
    check.__name__: check
    for check in (
        shape.proposals_are_well_formed,
        purity.pure_in_seed_and_step,
        purity.steps_seeds_and_rows_differ,
        purity.same_bits_with_one_thread_and_two,
        purity.threads_may_change_after_construction,
        counts.counts_of_any_id_agree_with_the_proposal,
        counts.counts_of_targets_are_those_of_any_id,
        counts.every_class_can_be_drawn_where_that_is_said,
        state.refresh_without_work_changes_nothing,
        state.state_round_trip,
        odd_input.very_few_classes,
        odd_input.equal_and_zero_vectors,
        odd_input.vectors_that_are_not_numbers,
    )
}
STATISTICS: dict[str, Callable[[Case, int], None]] = {
    check.__name__: check
    for check in (
        counts.mean_number_of_candidates_is_the_sum_of_the_counts,
        counts.frequencies_match_the_stated_counts,
        partition.partition_estimate_is_unbiased,
        partition.counts_hold_in_a_normalised_layer,
    )
}
"""These check stated counts by drawing; they do not apply to a sampler whose draw is the batch itself."""
