"""Configure ``omikuji``: label trees from outside, a baseline for extreme classification that is no network.

omikuji is a library in Rust for partitioned label trees. With its defaults it is Parabel: three balanced binary trees
over the classes, with a linear classifier at every branch and for every class. ``model.cluster_k=100
model.cluster_balanced=false model.max_depth=3`` makes it Bonsai. It comes with the extra ``baselines``.

@inproceedings{prabhu2018parabel, title={Parabel: Partitioned Label Trees for Extreme Classification with Application to
Dynamic Search Advertising}, author={Prabhu, Yashoteja and Kag, Anil and Harsola, Shrutendra and Agrawal, Rahul and
Varma, Manik}, booktitle={WWW}, year={2018}}
@article{khandagale2020bonsai, title={Bonsai: Diverse and Shallow Trees for Extreme Multi-label Classification},
author={Khandagale, Sujay and Xiao, Han and Babbar, Rohit}, journal={Machine Learning}, year={2020}}
"""

from dataclasses import dataclass
from typing import ClassVar

from runner.baselines.base import FittedConfig
from runner.baselines.forest import Forest, check_installed
from runner.errors import require


@dataclass(frozen=True, kw_only=True)
class OmikujiConfig(FittedConfig):
    """Configure a forest of label trees. Names and defaults are omikuji's, and its other settings keep their defaults.

    ``n_trees``: number of trees, whose scores are averaged.
    ``cluster_k``: number of branches of a node.
    ``cluster_balanced``: all branches of a node hold equally many classes.
    ``max_depth``: largest depth of a tree.
    ``beam_size``: number of nodes of a layer that a prediction follows.
    """

    reads: ClassVar[str] = "rows"
    task: ClassVar[str | None] = "fitted_rows"
    does: ClassVar[str] = "reads"

    name: str = "omikuji"
    n_trees: int = 3
    cluster_k: int = 2
    cluster_balanced: bool = True
    max_depth: int = 20
    beam_size: int = 10

    def __post_init__(self) -> None:
        require(1 <= self.n_trees <= 1000, "model.n_trees must lie in [1, 1000]")
        require(2 <= self.cluster_k <= 1000, "model.cluster_k must lie in [2, 1000]")
        require(1 <= self.max_depth <= 1000, "model.max_depth must lie in [1, 1000]")
        require(1 <= self.beam_size <= 10_000, "model.beam_size must lie in [1, 10000]")
        require(
            not self.cluster_balanced or self.cluster_k & (self.cluster_k - 1) == 0,
            f"model.cluster_k={self.cluster_k} must be a power of two, because balanced clusters are halved again and"
            " again; take one, or model.cluster_balanced=false",
        )

    def check_installed(self) -> None:
        check_installed()

    def build(self, num_classes: int) -> Forest:
        """Make the forest, without a tree. It computes with as many threads as torch has been given."""
        import torch  # late, because a wrong command line need not wait for it

        settings = {name: getattr(self, name) for name in ("n_trees", "cluster_k", "cluster_balanced", "max_depth")}
        return Forest(settings, beam_size=self.beam_size, threads=torch.get_num_threads())
