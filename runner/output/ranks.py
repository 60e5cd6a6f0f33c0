"""Combine numbers of rows over the processes that hold the classes together (``output.across.Across``).

Every function is a collective operation of torch.distributed on arrays whose sizes all ranks know. Sums come out with
the same bits on every rank, because each part is added up by one rank and then sent to all.

Legend: B rows of a batch, H ranks, K kept classes of a row, U distinct classes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from runner.contracts import Passed
from runner.machine.group import Group

_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13 renamed it
_SENT_AS = {torch.bool: torch.uint8, torch.uint16: torch.float16, torch.uint32: torch.int32}  # what gloo knows
_LAST = np.iinfo(np.int32).max


class Ranks:
    """Combine what the ranks of a group know. Raises RanksLost, in one line, if one of them is missing.

    Raises Diverged if training diverged on one of them.

    ``traffic``: payload in bytes that this rank handed to each operation, by its name.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        self.group, self.place, self.size = group, group.place.rank, group.place.size
        self.traffic: Counter[str] = Counter()
        if not dist.is_initialized():
            self._connect("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")

    def _connect(self, backend: str) -> None:
        try:
            dist.init_process_group(
                backend,
                store=dist.PrefixStore("collectives", self.group.store),
                rank=self.place,
                world_size=self.size,
                timeout=timedelta(seconds=self.group.timeout),
            )
        except RuntimeError as error:
            raise self.group.lost(error) from None

    @property
    def leads(self) -> bool:
        return self.place == 0

    def sum(self, values: Passed) -> Passed:
        return self._reduce("sum", values, dist.ReduceOp.SUM)

    def max(self, values: Passed) -> Passed:
        return self._reduce("max", values, dist.ReduceOp.MAX)

    def log_sum_exp(self, top_B: Passed, sum_B: Passed) -> tuple[Passed, Passed]:
        highest_B = self.max(top_B)
        share_B: Passed
        if isinstance(top_B, np.ndarray):
            with np.errstate(invalid="ignore"):
                share_B = np.where(np.isneginf(top_B), 0, sum_B * np.exp(top_B - highest_B)).astype(sum_B.dtype)
        else:
            share_B = torch.where(torch.isneginf(top_B), 0, sum_B * (top_B - highest_B).exp()).to(sum_B.dtype)
        return highest_B, self.sum(share_B)

    def gather(self, values_B: Passed) -> Passed:
        flat = _tensor(values_B).contiguous()
        kind = flat.dtype
        sent = flat.view(_SENT_AS.get(kind, kind))
        out = torch.empty((self.size, *sent.shape), dtype=sent.dtype, device=sent.device)
        self._call("gather", sent, lambda: _GATHER(out.view(self.size * sent.shape[0], *sent.shape[1:]), sent))
        out = out.view(kind)
        return out.numpy() if isinstance(values_B, np.ndarray) else out

    def concatenate(self, values: Passed, sizes: np.ndarray, axis: int = 0) -> Passed:
        if not sizes.any():
            return values
        moved = _tensor(values).movedim(axis, 0)
        padded = moved.new_zeros((int(sizes.max()), *moved.shape[1:]))
        padded[: len(moved)] = moved
        parts = self.gather(padded)
        joined = torch.cat([part[:size] for part, size in zip(parts, sizes.tolist(), strict=True)])
        joined = joined.movedim(0, axis).contiguous()
        return joined.numpy() if isinstance(values, np.ndarray) else joined

    def merge_top(
        self, ids_BK: np.ndarray, values_BK: np.ndarray, k: int, *, ranked: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, held = ids_BK.shape
        ids, values = np.full((rows, k), _LAST, np.int32), np.full((rows, k), -np.inf, np.float32)
        ids[:, :held], values[:, :held] = ids_BK, values_BK  # a rank may hold fewer than k
        ids, values = (np.concatenate([*self.gather(part)], axis=1) for part in (ids, values))
        order = np.argsort(ids, axis=1, kind="stable")
        ids, values = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        ids, values = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
        if not ranked:
            order = np.argsort(ids, axis=1)
            ids, values = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
        return ids, values

    def all(self, flag: bool) -> bool:
        return bool(self.gather(np.array([flag])).all())

    def leaders(self, numbers: np.ndarray) -> np.ndarray:
        tensor = torch.from_numpy(numbers.copy())
        self._call("leaders", tensor, lambda: dist.broadcast(tensor, src=0))
        return tensor.numpy()

    def wait(self) -> None:
        self.all(True)

    def follow(self, work: str, seconds: float) -> None:
        if self.leads:
            self.group.leader_did(work)
        else:
            self.group.wait_for_leader(work, seconds)

    def require_same(self, what: str, mine: Mapping[str, Any]) -> None:
        self.group.require_same(what, mine)

    def end(self) -> None:
        self.wait()
        dist.destroy_process_group()

    # ------------------------------------------------------------ inside

    def _reduce(self, name: str, values: Passed, how: Any) -> Passed:
        tensor = _tensor(values).clone(memory_format=torch.contiguous_format)
        self._call(name, tensor, lambda: dist.all_reduce(tensor, op=how))
        return tensor.numpy() if isinstance(values, np.ndarray) else tensor

    def _call(self, name: str, sent: Tensor, call: Callable[[], Any]) -> None:
        self.traffic[name] += sent.numel() * sent.element_size()
        try:
            call()
        except RuntimeError as error:  # torch's errors of a connection that ended, or of the time limit
            raise self.group.lost(error) from None


def _tensor(values: Passed) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values
