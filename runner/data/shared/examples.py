"""Count training examples that have many targets each.

Legend: P targets, N classes.
"""

import numpy as np


def examples_with_class(class_P: np.ndarray, example_P: np.ndarray, num_classes: int) -> np.ndarray:
    """Return how many examples have each class among their targets, (N,) int64, however often one has it.

    ``class_P``, ``example_P``: class and example of every target.
    """
    distinct = np.unique(example_P.astype(np.int64) * num_classes + class_P)
    return np.bincount(distinct % num_classes, minlength=num_classes)
