"""Take many training steps of a network with one output in compiled code, single examples or mini-batches.

The network is linear, and its weights are part of a *query*: with squared loss the stored vector of an example is
[x, y] and the query [theta, -1], so that query . vector is the residual. With logistic loss the vector is s x (s = +-1
is the class) and the query -theta, so that query . vector is minus the margin. Either way the loss is a function of
z = query . vector, and its gradient by the query's free coordinates is slope(z) * vector.

Legend: X examples, D size of vectors and query, F free coordinates of the query, B examples of a step, S steps,
M examples of all these steps.
"""

import numpy as np
from numba import njit

from runner.lgd.buckets import draw_examples
from runner.lgd.projections import dot

SQUARED, LOGISTIC = range(2)  # losses
SGD, ADAGRAD, ADAM = range(3)  # optimizers
# Inlined functions are compiled with the flags of their caller.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
_AT_ONCE = 256  # draws that are made before the first of their steps is taken


@njit(cache=True, inline="always", fastmath=_FAST)
def loss_and_slope(loss, z):
    """Return the loss and its derivative at z, as float64: z^2, or log(1 + exp(z))."""
    z = np.float64(z)
    if loss == SQUARED:
        return z * z, 2.0 * z
    small = np.exp(-abs(z))
    return max(z, 0.0) + np.log1p(small), (1.0 if z >= 0 else small) / (1.0 + small)


@njit(cache=True, inline="always", fastmath=_FAST)
def _descend(query, vector, factor, free):
    for k in range(free):
        query[k] -= factor * vector[k]


@njit(cache=True, inline="always", fastmath=_FAST)
def _add(total, vector, factor, free):
    for k in range(free):
        total[k] += factor * vector[k]


@njit(cache=True, inline="always", fastmath=_FAST)
def _adagrad(query, gradient, second, lr, epsilon, free):
    for k in range(free):
        second[k] += gradient[k] * gradient[k]
        query[k] -= lr * gradient[k] / (np.sqrt(second[k]) + epsilon)


@njit(cache=True, inline="always", fastmath=_FAST)
def _adam(query, gradient, first, second, rate, root, beta1, beta2, epsilon, free):
    for k in range(free):
        first[k] = beta1 * first[k] + (np.float32(1) - beta1) * gradient[k]
        second[k] = beta2 * second[k] + (np.float32(1) - beta2) * gradient[k] * gradient[k]
        query[k] -= rate * first[k] / (np.sqrt(second[k]) * root + epsilon)


@njit(cache=True, fastmath=_FAST)
def _take_single_sgd(total, loss, vectors, query, free, rows, weights, slopes, lr):
    """Take one step of SGD on each example of ``rows`` in turn; the rest is as in ``_take_batches``."""
    for m in range(rows.shape[0]):
        vector = vectors[rows[m]]
        value, slope = loss_and_slope(loss, dot(query, vector))
        slopes[m] = slope
        weight = weights[m]
        if weight > 0:  # 0 times an infinite loss would not be a number
            _descend(query, vector, np.float32(lr * weight * slope), free)
            value *= weight
            total += value
            if not np.isfinite(value):
                return total, m + 1
    return total, rows.shape[0]


@njit(cache=True, fastmath=_FAST)
def _take_batches(
    total, loss, vectors, query, free, rows, begin, weights, slopes, optimizer, lr, constants, first, second, first_step
):
    """Take a step on each batch rows[begin[s] : begin[s + 1]] in turn; return total + losses and the steps taken.

    ``weights`` and ``slopes`` (M,) float64: the weights of the examples, and the slopes of their losses, which are set.
    The last step taken is the first one whose loss is not finite.
    """
    gradient = np.empty(free, dtype=np.float32)
    for s in range(begin.shape[0] - 1):
        here = 0.0
        gradient[:] = np.float32(0.0)
        for m in range(begin[s], begin[s + 1]):
            vector = vectors[rows[m]]
            value, slope = loss_and_slope(loss, dot(query, vector))
            slopes[m] = slope
            if weights[m] > 0:
                here += weights[m] * value
                _add(gradient, vector, np.float32(weights[m] * slope), free)
        if optimizer == SGD:
            _descend(query, gradient, np.float32(lr), free)
        elif optimizer == ADAGRAD:
            _adagrad(query, gradient, second, np.float32(lr), np.float32(constants[2]), free)
        else:
            beta1, beta2 = constants[0], constants[1]
            rate = np.float32(lr / (1.0 - beta1 ** (first_step + s)))
            root = np.float32(1.0 / np.sqrt(1.0 - beta2 ** (first_step + s)))
            parts = (np.float32(beta1), np.float32(beta2), np.float32(constants[2]))
            _adam(query, gradient, first, second, rate, root, parts[0], parts[1], parts[2], free)
        total += here
        if not np.isfinite(here):
            return total, s + 1
    return total, begin.shape[0] - 1


@njit(cache=True, fastmath=_FAST)
def take_given_steps(
    total,
    are_single,
    loss,
    vectors,
    query,
    free,
    rows,
    begin,
    counts,
    slopes,
    first_step,
    optimizer,
    lr,
    constants,
    first,
    second,
):
    """Take steps on draws that are given; return ``total`` plus their losses and how many were taken.

    ``are_single``: batches have one example, if they are whole.

    ``vectors`` (X, D) and ``query`` (D,) float32, whose first ``free`` coordinates move. Step s has the examples
    ``rows[begin[s] : begin[s + 1]]``, expected ``counts`` (M,) times in a draw; if ``counts`` is empty, they weigh the
    same. ``slopes`` (M,) float64 is set to the slopes of their losses before each step. ``constants``: beta1, beta2 and
    epsilon of the optimizer; ``first``, ``second`` (F,): its moments. The last step taken is the first one whose loss
    is not finite.
    """
    num_examples, steps = vectors.shape[0], begin.shape[0] - 1
    weights = np.empty(rows.shape[0], dtype=np.float64)
    for s in range(steps):
        for m in range(begin[s], begin[s + 1]):
            if counts.shape[0] == 0:
                weights[m] = 1.0 / (begin[s + 1] - begin[s])
            else:
                weights[m] = np.float32(1.0 / (counts[m] * num_examples))
    if optimizer == SGD and are_single:
        return _take_single_sgd(total, loss, vectors, query, free, rows, weights, slopes, lr)
    return _take_batches(
        total, loss, vectors, query, free, rows, begin, weights, slopes, optimizer, lr, constants, first, second,
        first_step,
    )  # fmt: skip


@njit(cache=True, fastmath=_FAST)
def take_hashed_steps(
    total, loss, vectors, query, free, prefix, buckets, last_query, query_every, batch_size, first_step, steps,
    optimizer, lr, constants, first, second,
):  # fmt: skip
    """Take steps on draws from hash tables; return ``total`` plus their losses and how many were taken.

    ``last_query`` (D,): the query that draws use, which becomes ``query`` after every ``query_every``-th step. The rest
    is as in ``take_given_steps`` and ``draw_examples``.
    """
    taken = 0
    num_examples = vectors.shape[0]
    most = max(1, _AT_ONCE // batch_size)
    begin = np.arange(most + 1) * batch_size
    rows = np.empty(most * batch_size, dtype=np.int64)
    counts, weights, slopes = np.empty(rows.shape[0]), np.empty(rows.shape[0]), np.empty(rows.shape[0])
    while taken < steps:
        step = first_step + taken
        alike = min(most, steps - taken, query_every - (step - 1) % query_every)
        size = alike * batch_size
        draw_examples(prefix, step, batch_size, vectors, last_query, buckets, rows[:size], counts[:size])
        for m in range(size):
            weights[m] = np.float32(1.0 / (counts[m] * batch_size * num_examples))
        if optimizer == SGD and batch_size == 1:
            total, done = _take_single_sgd(total, loss, vectors, query, free, rows[:size], weights, slopes, lr)
        else:
            total, done = _take_batches(
                total, loss, vectors, query, free, rows, begin[: alike + 1], weights, slopes, optimizer, lr, constants,
                first, second, step,
            )  # fmt: skip
        taken += done
        if not np.isfinite(total):
            return total, taken
        if (step + alike - 1) % query_every == 0:
            for k in range(query.shape[0]):
                last_query[k] = query[k]
    return total, taken
