"""Train the output layer of anybody's model by sampling.

Legend: B rows of a batch, D hidden size, N classes, P targets of the batch, M shared candidates, or places for each
row's own, U distinct classes, K classes of each row.
"""

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from runner import rng
from runner.contracts import Everything, Products, TrainingFacts
from runner.errors import ConfigError, require
from runner.output.initial import Uniform
from runner.output.losses import LossConfig
from runner.output.torch.batches import TorchProposal, proposal_on
from runner.output.torch.directions import LEAST_NORM
from runner.output.torch.functions import FullLosses, Listed, PairLosses, PlacedTargets, SharedLosses, SparseRows
from runner.output.torch.layer import TorchLayer
from runner.output.torch.parameters import ParameterTable
from runner.samplers.base import Sampler
from runner.samplers.building import build_sampler
from runner.samplers.on_device.static import TorchStatic
from runner.torch.inputs import ModuleQuery, check_hidden, hold, in_range, need, out_of_range, targets_of
from runner.torch.settings import USUAL_SAMPLES, counts_of, loss_settings, sampler_settings

_FORGOTTEN = 100  # training steps without ``after_step`` after which a sampler with tables warns


class OutputAndLoss(NamedTuple):
    """Hold the rows' log probabilities, or minus their losses, (B,), and the loss: a number, or (B,)."""

    output: Tensor
    loss: Tensor


class SampledSoftmaxLoss(nn.Module):
    """Score hidden states against the vectors of many classes: a few of them in training, all of them in evaluation.

    In training, ``forward`` draws candidates by the sampler and takes the loss over these; the loss of a row is an
    estimate of -log p(target), and ``output`` is minus the rows' losses. In evaluation, losses are exact, and are
    computed in blocks of classes. Logits are h . w + bias, or scale * cos(h, w) if there is a ``scale``.

    Class vectors are ``self.rows``, an ``nn.Embedding`` (N, D), and biases ``self.biases``, one (N, 1) or None.

    sampler, loss: names of ``runner.samplers.SAMPLERS`` and ``runner.output.losses.LOSSES``, plugins included; a loss
    may also be a ``LossConfig``. sampler_options: those of docs/options.md. class_counts: (N,) how often each class
    occurs in training; None: once each. rows: an ``nn.Embedding`` that the model uses elsewhere, too. sparse: gradients
    of rows and biases are coalesced sparse tensors; full softmax always has dense ones. seed: of the first vectors and
    of all draws, which are functions of (seed, step).

    Raises ConfigError for settings that are wrong, and InputError for inputs; both have one line.
    """

    step: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        sampler: str = "log_uniform",
        *,
        num_samples: int = USUAL_SAMPLES,
        loss: str | LossConfig = "sampled_softmax",
        correct_target: bool = False,
        bias: bool = True,
        scale: float | None = None,
        class_counts: Any = None,
        rows: nn.Embedding | None = None,
        sparse: bool = True,
        reduction: Literal["mean", "sum", "none"] = "mean",
        ignore_index: int = -100,
        seed: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **sampler_options: Any,
    ) -> None:
        super().__init__()
        require(n_classes >= 2 and in_features >= 1, "n_classes must be at least 2, and in_features at least 1")
        require(reduction in ("mean", "sum", "none"), f"reduction: {reduction!r} is not one of mean, sum, none")
        require(scale is None or scale > 0, f"scale must be above 0, got {scale}")
        require(dtype in (None, torch.float32), f"dtype: rows are float32, got {dtype}; autocast is for products")
        self.sampler_config = sampler_settings(sampler, num_samples, sampler_options)
        self.loss_config = loss_settings(loss, correct_target, self.sampler_config)
        self.in_features, self.n_classes, self.scale = in_features, n_classes, scale
        self.reduction, self.ignore_index, self.seed = reduction, ignore_index, seed
        self.sparse = sparse and not self.loss_config.needs_every_class
        self.rows = self._rows(rows, device)
        self.biases: nn.Embedding | None = None
        if bias and scale is None:
            by_magnitude = self.loss_config.by_magnitude or self.sampler_config.by_magnitude
            start = torch.full((n_classes, 1), 0.0 if by_magnitude else -math.log(n_classes), device=device)
            self.biases = nn.Embedding(n_classes, 1, sparse=self.sparse, _weight=start)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64, device=device))
        for part in (self.rows, self.biases):
            if part is not None and self.sparse:
                part.weight.register_post_accumulate_grad_hook(_coalesce)
        self.table = ParameterTable(self.rows, self.biases)
        self.table.settling = 0 if self.sparse else 66  # steps in which Adam's momentum falls to a thousandth
        self.layer = TorchLayer(self.table, scale)
        self._facts = TrainingFacts.one_label_a_row(counts_of(class_counts, n_classes))
        self._sampler: Sampler | None = None
        self._built_on = self.table.device
        self._latest: tuple[ModuleQuery, int] | None = None
        self._touched: list[Tensor] = []
        self.sampler  # noqa: B018  (tables are built now)

    def _rows(self, given: nn.Embedding | None, device: Any) -> nn.Embedding:
        shape = (self.n_classes, self.in_features)
        if given is None:
            start = Uniform(self.in_features**-0.5).rows(0, *shape, seed=self.seed, purpose=rng.CLASS_INIT)
            return nn.Embedding(*shape, sparse=self.sparse, _weight=torch.from_numpy(start).to(device))
        require(isinstance(given, nn.Embedding), f"rows: expected an nn.Embedding, got {type(given).__name__}")
        require(tuple(given.weight.shape) == shape, f"rows: expected {shape}, got {tuple(given.weight.shape)}")
        require(given.weight.dtype == torch.float32, f"rows: expected float32, got {given.weight.dtype}")
        require(
            given.sparse == self.sparse,
            f"rows: the nn.Embedding has sparse={given.sparse}, but gradients here have sparse={self.sparse}; make them"
            " the same",
        )
        require(given.max_norm is None, "rows: an nn.Embedding with max_norm changes while it is read")
        require(not given.scale_grad_by_freq, "rows: scale_grad_by_freq has no meaning for a loss")
        return given

    # ------------------------------------------------------------ the sampler

    @property
    def sampler(self) -> Sampler:
        """Return the sampler, which is built again where the module was moved to another device."""
        if self._sampler is None or self._built_on != self.table.device:
            state = {} if self._sampler is None else self._sampler.state_dict()
            self._built_on = self.table.device
            self._sampler = build_sampler(self.sampler_config, layer=self.layer, training=self._facts, seed=self.seed)
            if state:
                self._sampler.load_state_dict(state)
        return self._sampler

    @property
    def _follows_rows(self) -> bool:
        return type(self.sampler).refresh is not Sampler.refresh

    def after_step(self) -> bool:
        """Let a sampler with tables follow the rows; call it after each step of the optimizer. Return if it worked."""
        if self._latest is None:
            return False
        query, step = self._latest
        touched_U = torch.unique(torch.cat(self._touched)).to(torch.int32).cpu().numpy()
        self._latest, self._touched = None, []
        return self.sampler.refresh(query, step, touched_U)

    def _note(self, query: ModuleQuery, step: int, touched: Tensor) -> None:
        self._latest = query, step
        self._touched.append(touched)
        if len(self._touched) == _FORGOTTEN:
            self._touched = [torch.unique(torch.cat(self._touched))]
            warnings.warn(
                f"sampler={self.sampler_config.name} keeps tables of the rows: call after_step() after each step of"
                " the optimizer",
                stacklevel=4,
            )

    # ------------------------------------------------------------ losses

    def forward(self, input: Tensor, target: Any) -> OutputAndLoss:
        """Return the rows' outputs (B,) and the loss, as ``nn.AdaptiveLogSoftmaxWithLoss`` does.

        input: (B, D). target: (B,) classes, or (indptr (B + 1,), ids (P,)) for rows with several targets or none,
        among which a row's mass is spread equally. ``mean`` is over the rows that have a target.
        """
        check_hidden(input, self.in_features, self.table.device)
        targets = targets_of(target, input, self.n_classes, self.ignore_index)
        products: Products = "float32"
        kind = input.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            products = "bf16"
        with torch.autocast(kind, enabled=False):
            hidden = input.float()
            losses_B = self._sampled(hidden, targets, products) if self.training else self._exact(hidden, targets)
            return OutputAndLoss(-losses_B, self._reduced(losses_B, targets))

    def _reduced(self, losses_B: Tensor, targets: PlacedTargets) -> Tensor:
        if self.reduction == "none":
            return losses_B
        if self.reduction == "sum":
            return losses_B.sum()
        return losses_B.sum() / (targets.counts_B > 0).sum().clamp_min(1)

    def _exact(self, hidden: Tensor, targets: PlacedTargets, products: Products = "float32") -> Tensor:
        self.table.read(None, 0)
        rows, bias = self.rows.weight, self.table.biases_with_gradient
        if self.sparse:
            rows, bias = rows.detach(), bias.detach()  # the rows learn from samples
        losses_B: Tensor = FullLosses.apply(
            self._queries(hidden), self._directions(rows), bias, targets, self.loss_config.by_magnitude, products
        )
        return losses_B

    def _queries(self, hidden: Tensor) -> Tensor:
        if self.scale is None:
            return hidden
        norm = torch.linalg.vector_norm(hidden, dim=1, keepdim=True)
        # A row of zeros has no direction: it scores 0 everywhere and learns nothing.
        return hidden * torch.where(norm > LEAST_NORM, self.scale / norm.clamp_min(LEAST_NORM), 0)

    def _directions(self, rows: Tensor) -> Tensor:
        return rows if self.scale is None else functional.normalize(rows, dim=1, eps=LEAST_NORM)

    def _sampled(self, hidden: Tensor, targets: PlacedTargets, products: Products) -> Tensor:
        sampler = self.sampler
        self.step += 1
        step: Any = self.step if isinstance(sampler, TorchStatic) else int(self.step)
        query = ModuleQuery(hidden.detach(), targets)
        proposal = sampler.sample(query, step)
        if isinstance(proposal, Everything):
            return self._exact(hidden, targets, "bf16" if proposal.products == "bf16" else products)
        log_count_P = None
        if self.loss_config.corrects_targets:
            log_count_P = self._log_counts(sampler, query, proposal, step)
        drawn = _without_gaps(proposal_on(proposal, hidden.device))
        rows, bias, placed, ids = self._placed(targets, drawn)
        if self._follows_rows:
            self._note(query, int(step), torch.cat([targets.ids_P, drawn.ids.reshape(-1)]))
        listed = Listed(
            targets=placed,
            ids=ids,
            log_count=drawn.log_count,
            valid=drawn.valid,
            distinct=drawn.distinct,
            log_count_P=log_count_P,
            loss=self.loss_config,
            num_classes=self.n_classes,
            products=products,
        )
        kind: Any = SharedLosses if drawn.is_shared else PairLosses
        losses_B: Tensor = kind.apply(self._queries(hidden), self._directions(rows), bias, listed)
        return losses_B

    def _log_counts(self, sampler: Sampler, query: ModuleQuery, proposal: Any, step: Any) -> Tensor:
        """Return the log expected count of each target, (P,); 0 where a row counts for nothing."""
        ids_P = query.targets.ids_P
        if isinstance(sampler, TorchStatic):
            return sampler.log_count_of(ids_P)
        found = torch.as_tensor(sampler.log_expected_count_of_targets(query, proposal, step), device=ids_P.device)
        kept_P = torch.from_numpy(query.kept_P).to(ids_P.device)
        return torch.zeros(len(ids_P), device=ids_P.device).masked_scatter_(kept_P, found)

    def _placed(self, targets: PlacedTargets, drawn: TorchProposal) -> tuple[Tensor, Tensor, PlacedTargets, Tensor]:
        """Return rows and biases, and the targets and candidates as places in them."""
        if not self.sparse:
            if self.table.reader is not None:
                self.table.read(torch.cat([targets.ids_P, drawn.ids.reshape(-1)]), 0)
            return self.rows.weight, self.table.biases_with_gradient, targets, drawn.ids
        if torch.compiler.is_compiling():
            raise ConfigError(
                "torch.compile knows no sparse gradients: take sparse=False, or compile the encoder alone"
            )
        ids = drawn.ids
        kept_P = targets.counts_B[targets.row_P] > 0
        listed = [targets.ids_P[kept_P], ids.reshape(-1) if drawn.valid is None else ids[drawn.valid]]
        rows_U, place = torch.unique(torch.cat(listed), return_inverse=True)
        if len(rows_U) == 0:
            rows_U = torch.zeros(1, dtype=torch.int64, device=ids.device)
        num = len(listed[0])
        place_P = torch.zeros_like(targets.ids_P).masked_scatter_(kept_P, place[:num])
        if drawn.valid is None:
            ids = place[num:].reshape(ids.shape)
        else:
            ids = torch.zeros_like(ids).masked_scatter_(drawn.valid, place[num:])
        self.table.read(rows_U, 0)
        rows = SparseRows.apply(self.rows.weight, rows_U)
        if self.biases is None:
            bias = rows.new_zeros(len(rows_U))
        else:
            bias = SparseRows.apply(self.biases.weight, rows_U)[:, 0]
        return rows, bias, targets.at(place_P), ids

    # ------------------------------------------------------------ predicting

    def logits(self, input: Tensor, classes: Tensor) -> Tensor:
        """Return the logits of some classes, (B, K): ``classes`` is (K,), the same for all rows, or (B, K)."""
        check_hidden(input, self.in_features, self.table.device)
        need(classes.dtype in (torch.int64, torch.int32), f"classes: expected integers, got {classes.dtype}")
        rows = len(input)
        fits = classes.dim() == 1 or (classes.dim() == 2 and len(classes) == rows)
        need(fits, f"classes: expected shape (K,) or ({rows}, K), got {tuple(classes.shape)}")
        ids = classes.long()
        hold(in_range(ids, self.n_classes), out_of_range("classes", self.n_classes))
        self.table.read(ids.reshape(-1), 0)
        vectors = functional.embedding(ids, self.rows.weight, sparse=self.sparse)
        if self.scale is not None:
            vectors = functional.normalize(vectors, dim=-1, eps=LEAST_NORM)
        queries = self._queries(input.float())
        products = queries @ vectors.t() if ids.dim() == 1 else torch.matmul(vectors, queries[:, :, None])[:, :, 0]
        if self.biases is None:
            return products
        return products + functional.embedding(ids, self.biases.weight, sparse=self.sparse)[..., 0]

    @torch.no_grad()
    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log probabilities of all classes, (B, N), without gradients."""
        logits_BN = self._all_logits(input)
        return functional.log_softmax(logits_BN.abs_() if self.loss_config.by_magnitude else logits_BN, dim=1)

    @torch.no_grad()
    def _all_logits(self, input: Tensor) -> Tensor:
        check_hidden(input, self.in_features, self.table.device)
        self.table.read(None, 0)
        return self.layer.block(self.layer.queries(input.detach()), 0, self.n_classes)

    @torch.no_grad()
    def predict(self, input: Tensor, k: int = 1) -> Tensor:
        """Return the likeliest classes of each row, best first; of equals, the lower id.

        The shape is (B,) for k = 1, else (B, k).
        """
        check_hidden(input, self.in_features, self.table.device)
        need(1 <= k <= self.n_classes, f"k must lie in [1, {self.n_classes}], got {k}")
        self.table.read(None, 0)
        ids_BK = self.layer.top(input.detach(), k, by_magnitude=self.loss_config.by_magnitude)[0]
        return ids_BK[:, 0] if k == 1 else ids_BK

    # ------------------------------------------------------------ state

    def get_extra_state(self) -> dict[str, Any]:
        """Return the sampler's name and its tables, as tensors."""
        tables = {name: torch.from_numpy(np.array(array)) for name, array in self.sampler.state_dict().items()}
        return {"sampler": self.sampler_config.name, "tables": tables}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_extra_state`` returned. Raises ConfigError if it is another sampler's."""
        name = self.sampler_config.name
        require(state["sampler"] == name, f"the state is that of sampler={state['sampler']}, not of sampler={name}")
        self.sampler.load_state_dict({name: array.cpu().numpy() for name, array in state["tables"].items()})

    def extra_repr(self) -> str:
        config = self.sampler_config
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes}, sampler={config.name},"
            f" loss={self.loss_config.name}, sparse={self.sparse}"
        )


def _coalesce(parameter: Tensor) -> None:
    """Add up what several users of a parameter contributed to its gradient, row by row."""
    if parameter.grad is not None and parameter.grad.is_sparse and not parameter.grad.is_coalesced():
        parameter.grad = parameter.grad.coalesce()


def _without_gaps(proposal: TorchProposal) -> TorchProposal:
    """Leave out empty places of shared candidates, where their number can be known without waiting for a GPU."""
    valid = proposal.valid
    if valid is None or not proposal.is_shared or valid.is_cuda or torch.compiler.is_compiling():
        return proposal
    return TorchProposal(proposal.ids[valid], proposal.log_count[valid], distinct=proposal.distinct)
