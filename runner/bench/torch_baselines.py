"""Provide the PyTorch baselines: full softmax in blocks, adaptive and sampled softmax; and our module for PyTorch.

A user of PyTorch could have all but the last without the project. They train their own parameters (N, D) with a bias,
on one target a row. Their stage "score" is the forward pass, in which ``linear_cross_entropy`` also computes gradients.
Their stage "update" is the backward pass and the optimizer.
Legend: B rows of a batch, D hidden size, M distinct negatives, N classes, P targets (one a row).
"""

import importlib
import importlib.util
import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from runner.bench.contenders import Contender, Drawn, Listed
from runner.bench.methods import NUM_SAMPLES
from runner.bench.workload import Workload, matrix_bytes
from runner.contracts import Query
from runner.machine.clock import StageClock
from runner.machine.device import device_of
from runner.options.settings import CPU, HardwareConfig
from runner.output.torch.arrays import array_of, ids_of
from runner.torch import RowAdam, SampledSoftmaxLoss

# Rows of a batch in one block of logits: of 32 to 1,024 rows, 128 and 256 were fastest (20,000 classes, batch 1,024,
# two threads). Torch's own choice, blocks of a few rows, is far slower.
_BLOCK_ROWS = 256
_BLOCK_ELEMENTS = 2**28  # at most 1 GiB of logits


def block_rows(num_classes: int) -> int:
    """Return the number of batch rows whose logits over all classes are held at once."""
    return max(16, min(_BLOCK_ROWS, _BLOCK_ELEMENTS // num_classes))


def bytes_needed(name: str, num_classes: int, dim: int, batch: int) -> float:
    """Return the bytes that a library's method takes in memory.

    These are parameters and moments; full softmax adds the dense gradient and the logits held at once. TensorFlow holds
    all logits of the batch, and their gradients.
    """
    parameters = matrix_bytes(num_classes, dim)
    if name in ("torch_sampled", "torch_module", "tensorflow_sampled"):
        return parameters
    if name == "torch_naive":  # logits in bf16 and float32, their log softmax and its gradient
        return parameters * 4 / 3 + 14.0 * batch * num_classes
    if name == "torch_adaptive":
        return parameters * 4 / 3
    logits = 2 * batch if name == "tensorflow_full" else block_rows(num_classes)
    return parameters * 4 / 3 + 4.0 * logits * num_classes


class _TorchMethod(Contender):
    stages_compare = False

    def __init__(self, workload: Workload) -> None:
        self.num_classes = workload.num_classes
        self.device = device_of(workload.hardware)
        self.weight = nn.Parameter(torch.from_numpy(workload.table.rows().copy()).to(self.device))
        self.lr = workload.table.config.lr

    def _tensors(self, query: Query) -> tuple[torch.Tensor, torch.Tensor]:
        hidden_BD = torch.from_numpy(query.hidden_BD).to(self.device).requires_grad_()
        return hidden_BD, ids_of(query.targets_P, self.device)


class TorchFull(_TorchMethod):
    """Full softmax by ``linear_cross_entropy`` in blocks of batch rows, and fused Adam."""

    name = "torch_full"
    everything = True
    whole_matrix = True
    rows_policy = "dense"

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.bias = nn.Parameter(torch.zeros(self.num_classes, device=self.device))
        self.optimizer = torch.optim.Adam([self.weight, self.bias], lr=self.lr, fused=True)
        self.options = nn.LinearCrossEntropyOptions(
            batch_chunk_size=block_rows(self.num_classes), chunking_method=None, acc_policy="compact"
        )

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        hidden_BD, target_B = self._tensors(query)
        with clock.stage("score"):
            loss = functional.linear_cross_entropy(
                hidden_BD, self.weight, target_B, linear_bias=self.bias, options=self.options
            )
        with clock.stage("update"):
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return Listed(per_row=float(self.num_classes), ids_N=None)


class TorchSampled(_TorchMethod):
    """Sampled softmax: log-uniform negatives shared by the batch, sparse gradients, SparseAdam."""

    name = "torch_sampled"

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.bias = nn.Parameter(torch.zeros(self.num_classes, 1, device=self.device))
        self.optimizer = torch.optim.SparseAdam([self.weight, self.bias], lr=self.lr)
        self.generator = torch.Generator(self.device).manual_seed(0)

    def _draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw distinct ids, (M,) ascending, and return them with their log expected counts, (M,).

        The log-uniform distribution assumes that classes are ordered by frequency.
        """
        log_range = math.log(self.num_classes + 1)
        uniform = torch.rand(NUM_SAMPLES, generator=self.generator, dtype=torch.float64, device=self.device)
        drawn = (torch.exp(uniform * log_range) - 1).long().clamp_(max=self.num_classes - 1)
        ids_M = torch.unique(drawn)
        rank = ids_M.double()
        share = torch.log((rank + 2) / (rank + 1)) / log_range
        return ids_M, torch.log(-torch.expm1(NUM_SAMPLES * torch.log1p(-share))).float()

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        hidden_BD, target_B = self._tensors(query)
        with clock.stage("sample"):
            ids_M, log_count_M = self._draw()
        with clock.stage("score"):
            # One lookup for negatives and targets, so that each parameter gets one sparse gradient.
            ids = torch.cat([ids_M, target_B])
            rows = functional.embedding(ids, self.weight, sparse=True)
            bias = functional.embedding(ids, self.bias, sparse=True)[:, 0]
            num = len(ids_M)
            logits_BM = torch.addmm(bias[:num] - log_count_M, hidden_BD, rows[:num].t())
            target_logit_B = (hidden_BD * rows[num:]).sum(1) + bias[num:]
        with clock.stage("loss"):
            # A target that was also drawn must not compete with itself.
            place_B = torch.searchsorted(ids_M, target_B).clamp_(max=num - 1)
            hit_B = torch.nonzero(ids_M[place_B] == target_B)[:, 0]
            logits_BM[hit_B, place_B[hit_B]] = -math.inf
            partition_B = torch.logaddexp(torch.logsumexp(logits_BM, 1), target_logit_B)
            loss = (partition_B - target_logit_B).mean()
        with clock.stage("update"):
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return Listed(per_row=float(num), ids_N=array_of(ids_M).astype(np.int32))


class Adaptive(_TorchMethod):
    """``AdaptiveLogSoftmaxWithLoss``, whose rarer classes have vectors of a quarter and a sixteenth the size; Adam."""

    name = "torch_adaptive"
    rows_policy = "dense"

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        classes = self.num_classes
        cutoffs = sorted({max(1, classes // 64), max(2, classes // 8)})
        self.loss = nn.AdaptiveLogSoftmaxWithLoss(workload.dim, classes, cutoffs, div_value=4.0).to(self.device)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=self.lr, fused=True)
        del self.weight  # it has vectors of its own

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        hidden_BD, target_B = self._tensors(query)
        with clock.stage("score"):
            loss = self.loss(hidden_BD, target_B).loss
        with clock.stage("update"):
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return Listed(per_row=float(self.num_classes), ids_N=None)


@dataclass(frozen=True)
class _DrawnAgain:
    """Draw a step's candidates once more where they are asked for, which is off the clock (``Drawn``)."""

    loss: SampledSoftmaxLoss
    query: Query
    step: int

    @cached_property
    def _proposal(self) -> Any:
        return self.loss.sampler.sample(self.query, self.step)

    @property
    def per_row(self) -> float:
        found: float = self._proposal.candidates_per_row(self.query.num_rows)
        return found

    @property
    def ids_N(self) -> np.ndarray | None:
        found: np.ndarray = self._proposal.ids_N
        return found


class Module(_TorchMethod):
    """``runner.torch.SampledSoftmaxLoss`` with log-uniform candidates, and ``RowAdam`` under ``catch_up``."""

    name = "torch_module"
    rows_policy = "catch_up"

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        rows = nn.Embedding.from_pretrained(self.weight.detach(), freeze=False, sparse=True)
        self.loss = SampledSoftmaxLoss(
            workload.dim, self.num_classes, num_samples=NUM_SAMPLES, rows=rows, device=self.device
        )
        self.optimizer = RowAdam(self.loss, lr=self.lr)
        # As after an epoch: every row was updated, and none is exempt from catching up (``Workload``).
        state = self.optimizer.state_dict()
        for name, value in {"first": 1e-6, "second": 1e-9, "last_step": 1}.items():
            state["rows"][name].fill_(value)
        self.optimizer.load_state_dict({**state, "step": workload.step})

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        hidden_BD, target_B = self._tensors(query)
        with clock.stage("score"):
            loss = self.loss(hidden_BD, target_B).loss
        with clock.stage("update"):
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return _DrawnAgain(self.loss, query, int(self.loss.step))


class OnGpu(_TorchMethod):
    """Full softmax on a GPU with bf16 products, and fused Adam; a subclass says by what the loss is computed."""

    everything = True
    whole_matrix = True
    rows_policy = "dense"
    package: ClassVar[str | None] = None

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.bias = nn.Parameter(torch.zeros(self.num_classes, device=self.device))
        self.optimizer = torch.optim.Adam([self.weight, self.bias], lr=self.lr, fused=True)

    @classmethod
    def unable(cls, hardware: HardwareConfig) -> str | None:
        """Return a status if the method cannot run here, else None."""
        if hardware.name == CPU:
            return "skipped: needs hardware=gpu"
        installed = cls.package is None or importlib.util.find_spec(cls.package) is not None
        return None if installed else "skipped: not installed"

    @abstractmethod
    def loss(self, hidden_BD: torch.Tensor, target_B: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy."""

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        hidden_BD, target_B = self._tensors(query)
        with clock.stage("score"), torch.autocast("cuda", torch.bfloat16):
            loss = self.loss(hidden_BD, target_B)
        with clock.stage("update"):
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return Listed(per_row=float(self.num_classes), ids_N=None)


class Naive(OnGpu):
    """All logits at once."""

    name = "torch_naive"

    def loss(self, hidden_BD: torch.Tensor, target_B: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional.linear(hidden_BD, self.weight, self.bias).float(), target_B)


class CutCrossEntropy(OnGpu):
    """The fused kernels of the package cut-cross-entropy."""

    name = "cce"
    package = "cut_cross_entropy"

    def loss(self, hidden_BD: torch.Tensor, target_B: torch.Tensor) -> torch.Tensor:
        kernels = importlib.import_module("cut_cross_entropy")
        operands = hidden_BD.bfloat16(), self.weight.bfloat16()
        found: torch.Tensor = kernels.linear_cross_entropy(*operands, target_B, bias=self.bias.bfloat16())
        return found


class Liger(OnGpu):
    """The fused kernels of the package liger-kernel."""

    name = "liger"
    package = "liger_kernel"

    def loss(self, hidden_BD: torch.Tensor, target_B: torch.Tensor) -> torch.Tensor:
        kernels = importlib.import_module("liger_kernel.transformers")
        operands = self.weight.bfloat16(), hidden_BD.bfloat16()
        found: torch.Tensor = kernels.LigerFusedLinearCrossEntropyLoss()(*operands, target_B, self.bias.bfloat16())
        return found


ON_GPU: dict[str, type[OnGpu]] = {method.name: method for method in (Naive, CutCrossEntropy, Liger)}
_ANYWHERE: tuple[type[_TorchMethod], ...] = (TorchFull, Adaptive, TorchSampled, Module)
TORCH: dict[str, type[_TorchMethod]] = {method.name: method for method in _ANYWHERE}
