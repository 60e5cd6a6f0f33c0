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
from runner.options.fields import option


@dataclass(frozen=True, kw_only=True)
class OmikujiConfig(FittedConfig):
    """Train label trees by the library omikuji (extra ``baselines``): Parabel with the defaults.

    Bonsai has cluster_k=100, cluster_balanced=false and max_depth=3. Names and defaults are omikuji's, and its other
    settings keep their defaults. The library takes no seed, so results of two runs differ a little.
    """

    reads: ClassVar[str] = "rows"
    task: ClassVar[str | None] = "fitted_rows"
    does: ClassVar[str] = "reads"

    name: str = "omikuji"
    n_trees: int = option(3, "trees, whose scores are averaged", low=1, high=1000)
    cluster_k: int = option(2, "branches of a node; a power of two if they are balanced", low=2, high=1000)
    cluster_balanced: bool = option(True, "all branches of a node hold equally many classes")
    max_depth: int = option(20, "largest depth of a tree", low=1, high=1000)
    beam_size: int = option(10, "nodes of a layer that a prediction follows", low=1, high=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
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
