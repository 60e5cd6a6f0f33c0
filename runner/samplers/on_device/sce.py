"""Put rows and classes into random buckets on a device; buckets and candidates are those of ``samplers.sce``.

Legend: B rows, R rows with targets, D hidden size, K buckets, C classes of a bucket, H most buckets of a row, X pairs
of a row and a bucket.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.batches import TorchProposal, hidden_on
from runner.output.torch.layer import TorchLayer, top_of
from runner.samplers.on_device.subsets import SureAndTail, first_of_each, pushed_together
from runner.samplers.sce import Sce, SceConfig, usual_buckets


class TorchSce(Sce):
    """Propose the classes of each row's buckets and a uniform tail.

    Each step waits once, to learn the most buckets of a row.
    """

    def __init__(self, config: SceConfig, layer: TorchLayer, seed: int) -> None:
        super().__init__(config, layer, seed)
        self.on_device = layer
        self._latest: tuple[TorchProposal, SureAndTail] | None = None

    def _centres(self, vectors_RD: Tensor, num_buckets: int, step: int) -> Tensor:
        """Return the buckets' centres, (K, D) (``sce.centres``)."""
        shape = num_buckets, vectors_RD.shape[1]
        normal_KD = tensor_of(rng.generator(self.seed, rng.SAMPLE, step).standard_normal(shape), vectors_RD.device)
        if self.config.mix:
            normal_KD = normal_KD @ _triangular_root(vectors_RD.t() @ vectors_RD).t()
        return normal_KD.float()

    def _buckets(self, query: Query, step: int) -> tuple[Tensor, Tensor]:
        """Return the rows (K, b_x) and the classes (K, b_y) of each bucket, both ascending."""
        config, layer = self.config, self.on_device
        layer.read(None, step)
        vectors_RD = layer.queries(hidden_on(query, layer.device))
        learning_R = ids_of(np.flatnonzero(np.diff(query.target_indptr_B1)), layer.device)
        num_rows = len(learning_R)
        if num_rows == 0:
            return learning_R.new_zeros((0, 0)), learning_R.new_zeros((0, 0))
        vectors_RD, usual = vectors_RD[learning_R], usual_buckets(num_rows)
        centre_KD = self._centres(vectors_RD, config.buckets or usual, step)
        rows_KX, _ = top_of([(0, centre_KD @ vectors_RD.t())], config.bucket_rows or usual)
        classes_KC = layer.nearest(centre_KD, config.bucket_classes)
        return learning_R[rows_KX.sort(dim=1).values], classes_KC.sort(dim=1).values

    def _found(self, query: Query, step: int) -> SureAndTail:
        rows_KX, classes_KC = self._buckets(query, step)
        device, rows, nobody = rows_KX.device, query.num_rows, self.num_classes
        row_X, order_X = rows_KX.reshape(-1).sort(stable=True)
        begin_B1 = torch.searchsorted(row_X, torch.arange(rows + 1, device=device))
        most = int((begin_B1[1:] - begin_B1[:-1]).max()) if len(row_X) else 0  # the one wait
        bucket_BH = torch.full((rows, max(1, most)), len(rows_KX), device=device)
        place_X = torch.arange(len(row_X), device=device) - begin_B1[row_X]
        bucket_BH[row_X, place_X] = order_X // max(1, rows_KX.shape[1])
        # One bucket more, of nobody, is what a row has in the places that are left over.
        classes_KC = torch.nn.functional.pad(classes_KC, (0, 0, 0, 1), value=nobody)
        ids_BX = classes_KC[bucket_BH].flatten(1)
        places = max(1, min(ids_BX.shape[1], nobody))
        sure_BM, number_B = pushed_together(ids_BX, first_of_each(ids_BX) & (ids_BX < nobody), places)
        sure_BM = torch.where(torch.arange(places, device=device) < number_B[:, None], sure_BM, nobody)
        return SureAndTail(sure_BM, number_B, (nobody - number_B).clamp_max(self.config.num_tail), nobody)

    def sample(self, query: Query, step: int) -> TorchProposal:
        found, device, tail = self._found(query, step), self.on_device.device, self.config.num_tail
        key_B = words.stream(self.seed, rng.SAMPLE, step, torch.arange(query.num_rows, device=device), device)
        proposal = found.proposal(key_B, tail, min(self.num_classes, found.sure_BX.shape[1] + tail))
        self._latest = proposal, found
        return proposal

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return array_of(self._found(query, step).log_count_of(ids_of(ids_M, self.on_device.device)))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target in its own row, (P,) float32, as a tensor."""
        if self._latest is None or self._latest[0] is not proposal:
            self.sample(query, step)
        assert self._latest is not None
        return self._latest[1].log_count_of_targets(query)


def _triangular_root(gram_DD: Tensor) -> Tensor:
    """Return the lower triangular L with L L' = G, (D, D) float64, column by column (``sce.triangular_root``)."""
    gram_DD = gram_DD.double()
    root_DD, diagonal_D = torch.zeros_like(gram_DD), gram_DD.diagonal()
    for j in range(len(gram_DD)):
        rest_D = gram_DD[:, j] - root_DD[:, :j] @ root_DD[j, :j]
        has_root = rest_D[j] > 1e-5 * diagonal_D[j]
        column_D = rest_D / rest_D[j].clamp_min(1e-300).sqrt()
        root_DD[j:, j] = torch.where(has_root, column_D, 0)[j:]
    return root_DD
