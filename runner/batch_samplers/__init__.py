"""List samplers of training examples by name. A new one needs a module, a YAML in conf/batch_sampler, a line here."""

from runner.batch_samplers.base import ExampleSampler, ExampleSamplerConfig, View
from runner.batch_samplers.epoch import EpochConfig
from runner.batch_samplers.lgd import LgdConfig
from runner.batch_samplers.lgd_strata import LgdStrataConfig
from runner.batch_samplers.norm_oracle import NormOracleConfig
from runner.batch_samplers.uniform import UniformExamplesConfig

BATCH_SAMPLERS: dict[str, type[ExampleSamplerConfig]] = {
    "epoch": EpochConfig,
    "uniform": UniformExamplesConfig,
    "lgd": LgdConfig,
    "lgd_strata": LgdStrataConfig,
    "norm_oracle": NormOracleConfig,
}

__all__ = ["BATCH_SAMPLERS", "ExampleSampler", "ExampleSamplerConfig", "View"]
