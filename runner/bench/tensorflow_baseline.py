"""Provide TensorFlow's baselines: full softmax with its fused Adam, and ``sampled_softmax_loss`` with a sparse Adam.

A user of TensorFlow could have these without the project. TensorFlow is no dependency: where it is not installed, the
report says that the methods were skipped. Each step is one graph, so all its time counts as update.
Legend: B rows of a batch, D hidden size, N classes, U distinct class rows of a step.
"""

import importlib.util
import os
from abc import abstractmethod
from typing import Any

import numpy as np

from runner.bench.contenders import Contender, Drawn, Listed
from runner.bench.methods import NUM_SAMPLES
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


class _TensorFlowMethod(Contender):
    stages_compare = False

    def __init__(self, workload: Workload) -> None:
        tf = self.tf = _tensorflow()
        self.num_classes = workload.num_classes
        self.lr = workload.table.config.lr
        self.weight = tf.Variable(workload.table.rows())
        self.bias = tf.Variable(tf.zeros(self.num_classes))
        self.moments = {v.ref(): [tf.Variable(tf.zeros_like(v)) for _ in range(2)] for v in (self.weight, self.bias)}
        self._graph = tf.function(self._step)

    @abstractmethod
    def _step(self, hidden_BD: Any, target_B: Any, power_1: Any, power_2: Any) -> Any:
        """Take one step; return tensors that are ready when it has ended. ``power_1``: Adam's beta_1 ** step."""

    def _run(self, query: Query, step: int, clock: StageClock) -> list[np.ndarray]:
        constant = self.tf.constant
        with clock.stage("update"):
            powers = (constant(np.float32(beta**step)) for beta in (_BETA_1, _BETA_2))
            results = self._graph(constant(query.hidden_BD), constant(query.targets_P), *powers)
            return [result.numpy() for result in results]  # waits until the graph has run to its end


class TensorFlowFull(_TensorFlowMethod):
    """Full softmax with every logit in memory."""

    name = "tensorflow_full"
    everything = True
    whole_matrix = True
    rows_policy = "dense"

    def _step(self, hidden_BD: Any, target_B: Any, power_1: Any, power_2: Any) -> Any:
        tf = self.tf
        with tf.GradientTape() as tape:
            tape.watch(hidden_BD)
            logits_BN = tf.matmul(hidden_BD, self.weight, transpose_b=True) + self.bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target_B, logits_BN))
        *gradients, grad_hidden_BD = tape.gradient(loss, [self.weight, self.bias, hidden_BD])
        for variable, gradient in zip((self.weight, self.bias), gradients, strict=True):
            first, second = self.moments[variable.ref()]
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle, m=first.handle, v=second.handle, beta1_power=power_1, beta2_power=power_2,
                lr=self.lr, beta1=_BETA_1, beta2=_BETA_2, epsilon=_EPSILON, grad=gradient,
            )  # fmt: skip
        return loss, grad_hidden_BD

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        self._run(query, step, clock)
        return Listed(per_row=float(self.num_classes), ids_N=None)


class TensorFlowSampled(_TensorFlowMethod):
    """``tf.nn.sampled_softmax_loss`` with its own log-uniform draws, and an Adam that reads and writes touched rows.

    It draws as many distinct classes as the others' draws give on average. Keras' Adam updates every row even for
    sparse gradients, so this one is made of gathers and scatters.
    """

    name = "tensorflow_sampled"

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        rank_N = np.arange(1, self.num_classes + 1)
        share_N = np.log1p(1 / rank_N) / np.log(self.num_classes + 1)
        self.num_distinct = round(float(-np.expm1(NUM_SAMPLES * np.log1p(-share_N)).sum()))

    def _step(self, hidden_BD: Any, target_B: Any, power_1: Any, power_2: Any) -> Any:
        tf = self.tf
        target_B1 = tf.cast(target_B[:, None], tf.int64)
        drawn = tf.random.log_uniform_candidate_sampler(target_B1, 1, self.num_distinct, True, self.num_classes)
        with tf.GradientTape() as tape:
            tape.watch(hidden_BD)
            loss = tf.reduce_mean(
                tf.nn.sampled_softmax_loss(
                    self.weight,
                    self.bias,
                    target_B1,
                    hidden_BD,
                    self.num_distinct,
                    self.num_classes,
                    sampled_values=drawn,
                )
            )
        *gradients, grad_hidden_BD = tape.gradient(loss, [self.weight, self.bias, hidden_BD])
        size = self.lr * tf.sqrt(1 - power_2) / (1 - power_1)
        for variable, gradient in zip((self.weight, self.bias), gradients, strict=True):
            rows_U, place = tf.unique(gradient.indices)
            gradient_U = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(rows_U))
            first, second = self.moments[variable.ref()]
            first_U = _BETA_1 * tf.gather(first, rows_U) + (1 - _BETA_1) * gradient_U
            second_U = _BETA_2 * tf.gather(second, rows_U) + (1 - _BETA_2) * tf.square(gradient_U)
            first.scatter_update(tf.IndexedSlices(first_U, rows_U))
            second.scatter_update(tf.IndexedSlices(second_U, rows_U))
            variable.scatter_sub(tf.IndexedSlices(size * first_U / (tf.sqrt(second_U) + _EPSILON), rows_U))
        return loss, grad_hidden_BD, drawn.sampled_candidates

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        *_, ids_M = self._run(query, step, clock)
        return Listed(per_row=float(self.num_distinct), ids_N=np.sort(ids_M).astype(np.int32))


TENSORFLOW: dict[str, type[_TensorFlowMethod]] = {
    "tensorflow_full": TensorFlowFull,
    "tensorflow_sampled": TensorFlowSampled,
}
