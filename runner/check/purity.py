"""Check that draws depend on seed, step and row alone, not on earlier draws or on the number of threads.

Legend: B rows, D hidden size, P targets of the batch.
"""

import numba
import numpy as np

from runner.check.cases import Case, demand, random_query, rows_of, same
from runner.contracts import Everything, Proposal, Query


def pure_in_seed_and_step(case: Case) -> None:
    """Check that the same seed and step give the same draws, from a used sampler and from a new one."""
    sampler, layer, query = case.on_the_usual()
    first = sampler.sample(query, 5)
    sampler.sample(query, 6)
    demand(same(first, sampler.sample(query, 5)), "step 5 gives other draws once step 6 has been drawn")
    demand(same(first, case.build(layer).sample(query, 5)), "a new sampler with the same seed gives other draws")


def steps_seeds_and_rows_differ(case: Case) -> None:
    """Check that draws vary with step, seed and row if ``by_chance`` says so, and with none of them otherwise."""
    sampler, layer, query = case.on_the_usual()
    first, next_step = sampler.sample(query, 5), sampler.sample(query, 6)
    other_seed = case.build(layer, seed=4).sample(query, 5)
    if not case.config.by_chance:
        demand(same(first, next_step), "by_chance is false, but another step gives other draws")
        demand(same(first, other_seed), "by_chance is false, but another seed gives other draws")
        return
    demand(not same(first, next_step), "steps 5 and 6 give the same draws; set by_chance=False if nothing is drawn")
    demand(not same(first, other_seed), "seeds 3 and 4 give the same draws; set by_chance=False if nothing is drawn")
    if case.config.draws_for_the_batch:  # then equal rows may have equal candidates
        return
    twins = Query(
        hidden_BD=np.repeat(query.hidden_BD[:1], 2, axis=0),
        target_indptr_B1=np.array([0, 1, 2], dtype=np.int64),
        targets_P=np.repeat(query.targets_P[:1], 2),
    )
    proposal = sampler.sample(twins, 5)
    if isinstance(proposal, Proposal) and not proposal.is_shared:
        (a, _), (b, _) = rows_of(proposal, 2)
        demand(
            not np.array_equal(a, b), "two rows with the same hidden state get the same draws: put the row into the key"
        )


def same_bits_with_one_thread_and_two(case: Case) -> None:
    """Check that a sampler built and used with one thread gives the same bits as one with two threads."""

    def proposals(threads: int) -> list[Proposal | Everything]:
        numba.set_num_threads(threads)
        sampler = case.build(case.layer())
        return [sampler.sample(random_query(), step) for step in range(1, 6)]

    before = numba.get_num_threads()
    try:
        pairs = zip(proposals(1), proposals(_two_threads()), strict=True)
        demand(all(same(a, b) for a, b in pairs), "one thread and two threads give different bits")
    finally:
        numba.set_num_threads(before)


def threads_may_change_after_construction(case: Case) -> None:
    """Check that a sampler built with one thread gives the same bits with two threads."""
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        sampler, _, query = case.on_the_usual()
        one = sampler.sample(query, 4)
        numba.set_num_threads(_two_threads())
        demand(same(one, sampler.sample(query, 4)), "a sampler built with one thread gives other draws with two")
    finally:
        numba.set_num_threads(before)


def _two_threads() -> int:
    """Return 2. It needs NUMBA_NUM_THREADS of at least 2, which ``runner.check`` and tests set."""
    demand(numba.config.NUMBA_NUM_THREADS >= 2, "this check needs two threads; set NUMBA_NUM_THREADS=2")
    return 2
