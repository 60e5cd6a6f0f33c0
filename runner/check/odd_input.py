"""Check class matrices and batches that are legal but odd: few classes, equal vectors, vectors that are not finite.

Legend: B rows, D hidden size.
"""

import re

import numpy as np

from runner.check.cases import (
    DIM,
    NOBODY,
    NUM_CLASSES,
    ROWS,
    Case,
    demand,
    random_query,
)  # fmt: skip
from runner.check.shape import well_formed
from runner.errors import RunnerError

_NOT_FINITE = r"[^\n]*not (a )?finite number[^\n]*; try a smaller optimizer\.lr"


def very_few_classes(case: Case) -> None:
    """Check one, two and three classes, with more draws than classes and every target among them."""
    for num_classes in (1, 2, 3):
        query = random_query(4, DIM, num_classes)
        sampler = case.build(case.layer(num_classes, norm=1.0))
        everyone = np.arange(num_classes, dtype=np.int32)
        for step in range(1, 5):
            well_formed(sampler.sample(query, step), 4, num_classes, may_skip_rows=case.config.draws_for_the_batch)
            stated = sampler.log_expected_count(query, everyone, step)
            demand(
                stated.shape == (4, num_classes),
                f"log_expected_count of {num_classes} classes must have shape {(4, num_classes)}, not {stated.shape}",
            )
            sampler.refresh(query, step, NOBODY)


def equal_and_zero_vectors(case: Case) -> None:
    """Check class vectors that are all equal or all zero, and a batch of zero hidden states."""
    for what in ("equal class vectors", "zero class vectors", "zero hidden states"):
        layer, query = case.layer(), random_query()
        if what == "equal class vectors":
            layer.table.write(None, vectors=layer.rows()[:1])
        elif what == "zero class vectors":
            layer.table.write(None, vectors=np.zeros_like(layer.rows()))
        else:
            query.hidden_BD[:] = 0
        sampler = case.build(layer)
        for step in (1, 2):
            well_formed(sampler.sample(query, step), ROWS, NUM_CLASSES, may_skip_rows=case.config.draws_for_the_batch)
            sampler.refresh(query, step, NOBODY)


def vectors_that_are_not_numbers(case: Case) -> None:
    """Check that NaN and infinite class vectors give a one-line error or a well-formed proposal.

    A sampler whose config says ``refuses_nan`` must raise the error.
    """
    layer, query = case.layer(), random_query()
    layer.table.write(np.array([7, 11]), vectors=np.array([[np.nan], [np.inf]], dtype=np.float32))
    try:
        proposal = case.build(layer).sample(query, 1)
    except RunnerError as error:
        demand(
            re.fullmatch(_NOT_FINITE, str(error)) is not None,
            f"the error must be one line like '... is not a finite number; try a smaller optimizer.lr', not: {error}",
        )
        return
    demand(not case.config.refuses_nan, "refuses_nan is true, but class vectors that are not finite raised no error")
    well_formed(proposal, ROWS, NUM_CLASSES, may_skip_rows=case.config.draws_for_the_batch)
