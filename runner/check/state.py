"""Check that tables are saved and restored completely, and that a refresh says whether it did anything.

Legend: U distinct classes.
"""

import numpy as np

from runner.check.cases import NOBODY, NUM_CLASSES, Case, demand, move_rows, random_query, same


def refresh_without_work_changes_nothing(case: Case) -> None:
    """Check that a refresh which says that no work was due leaves the draws from the same weights unchanged."""
    layer, query = case.layer(norm=0.05), random_query()
    sampler = case.build(layer)
    for step in range(1, 9):
        touched_U = move_rows(layer, [step, 40 + step, 80 + step % 3], step, seed=step)
        before = sampler.sample(query, step + 1)
        if not sampler.refresh(query, step, touched_U):
            demand(
                same(before, sampler.sample(query, step + 1)),
                f"refresh at step {step} returned False, but it changed the draws",
            )


def state_round_trip(case: Case) -> None:
    """Check that a new sampler with the saved tables draws, refreshes and counts like the one that saved them."""
    layer, query = case.layer(norm=0.05), random_query()
    sampler = case.build(layer)
    for step in range(1, 5):
        sampler.refresh(query, step, move_rows(layer, [step, 50 + step], step, seed=step))
    # The tables are now behind the weights.
    sampler.refresh(query, 5, move_rows(layer, list(range(0, NUM_CLASSES, 2)), 5, seed=99))
    state = {key: value.copy() for key, value in sampler.state_dict().items()}
    other = case.build(layer)
    if state:
        fresh = other.state_dict()
        demand(
            set(fresh) == set(state), f"a new sampler's state_dict has {sorted(fresh)}, a used one's {sorted(state)}"
        )
        demand(
            any(not np.array_equal(fresh[key], value) for key, value in state.items()),
            "after five steps that moved classes the state equals a new sampler's: does it follow the weights?",
        )
    other.load_state_dict(state)
    restored = other.state_dict()
    for key, value in state.items():
        demand(np.array_equal(restored[key], value), f"state_dict()['{key}'] is not what load_state_dict got")
    for step in range(6, 12):
        demand(
            same(other.sample(query, step), sampler.sample(query, step)),
            f"step {step}: the restored sampler gives other draws; state_dict lacks something that matters",
        )
        theirs, ours = other.refresh(query, step, NOBODY), sampler.refresh(query, step, NOBODY)
        demand(theirs == ours, f"step {step}: the restored sampler's refresh returned {theirs}, the used one's {ours}")
        demand(other.statistics == sampler.statistics, f"step {step}: the restored sampler has other statistics")
