"""Split the rows of a table into training and test rows at random, by a rule that is the same on every machine.

Rule for rows. NumPy's generator of the seed (PCG64) permutes the row numbers. The first round(test_share * R) of them,
but at least one, are the test rows. Rule for groups, such as the images of one patient. The generator permutes the
distinct groups, which are in ascending order before. The first round(test_share * groups) of them, but at least one,
are test groups, and all their rows are test rows. Both parts keep the order of the file. Rows for validation are held
out of the training rows by ``hold_out``, which does not depend on any seed.

Legend: R rows of the table.
"""

import numpy as np

from runner.errors import DataError


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


def hold_out(num_rows: int, valid_share: float, *part: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training rows to train on and those to validate on, both ascending int64, the same for every seed.

    ``part``: numbers that tell this draw from others among as many rows. Raises DataError if one side would be empty.
    """
    from runner import rng  # imported here because it compiles or loads machine code

    num_valid = round(valid_share * num_rows)
    if not 0 < num_valid < num_rows:
        raise DataError(
            f"{num_rows} training rows cannot be split: dataset.valid_share={valid_share:g} holds {num_valid} of them"
            " out for validation"
        )
    order = rng.generator(0, rng.EVALUATE, *part).permutation(num_rows)
    return np.sort(order[num_valid:]), np.sort(order[:num_valid])


def _chosen(count: int, test_share: float, seed: int) -> np.ndarray:
    """Return the numbers of what goes to the test side."""
    return np.random.default_rng(seed).permutation(count)[: max(1, round(test_share * count))]
