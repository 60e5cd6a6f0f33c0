"""Choose what of a batch concerns the classes that are held here.

Legend: B rows of a batch, P targets of the batch, N candidates.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from runner.contracts import Proposal, Query
from runner.output.part import Part


@dataclass(frozen=True, kw_only=True)
class Held:
    """Name the classes lo to hi - 1 of ``num_classes``; row r of a table of theirs is class lo + r."""

    lo: int
    hi: int
    num_classes: int

    @property
    def is_all(self) -> bool:
        return self.hi - self.lo == self.num_classes

    def among(self, ids: Any) -> Any:
        """Tell which ids, an array or a tensor, are of held classes."""
        return (ids >= self.lo) & (ids < self.hi)

    def rows(self, classes_U: Any) -> Any:
        """Return the rows of those of these classes, an array or a tensor, that are held."""
        return classes_U[self.among(classes_U)] - self.lo

    def targets(self, query: Query) -> Query:
        """Return the query with only the targets that are held, as rows of the table."""
        if self.is_all:
            return query
        here_P = self.among(query.targets_P)
        return replace(
            query,
            targets_P=query.targets_P[here_P] - np.int32(self.lo),
            target_indptr_B1=indptr_of_kept(query.target_indptr_B1, here_P),
        )

    def of_targets(self, query: Query, values_P: np.ndarray) -> np.ndarray:
        """Return the numbers of those targets of the whole query that are held."""
        return values_P if self.is_all else values_P[self.among(query.targets_P)]

    def candidates(self, proposal: Proposal) -> Proposal:
        """Return the proposal with only the candidates that are held, as rows of the table."""
        if self.is_all:
            return proposal
        here_N = self.among(proposal.ids_N)
        indptr_B1 = proposal.indptr_B1
        return replace(
            proposal,
            ids_N=proposal.ids_N[here_N] - np.int32(self.lo),
            log_expected_count_N=proposal.log_expected_count_N[here_N],
            indptr_B1=None if indptr_B1 is None else indptr_of_kept(indptr_B1, here_N),
        )

    def classes(self, rows: np.ndarray) -> np.ndarray:
        """Return the class ids of rows of the table, int32."""
        return rows if self.lo == 0 else rows + np.int32(self.lo)

    # ------------------------------------------------------------ state

    def parts(self, state: Mapping[str, np.ndarray], by_row: Collection[str]) -> dict[str, Any]:
        """Return a table's state; arrays of names ``by_row`` are a ``Part`` if others hold more rows."""
        if self.is_all:
            return dict(state)
        return {
            name: Part(rows=array, lo=self.lo, num_rows=self.num_classes) if name in by_row else array
            for name, array in state.items()
        }

    def of_parts(self, state: Mapping[str, Any], by_row: Collection[str]) -> Mapping[str, np.ndarray]:
        """Return a table's state from what ``parts`` returned, here or where other rows or all were held."""
        if self.is_all:
            return state
        held: dict[str, np.ndarray] = {}
        for name, value in state.items():
            if isinstance(value, Part):
                held[name] = value.rows
            else:
                held[name] = value[self.lo : self.hi] if name in by_row else value
        return held


def indptr_of_kept(indptr_B1: np.ndarray, kept_X: np.ndarray) -> np.ndarray:
    """Return where each row's entries begin and end once only the kept ones are left."""
    before_X1 = np.concatenate([[0], np.cumsum(kept_X)])
    return np.asarray(before_X1[indptr_B1], dtype=np.int64)
