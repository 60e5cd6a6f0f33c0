"""Provide the TensorFlow baseline: full softmax as one graph, with TensorFlow's fused Adam.

A user of TensorFlow could have this without the project. TensorFlow is no dependency: where it is not installed, the
report says that the method was skipped.
Legend: B rows of a batch, D hidden size, N classes.
"""

import importlib.util
import os
from typing import Any

import numpy as np

from runner.bench.contenders import Contender, Drawn, Listed
from runner.bench.workload import Workload
from runner.contracts import Query
from runner.machine.clock import StageClock

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


def is_installed() -> bool:
    """Return True if TensorFlow is installed. This does not import it, as the import is slow."""
    return importlib.util.find_spec("tensorflow") is not None


def _tensorflow() -> Any:
    """Import TensorFlow and give it as many threads as torch has."""
    import torch

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow

    threads = torch.get_num_threads()
    config = tensorflow.config.threading
    if config.get_intra_op_parallelism_threads() != threads:
        config.set_intra_op_parallelism_threads(threads)
        config.set_inter_op_parallelism_threads(threads)
    return tensorflow


class TensorFlowFull(Contender):
    """Full softmax with every logit in memory. The whole step is one graph, so all its time counts as update."""

    name = "tensorflow_full"
    everything = True
    whole_matrix = True
    stages_compare = False
    rows_policy = "dense"

    def __init__(self, workload: Workload) -> None:
        tf = _tensorflow()
        self.num_classes = workload.num_classes
        self.weight = tf.Variable(workload.table.rows())
        self.bias = tf.Variable(tf.zeros(self.num_classes))
        moments = {v.ref(): [tf.Variable(tf.zeros_like(v)) for _ in range(2)] for v in (self.weight, self.bias)}
        lr = workload.table.config.lr

        def step(hidden_BD: Any, target_B: Any, power_1: Any, power_2: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(hidden_BD)
                logits_BN = tf.matmul(hidden_BD, self.weight, transpose_b=True) + self.bias
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target_B, logits_BN))
            *gradients, grad_hidden_BD = tape.gradient(loss, [self.weight, self.bias, hidden_BD])
            for variable, gradient in zip((self.weight, self.bias), gradients, strict=True):
                first, second = moments[variable.ref()]
                tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle, m=first.handle, v=second.handle, beta1_power=power_1, beta2_power=power_2,
                    lr=lr, beta1=_BETA_1, beta2=_BETA_2, epsilon=_EPSILON, grad=gradient,
                )  # fmt: skip
            return loss, grad_hidden_BD

        self._step = tf.function(step)
        self._constant = tf.constant

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        constant = self._constant
        with clock.stage("update"):
            powers = (constant(np.float32(beta**step)) for beta in (_BETA_1, _BETA_2))
            loss, grad_hidden_BD = self._step(constant(query.hidden_BD), constant(query.targets_P), *powers)
            loss.numpy(), grad_hidden_BD.numpy()  # waits until the graph has run to its end
        return Listed(per_row=float(self.num_classes), ids_N=None)
