"""Define classification by label trees from outside, which all training rows grow at once, measured as networks are."""

import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from runner.batch_samplers import ExampleSampler
from runner.data.rows.batches import take
from runner.data.rows.dataset import XmcDataset
from runner.heads.forest import ForestHead, write_rows
from runner.metrics import RANKS, ranking_metrics
from runner.options.settings import RunConfig
from runner.tasks.base import PROGRESS_BAR
from runner.tasks.classification import Classification
from runner.tasks.counted import check_one_pass

if TYPE_CHECKING:
    from runner.network import Network

_ROWS_AT_ONCE = 256


class LabelTrees(Classification):
    """Grow trees from the training rows; there are no steps, no classes to sample and no loss.

    Training rows, held-out rows, test rows and metrics are those of ``Classification``.
    """

    sections = frozenset()

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for settings of training by steps, which have no effect on trees."""
        check_one_pass(config, "training rows", does="reads")

    def __init__(self, config: RunConfig, data: XmcDataset) -> None:
        super().__init__(config, data)
        self.training = replace(self.training, steps_per_epoch=1)
        self.rows_per_step = self.rows_per_epoch

    def build_head(self) -> ForestHead:
        """Return the head, without a tree. It computes with as many threads as torch has been given."""
        import torch  # late, because a wrong command line need not wait for it

        return ForestHead(self.config.model, self.config.optimizer, torch.get_num_threads())

    def compiled_steps(self, network: "Network[Any]", sampler: ExampleSampler) -> "Growing":
        """Return what grows all trees as one step. It writes the training rows first, which is no part of training."""
        return Growing(self, network.head)

    def _metrics(self, network: "Network[Any]", rows: np.ndarray, split: str, label: str) -> dict[str, float]:
        data, head = self.data.train if split == "valid" else self.data.test, network.head
        k = min(max(RANKS), self.data.num_classes)
        chunks = range(0, len(rows), _ROWS_AT_ONCE)
        bar = tqdm(chunks, desc=label, leave=False, disable=len(chunks) < 8, **PROGRESS_BAR)
        tops = [head.rank(take(data, rows[begin : begin + _ROWS_AT_ONCE]), k) for begin in bar]
        truth = take(data, rows)
        metrics = ranking_metrics(np.concatenate(tops), truth.target_indptr, truth.targets, self.inverse_propensity_N)
        return {f"{split}/{name}": value for name, value in metrics.items()}


class Growing:
    """Grow the trees; the loss is 0, because the library states none.

    The seconds of this step are omikuji's own, its reading of the text file included.
    """

    def __init__(self, task: LabelTrees, head: ForestHead) -> None:
        self.task, self.head = task, head
        folder = tempfile.mkdtemp(prefix="runner-omikuji-")
        self._clean = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "train.txt"
        data = task.data
        rows_R = np.arange(data.train.num_rows) if task.train_R is None else task.train_R
        write_rows(self.path, data.train, rows_R, num_features=data.num_features, num_classes=data.num_classes)

    def take(self, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        self.head.grow(self.path)
        self._clean()
        return loss_sum, 1, self.task.rows_per_epoch
