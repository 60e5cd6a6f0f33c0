"""Compare now and then what ranks drew and hold: draws that differ would silently have counts that are no draw's."""

import zlib
from collections.abc import Sequence

import numpy as np

from runner.contracts import Everything, Proposal, Query, as_array
from runner.errors import RunnerError
from runner.output.across import Across
from runner.output.gradients import Gradient
from runner.output.layer import RowGradient

_OFTEN_UNTIL, _THEN_EVERY = 16, 128  # steps


def check_same_draw(across: Across, query: Query, proposal: Proposal | Everything, step: int) -> None:
    """Raise RunnerError if a rank has other hidden states or another proposal than rank 0, in some of the steps."""
    if not _compares(across, step):
        return
    mine = {"hidden states": _sum_of(query.hidden_BD), "targets": _sum_of(query.targets_P)}
    if isinstance(proposal, Proposal):
        mine |= {"candidates": _sum_of(proposal.ids_N), "counts": _sum_of(proposal.log_expected_count_N)}
    _check_same(across, mine, step)


def check_same_weights(across: Across, gradients: Sequence[Gradient], dense: Sequence[np.ndarray], step: int) -> None:
    """Raise RunnerError if a rank has other weights of an encoder than rank 0, in some of the steps.

    They are the rows that ``gradients`` are of, and those weights that are in no table (``Encoder.dense``).
    """
    if _compares(across, step):
        parts = [one.table.rows(one.rows_U) for one in gradients if isinstance(one, RowGradient)]
        _check_same(across, {f"encoder weights ({n})": _sum_of(part) for n, part in enumerate([*parts, *dense])}, step)


def _compares(across: Across, step: int) -> bool:
    return across.size > 1 and (step <= _OFTEN_UNTIL or step % _THEN_EVERY == 0)


def _check_same(across: Across, mine: dict[str, int], step: int) -> None:
    """Raise RunnerError unless all ranks bring the same numbers, by what they are of."""
    all_HX = across.gather(np.array([*mine.values()], dtype=np.int64))
    for rank, theirs_X in enumerate(all_HX):
        differ = [name for name, same in zip(mine, theirs_X == all_HX[0], strict=True) if not same]
        if differ:
            raise RunnerError(
                f"at step {step:,} rank {rank} has other {differ[0]} than rank 0, so that they would train different"
                " models; let all ranks run on processors of one kind with the same libraries"
            )


def _sum_of(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(as_array(values)).view(np.uint8).data)
