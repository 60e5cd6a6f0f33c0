"""List samplers of training examples by name. A new one needs a module, a YAML in conf/batch_sampler, a line here."""

from runner.lgd.base import ExampleSampler, ExampleSamplerConfig, View
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
