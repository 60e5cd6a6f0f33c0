"""Loss kernels over targets and candidates of each row: logits in, gradients out, in place.

Legend: B rows, P targets of all rows, N candidates of all rows. Logits come corrected by the caller; a masked
candidate has logit -inf and gets gradient 0. The loss of a row is averaged over its targets (uniform target
distribution); gradients carry the factor 1 / B of the batch mean. Returned: (B,) float32 losses.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.math import fast_exp
from runner.kernels.rows import FAST


@njit(cache=True, parallel=True, fastmath=FAST)
def softmax_loss(target_indptr, target_P, candidate_indptr, candidate_N):
    """-mean over targets of log softmax, over the row's active set {targets} + {candidates}."""
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    scale = np.float32(1.0 / rows)
    for row in prange(rows):
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = candidate_indptr[row], candidate_indptr[row + 1]
        if t0 == t1:  # no target: no loss, no gradient
            for i in range(c0, c1):
                candidate_N[i] = np.float32(0.0)
            continue
        top = np.float32(-np.inf)
        mean = np.float32(0.0)
        share = np.float32(1.0) / np.float32(t1 - t0)
        for i in range(t0, t1):
            top = max(top, target_P[i])
            mean += target_P[i] * share
        for i in range(c0, c1):
            top = max(top, candidate_N[i])
        total = np.float32(0.0)
        for i in range(t0, t1):
            target_P[i] = fast_exp(target_P[i] - top)
            total += target_P[i]
        for i in range(c0, c1):
            candidate_N[i] = fast_exp(candidate_N[i] - top)
            total += candidate_N[i]
        losses[row] = top + np.log(total) - mean
        inverse = scale / total
        for i in range(t0, t1):
            target_P[i] = target_P[i] * inverse - scale * share
        for i in range(c0, c1):
            candidate_N[i] *= inverse
    return losses


@njit(cache=True, parallel=True, fastmath=FAST)
def logistic_loss(target_indptr, target_P, candidate_indptr, candidate_N):
    """mean over targets of softplus(-logit) + sum over candidates of softplus(logit) (NCE's binary problems)."""
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    scale = np.float32(1.0 / rows)
    one = np.float32(1.0)
    for row in prange(rows):
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        loss = np.float32(0.0)
        share = one / np.float32(max(t1 - t0, 1))
        for i in range(t0, t1):
            x = target_P[i]
            small = fast_exp(-abs(x))
            loss += share * (max(-x, np.float32(0.0)) + np.log(one + small))
            sigmoid_of_minus = small / (one + small) if x > 0 else one / (one + small)
            target_P[i] = -scale * share * sigmoid_of_minus
        for i in range(candidate_indptr[row], candidate_indptr[row + 1]):
            x = candidate_N[i]
            if x == np.float32(-np.inf) or t0 == t1:
                candidate_N[i] = np.float32(0.0)
                continue
            small = fast_exp(-abs(x))
            loss += max(x, np.float32(0.0)) + np.log(one + small)
            sigmoid = one / (one + small) if x > 0 else small / (one + small)
            candidate_N[i] = scale * sigmoid
        losses[row] = loss
    return losses


@njit(cache=True, parallel=True, fastmath=FAST)
def streaming_log_sum_exp(logits_BC, top_B, total_B):
    """Fold a block of logits into running maxima and sums: log Z = top + log(total). Start: -inf and 0."""
    for row in prange(logits_BC.shape[0]):
        top = top_B[row]
        for i in range(logits_BC.shape[1]):
            top = max(top, logits_BC[row, i])
        total = np.float32(0.0)
        for i in range(logits_BC.shape[1]):
            total += fast_exp(logits_BC[row, i] - top)
        if total_B[row] > 0.0:
            total_B[row] *= fast_exp(top_B[row] - top)
        total_B[row] += total
        top_B[row] = top


@njit(cache=True, parallel=True, fastmath=FAST)
def softmax_block(logits_BC, log_partition_B, scale):
    """In place: scale * exp(logit - log partition)."""
    for row in prange(logits_BC.shape[0]):
        for i in range(logits_BC.shape[1]):
            logits_BC[row, i] = scale * fast_exp(logits_BC[row, i] - log_partition_B[row])


@njit(cache=True, parallel=True)
def correct_shared(logits_BM, log_count_M, ids_M, target_indptr, targets_P):
    """In place, for shared ascending ids: subtract log counts and mask accidental hits with -inf."""
    for row in prange(logits_BM.shape[0]):
        for i in range(logits_BM.shape[1]):
            logits_BM[row, i] -= log_count_M[i]
        for t in range(target_indptr[row], target_indptr[row + 1]):
            i = np.searchsorted(ids_M, targets_P[t])
            while i < ids_M.shape[0] and ids_M[i] == targets_P[t]:
                logits_BM[row, i] = np.float32(-np.inf)
                i += 1


@njit(cache=True, parallel=True)
def correct_per_row(logits_N, log_count_N, ids_N, indptr, target_indptr, targets_P):
    """In place, for each row's own candidates: subtract log counts and mask accidental hits with -inf."""
    for row in prange(indptr.shape[0] - 1):
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        for i in range(indptr[row], indptr[row + 1]):
            logits_N[i] -= log_count_N[i]
            for t in range(t0, t1):
                if targets_P[t] == ids_N[i]:
                    logits_N[i] = np.float32(-np.inf)
