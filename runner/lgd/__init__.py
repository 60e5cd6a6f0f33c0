"""Draw the training examples of each step: all in turn, uniformly, or by LGD; hold the tasks that LGD is made for.

Samplers are listed by name. A new one needs a module, a YAML in conf/batch_sampler, and a line here.
"""

from runner.contracts import View
from runner.lgd.base import ExampleSampler, ExampleSamplerConfig
from runner.lgd.epoch import EpochConfig
from runner.lgd.hashed import LgdConfig
from runner.lgd.norm_oracle import NormOracleConfig
from runner.lgd.strata import LgdStrataConfig
from runner.lgd.uniform import UniformExamplesConfig

BATCH_SAMPLERS: dict[str, type[ExampleSamplerConfig]] = {
    "epoch": EpochConfig,
    "uniform": UniformExamplesConfig,
    "lgd": LgdConfig,
    "lgd_strata": LgdStrataConfig,
    "norm_oracle": NormOracleConfig,
}

__all__ = ["BATCH_SAMPLERS", "ExampleSampler", "ExampleSamplerConfig", "View"]
