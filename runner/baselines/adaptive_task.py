"""Define language modelling with PyTorch's adaptive softmax in place of a class matrix, a sampler and a loss."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from runner.errors import require
from runner.options.settings import RunConfig
from runner.tasks.language import LanguageModelling

if TYPE_CHECKING:
    from runner.baselines.adaptive import AdaptiveHead
    from runner.network import Network

_PROBABILITIES_AT_ONCE = 2**24


class AdaptiveLanguageModelling(LanguageModelling):
    """Train and measure as all language models do; probabilities are those of the adaptive softmax, which are exact."""

    sections = frozenset({"output", "windows"})
    can_rank_without_data = False  # its bands follow the frequencies of the training text

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for tied vectors: those of rare classes are shorter than a word's input vector."""
        require(
            not config.model.tied,
            "output.kind=adaptive has short vectors for rare classes, which cannot be input vectors too: set"
            " model.tied=false",
        )

    @classmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        return super().rehearsal(replace(config, output=replace(config.output, cutoffs=None)))  # there are 80 classes

    def build_head(self) -> "AdaptiveHead":
        """Return the untrained head, whose bands follow the frequencies of the training text."""
        from runner.baselines.adaptive import AdaptiveHead  # torch, which a wrong command line need not wait for

        return AdaptiveHead(self.config, self.training.label_counts_N)

    def _losses(self, network: "Network[Any]", hidden_BD: np.ndarray, target_B: np.ndarray) -> np.ndarray:
        head: AdaptiveHead = network.head
        return head.cross_entropy(hidden_BD, target_B)

    def likeliest(self, network: "Network[Any]", hidden_BD: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        head: AdaptiveHead = network.head
        rows = max(1, _PROBABILITIES_AT_ONCE // self.data.num_classes)
        found = [_largest(head.log_probabilities(hidden_BD[i : i + rows]), k) for i in range(0, len(hidden_BD), rows)]
        top_BK, log_BK = map(np.concatenate, zip(*found, strict=True))
        return top_BK, log_BK


def _largest(log_BN: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of the k largest entries of each row, best first, and the entries; (B, k) each."""
    top_BK = np.argsort(-log_BN, axis=1, kind="stable")[:, :k]
    return top_BK, np.take_along_axis(log_BN, top_BK, axis=1)
