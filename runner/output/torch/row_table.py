"""Hold a matrix in tensors whose rows take steps one by one (``output.layer.Rows``).

Every matrix has one row more than it shows: *nobody*. Lists of rows have a fixed length, so that no size depends on
numbers of the device, and places without a row name nobody, who takes steps that nobody reads.

Legend: R rows, D columns, N pairs of a row and a source, U distinct rows, G places of rows of which some may name
nobody, B sources with a gradient, S all sources.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from runner.optimizers.configs import AdaGradConfig, AdamConfig, OptimizerConfig, SgdConfig, of_parameters
from runner.output.across import Across
from runner.output.layer import RowGradient
from runner.output.row_policy import RowPolicy
from runner.output.row_sums import sizes_of, sum_of_rows
from runner.output.torch.adam import AdamStep, DriftOnDevice, apply_drift
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.groups import bag_sums, group_rows, segment_sums
from runner.output.torch.moments import Rounding

BLOCK = 2**14
"""Rows that are read or updated at a time where all are: their vectors and moments stay in a GPU's cache."""


class TorchRowTable(RowPolicy):
    """Hold an (R, D) float32 matrix with an optional bias per row, its moments, and each row's last update.

    Under SGD the tensors of moments are empty. AdaGrad keeps its sums of squares in those of second moments, which are
    (R, 1) where a row has one (``AdamConfig``). ``bias_moves``: if false, biases stay as they are. For ``seed`` and
    ``number`` see ``RowPolicy``.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        weights_RD: np.ndarray,
        *,
        bias: bool,
        bias_moves: bool = True,
        device: torch.device | None = None,
        seed: int = 0,
        number: int = 0,
    ) -> None:
        super().__init__(config, seed, number)
        self.device = torch.device("cpu") if device is None else device
        self.num_rows, self.num_columns = weights_RD.shape
        places = self.num_rows + 1
        self.weights = torch.zeros((places, self.num_columns), device=self.device)
        self.weights[:-1].copy_(torch.from_numpy(np.ascontiguousarray(weights_RD, dtype=np.float32)))
        self.bias = torch.zeros(places if bias else 0, device=self.device)
        firsts = places if isinstance(config, AdamConfig) else 0
        seconds = 0 if isinstance(config, SgdConfig) else places
        self.first, self.second = self._new_moments(firsts, seconds)
        self.bias_first, self.bias_second = (
            torch.zeros(moments if bias else 0, device=self.device) for moments in (firsts, seconds)
        )
        self.last_step = torch.zeros(places, dtype=torch.int32, device=self.device)
        self._bias_moves = bias_moves
        self._sums = DriftOnDevice(self.drift, self.device) if self.drift is not None else None
        self._all_stand_at = 0  # every row stands at this step or a later one

    @classmethod
    def over(cls, config: OptimizerConfig, weights_RD: Tensor, bias_R: Tensor | None) -> "TorchRowTable":
        """Return a table that steps these tensors in place. It has no row for nobody: every row given must exist."""
        rows, columns = weights_RD.shape
        table = cls(config, np.zeros((0, columns), dtype=np.float32), bias=False, device=weights_RD.device)
        table.num_rows, table.weights = rows, weights_RD
        firsts = rows if isinstance(config, AdamConfig) else 0
        seconds = 0 if isinstance(config, SgdConfig) else rows
        table.first, table.second = table._new_moments(firsts, seconds)
        if bias_R is not None:
            table.bias = bias_R
            table.bias_first, table.bias_second = (bias_R.new_zeros(moments) for moments in (firsts, seconds))
        table.last_step = torch.zeros(rows, dtype=torch.int32, device=weights_RD.device)
        return table

    def _new_moments(self, firsts: int, seconds: int) -> tuple[Tensor, Tensor]:
        """Return the moments of so many rows."""
        columns, of_row = self.num_columns, 1 if self.has_row_moments else self.num_columns
        kind = torch.bfloat16 if self.rounds else torch.float32
        first = torch.zeros((firsts, columns if firsts else 0), dtype=kind, device=self.device)
        return first, torch.zeros((seconds, of_row if seconds else 0), device=self.device)

    @property
    def nobody(self) -> int:
        """Return the place of the row that is not shown."""
        return self.num_rows

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return self.num_rows, self.num_columns

    engine = "torch"
    by_row: Collection[str] = ("weights", "first", "second", "last_step", "bias", "bias_first", "bias_second")

    def another(self, weights_RD: np.ndarray) -> "TorchRowTable":
        """Return a table of other rows, without biases, under the same optimizer and on the same device."""
        return TorchRowTable(
            self.config, weights_RD, bias=False, device=self.device, seed=self.seed, number=self.number + 1
        )

    def of_parameters(self, weights_RD: np.ndarray) -> "TorchRowTable":
        """Return a table of weights that are no vectors, each with moments of its own, on the same device."""
        return TorchRowTable(of_parameters(self.config), weights_RD, bias=False, device=self.device)

    # ------------------------------------------------------------ numbers as they stand

    @property
    def tensor(self) -> Tensor:
        """Return all rows as they stand, (R, D), as a view where they lie."""
        return self.weights[:-1]

    def passed_on(self, values: Tensor) -> Tensor:
        """Return numbers of a step as tensors, which is how this engine passes them from part to part."""
        return values.detach()

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows as they stand, (U, D) a copy; None: all rows, (R, D), a view if they lie in CPU memory."""
        return array_of(self.tensor if rows_U is None else self.weights[ids_of(rows_U, self.device)])

    def rows_at(self, rows_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a matrix and the places of these rows in it: all rows and ``rows_U`` itself, or a copy of these."""
        if self.device.type == "cpu":
            return self.rows(), rows_U
        return self.rows(rows_U), np.arange(len(rows_U), dtype=rows_U.dtype)

    @property
    def all_biases(self) -> Tensor:
        """Return all biases, (R,), as a view; without biases it is empty."""
        return self.bias[: self.num_rows]

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return the biases as they stand, (U,) a copy; None: all, (R,), a view if they lie in CPU memory."""
        return array_of(self.all_biases if rows_U is None else self.all_biases[ids_of(rows_U, self.device)])

    def write(
        self,
        rows_U: np.ndarray | None,
        *,
        vectors: np.ndarray | None = None,
        biases: np.ndarray | float | None = None,
    ) -> None:
        """Replace the vectors and biases of rows (None: all), by arrays of as many or by one for all; moments stay."""
        rows = slice(self.num_rows) if rows_U is None else ids_of(rows_U, self.device)
        if vectors is not None:
            self.weights[rows] = tensor_of(vectors, self.device, torch.float32)
        if biases is not None:
            self.bias[rows] = tensor_of(np.asarray(biases, dtype=np.float32), self.device)

    def is_finite(self) -> bool:
        """Tell whether all rows and biases are finite."""
        return bool(self.tensor.isfinite().all() & self.all_biases.isfinite().all())

    # ------------------------------------------------------------ state

    @property
    def _held(self) -> dict[str, Tensor]:
        """Return the tensors by name, without nobody's place and without those that are empty; bfloat16 as its bits."""
        held = {name: getattr(self, name) for name in ("weights", "first", "second", "last_step")}
        of_bias = {name: getattr(self, name)[:, None] for name in ("bias", "bias_first", "bias_second")}
        if self.rounds:
            held["first"] = held["first"].view(torch.int16)
        return {name: tensor[: self.num_rows] for name, tensor in {**held, **of_bias}.items() if tensor.numel()}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return weights and optimizer state by name, as ``RowTable.state_dict`` does."""
        held = {name: array_of(tensor) for name, tensor in self._held.items()}
        if self.rounds:
            held["first"] = held["first"].view(np.uint16)
        if self.drift is None or self.drift.step == 0:
            return held
        return {**held, "drift": self.drift.state()}

    def forget_steps(self) -> None:
        """Mark every row as never updated, so that no read moves it; for weights that come without their history."""
        self.last_step.zero_()
        self._all_stand_at = 0

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self._all_stand_at = 0
        for name, target in self._held.items():
            array = state[name]
            if array.size != target.numel() or array.shape[0] != target.shape[0]:
                raise ValueError(f"{name} has shape {array.shape}, not {tuple(target.shape)}")
            bits = array.view(np.int16) if array.dtype == np.uint16 else array
            target.copy_(torch.tensor(bits).reshape(target.shape))
        if self.drift is not None and self._sums is not None and "drift" in state:
            self.drift.restore(state["drift"])
            self._sums.restart()

    # ------------------------------------------------------------ the rate

    # ------------------------------------------------------------ before a step's gradients

    @contextmanager
    def caught_up(self, step: int) -> Iterator[None]:
        """Hold the values before ``step`` in all rows for a while, and then leave the table as it was, bit by bit."""
        upto = self._upto(step)
        if upto == 0:
            yield
            return
        lagging = (self.last_step > 0) & (self.last_step < upto)
        rows_U = lagging.nonzero()[:, 0]
        moved = [tensor for tensor in (self.weights, self.bias) if tensor.numel()]
        held = [tensor[rows_U] for tensor in moved]
        try:
            self._catch_up(rows_U, upto, moments=False)
            with self.frozen():
                yield
        finally:
            for tensor, before in zip(moved, held, strict=True):
                tensor[rows_U] = before

    def before_step(self, step: int) -> None:
        """Under ``dense``, apply the previous step to the rows that it did not touch."""
        if self.config.rows == "dense":
            self.read(None, step)

    def read(self, rows_U: np.ndarray | Tensor | None, step: int) -> None:
        """Bring rows (None: all) to their values before ``step``; do nothing unless the policy lets rows lag."""
        upto = self._upto(step)
        if upto <= self._all_stand_at:
            return
        if rows_U is not None:
            self._catch_up(ids_of(rows_U, self.device), upto, moments=True)
            return
        for lo in range(0, self.num_rows, BLOCK):
            self._catch_up(slice(lo, min(lo + BLOCK, self.num_rows)), upto, moments=True)
        self._all_stand_at = upto

    def read_for_update(self, rows_U: np.ndarray | Tensor, step: int) -> None:
        """Read rows, each of which takes a step by ``apply`` at the same step.

        The moments catch up in that step, so that they are written once, not twice.
        """
        if (upto := self._upto(step)) > self._all_stand_at:
            self._catch_up(ids_of(rows_U, self.device), upto, moments=False)

    def _catch_up(self, rows: Tensor | slice, upto: int, *, moments: bool) -> None:
        """Bring rows up to the end of step ``upto`` by the momentum of the steps that they missed (``Drift``)."""
        assert self.drift is not None
        assert self._sums is not None
        last_U = self.last_step[rows]
        lags_U = (last_U > 0) & (last_U < upto)
        drift_S, damping_S = self._sums.until(upto)
        drift_U = torch.where(lags_U, drift_S[last_U.long()], 0)
        damping_U = damping_S[last_U.long()].clamp_min(1e-30)
        apply_drift(self.weights, self.first, self.second, rows, drift_U[:, None], damping_U[:, None])
        if self.bias.numel():
            apply_drift(self.bias, self.bias_first, self.bias_second, rows, drift_U, damping_U)
        if moments:
            gap_U = torch.where(lags_U, upto - last_U, 0)
            rounding = self._rounding(upto)
            for tensor, of_bias, beta in self._moments:
                kept_U = self._power(beta, gap_U)
                if tensor.dtype == torch.bfloat16:
                    assert rounding is not None
                    tensor[rows] = rounding.bf16(tensor[rows].float() * kept_U[:, None], rows)
                else:
                    tensor[rows] *= kept_U[:, None]
                if self.bias.numel():
                    of_bias[rows] *= kept_U
            self.last_step[rows] = torch.where(lags_U, upto, last_U)

    def _rounding(self, step: int) -> Rounding | None:
        key = self.rounding(step)
        return None if key is None else Rounding(int(key), self.device)

    @property
    def _moments(self) -> list[tuple[Tensor, Tensor, float]]:
        assert isinstance(self.config, AdamConfig)
        return [
            (self.first, self.bias_first, self.config.beta1),
            (self.second, self.bias_second, self.config.beta2),
        ]

    @staticmethod
    def _power(beta: float, gap_U: Tensor) -> Tensor:
        """Return beta ** gap, float32."""
        return torch.pow(beta, gap_U.double()).float()

    # ------------------------------------------------------------ gradients

    def gradients_of_groups(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_SD: np.ndarray | Tensor,
        pair_source_N: np.ndarray | Tensor,
        grad_N: np.ndarray | Tensor,
        source_grad_BD: np.ndarray | Tensor,
        step: int,
        bias_grad_N: np.ndarray | Tensor | None = None,
    ) -> "TorchRowGradient":
        """Return the gradient from pairs of a row and a source, grouped by row (``Rows.gradients_of_groups``).

        Sources that want a gradient back are what scores are for; here ``source_grad_BD`` must have no rows.
        """
        assert len(source_grad_BD) == 0, "the gradient of sources is taken with their scores"
        order_N, rows_U, start_U1 = (ids_of(array, self.device) for array in groups)
        source_N, weight_N = ids_of(pair_source_N, self.device), tensor_of(grad_N, self.device)
        grad_UD = bag_sums(tensor_of(sources_SD, self.device), source_N[order_N], weight_N[order_N], start_U1)
        bias_grad_U = None
        if self.bias.numel():
            bias_grad_N = weight_N if bias_grad_N is None else tensor_of(bias_grad_N, self.device)
            bias_grad_U = segment_sums(bias_grad_N[order_N], start_U1)
        return self.gradient(rows_U, grad_UD, bias_grad_U)

    def gradient_of(self, grad_RD: Tensor) -> "TorchRowGradient":
        """Return the gradient of all rows, which has no part for biases."""
        return TorchRowGradient(table=self, rows=None, grad_GD=grad_RD, bias_grad_G=None)

    def gradient(self, rows_G: Tensor | None, grad_GD: Tensor, bias_grad_G: Tensor | None) -> "TorchRowGradient":
        """Return the gradient of these rows (None: all), of which some may be nobody's."""
        return TorchRowGradient(table=self, rows=rows_G, grad_GD=grad_GD, bias_grad_G=self._of_biases(bias_grad_G))

    def _of_biases(self, grad_G: Tensor | None) -> Tensor | None:
        return None if grad_G is None or not self.bias.numel() or not self._bias_moves else grad_G

    # ------------------------------------------------------------ steps

    def apply(
        self,
        rows: Tensor | slice,
        grad_GD: Tensor,
        bias_grad_G: Tensor | None,
        step: int,
        factor: float | Tensor = 1.0,
    ) -> None:
        """Take a step with distinct rows by gradients times ``factor``. Rows must have been read at this step."""
        bias_grad_G = self._of_biases(bias_grad_G)
        if isinstance(factor, Tensor):
            factor = factor.float()
        if isinstance(factor, Tensor) or factor != 1.0:
            grad_GD = grad_GD * factor
            bias_grad_G = None if bias_grad_G is None else bias_grad_G * factor
        parts = [(self.weights, self.first, self.second, grad_GD)]
        if bias_grad_G is not None:
            parts.append((self.bias, self.bias_first, self.bias_second, bias_grad_G))
        act = self._step_of(rows, step)
        for weights, first, second, grad in parts:
            act(weights, first, second, grad)
        if isinstance(self.config, AdamConfig):
            self.last_step[rows] = step

    def all_stepped(self, step: int) -> None:
        """Note that every row took ``step``, range by range."""
        self._all_stand_at = step if isinstance(self.config, AdamConfig) else 0

    def _step_of(self, rows: Tensor | slice, step: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], None]:
        config = self.config
        if isinstance(config, AdamConfig):
            missed = None
            if (upto := self._upto(step)) > self._all_stand_at:
                missed = (upto - self.last_step[rows]).clamp_min(0)
            return AdamStep(config, self._lr, rows, step, missed, self._rounding(step)).take
        rate = self._lr
        if isinstance(config, AdaGradConfig):
            epsilon = config.epsilon

            def adagrad(weights: Tensor, first: Tensor, second: Tensor, grad: Tensor) -> None:
                squares = second[rows].addcmul_(grad, grad)
                second[rows] = squares
                weights[rows] -= rate * grad / (squares.sqrt() + epsilon)

            return adagrad

        def descend(weights: Tensor, first: Tensor, second: Tensor, grad: Tensor) -> None:
            weights[rows] -= rate * grad

        return descend


@dataclass(frozen=True, kw_only=True)
class TorchRowGradient:
    """Hold the gradient of rows of a table, of which places may name nobody, and of their biases.

    ``rows``: None stands for all rows. ``bias_grad_G``: None if biases do not move.
    """

    table: TorchRowTable
    rows: Tensor | None
    grad_GD: Tensor
    bias_grad_G: Tensor | None

    @property
    def rows_U(self) -> np.ndarray:
        """Return the rows, ascending int32; this waits for the device."""
        if self.rows is None:
            return np.arange(self.table.num_rows, dtype=np.int32)
        rows_G = array_of(self.rows)
        return rows_G[rows_G != self.table.nobody].astype(np.int32)

    def squared_norm(self) -> Tensor:
        """Return the sum of the gradient's squares, a tensor without dimensions."""
        total = self.grad_GD.double().square().sum()
        if self.bias_grad_G is not None:
            total = total + self.bias_grad_G.double().square().sum()
        return total

    def plus(self, other: RowGradient) -> "TorchRowGradient":
        """Return the sum, over the rows of both. A gradient of all rows of the table is changed in place."""
        assert isinstance(other, TorchRowGradient), "gradients of one table are of one kind"
        table = self.table
        whole, part = (self, other) if self.rows is None else (other, self)
        if whole.rows is None:
            if part.rows is None:
                whole.grad_GD.add_(part.grad_GD)
            else:
                whole.grad_GD.index_add_(0, part.rows, part.grad_GD)
            if whole.bias_grad_G is not None and part.bias_grad_G is not None:
                rows = slice(None) if part.rows is None else part.rows
                whole.bias_grad_G[rows] += part.bias_grad_G
            return whole
        assert self.rows is not None
        assert other.rows is not None
        groups = group_rows(torch.cat([self.rows, other.rows]), table.nobody)
        grad_ND = torch.cat([self.grad_GD, other.grad_GD])
        place_N = torch.arange(len(grad_ND), device=table.device)
        grad_GD = groups.weighted_sums(grad_ND, place_N, torch.ones_like(grad_ND[:, 0]))
        bias_grad_G = None
        if self.bias_grad_G is not None:
            of_other = torch.zeros_like(other.grad_GD[:, 0]) if other.bias_grad_G is None else other.bias_grad_G
            bias_grad_G = groups.sums(torch.cat([self.bias_grad_G, of_other]))
        return TorchRowGradient(table=table, rows=groups.rows_G, grad_GD=grad_GD, bias_grad_G=bias_grad_G)

    def summed(self, across: Across, step: int) -> RowGradient:
        """Return the sum over all processes (``SummableGradient``). The table must have no biases."""
        if self.rows is None:
            return replace(self, grad_GD=across.sum(self.grad_GD))
        rows_U = self.rows_U
        return sum_of_rows(self.table, rows_U, self.grad_GD, sizes_of(rows_U, across), across, step)

    def apply(self, step: int, factor: float | Tensor = 1.0) -> None:
        """Take the step by ``factor`` times the gradient."""
        table = self.table
        rows = slice(table.num_rows) if self.rows is None else self.rows
        table.apply(rows, self.grad_GD, self.bias_grad_G, step, factor)
        if self.rows is None:
            table.all_stepped(step)
