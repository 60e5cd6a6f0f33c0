"""Split the rows of a table into training and test rows at random, by a rule that is the same on every machine.

Rule for rows. NumPy's generator of the seed (PCG64) permutes the row numbers. The first round(test_share * R) of them,
but at least one, are the test rows. Rule for groups, such as the images of one patient. The generator permutes the
distinct groups, which are in ascending order before. The first round(test_share * groups) of them, but at least one,
are test groups, and all their rows are test rows. Both parts keep the order of the file.

Legend: R rows of the table.
"""

import numpy as np


def split_rows(num_rows: int, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the training rows and of the test rows, both ascending, int64."""
    is_test_R = np.zeros(num_rows, bool)
    is_test_R[_chosen(num_rows, test_share, seed)] = True
    return np.flatnonzero(~is_test_R), np.flatnonzero(is_test_R)


def split_groups(group_R: np.ndarray, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the training rows and of the test rows, both ascending; no group is on both sides."""
    groups = np.unique(group_R)
    is_test_R = np.isin(group_R, groups[_chosen(len(groups), test_share, seed)])
    return np.flatnonzero(~is_test_R), np.flatnonzero(is_test_R)


def _chosen(count: int, test_share: float, seed: int) -> np.ndarray:
    """Return the numbers of what goes to the test side."""
    return np.random.default_rng(seed).permutation(count)[: max(1, round(test_share * count))]
