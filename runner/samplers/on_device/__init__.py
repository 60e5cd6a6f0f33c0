"""List the samplers that draw on a device. The others draw on the CPU, and hidden states travel there in each step."""

from collections.abc import Callable
from typing import Any

from runner.contracts import TrainingFacts
from runner.output.layer import Layer
from runner.output.torch.layer import TorchLayer
from runner.samplers.base import Sampler, SamplerConfig
from runner.samplers.full import FullConfig
from runner.samplers.in_batch import InBatchConfig
from runner.samplers.log_uniform import LogUniformConfig
from runner.samplers.lsh import LshConfig
from runner.samplers.lsh_bucket import LshBucketConfig
from runner.samplers.lsh_topk import LshTopKConfig
from runner.samplers.midx import MidxConfig
from runner.samplers.midx_exact import MidxExactConfig
from runner.samplers.midx_learn import MidxLearnConfig
from runner.samplers.on_device.full import TorchFull
from runner.samplers.on_device.lsh import TorchLsh, TorchLshBucket, TorchLshTopK
from runner.samplers.on_device.midx import TorchMidx
from runner.samplers.on_device.midx_exact import TorchMidxExact
from runner.samplers.on_device.midx_learn import TorchLearntMidx
from runner.samplers.on_device.rff import TorchRff
from runner.samplers.on_device.sce import TorchSce
from runner.samplers.on_device.scored import TorchScored, TorchTopK
from runner.samplers.on_device.static import TorchInBatch, TorchStatic
from runner.samplers.rff import RffConfig
from runner.samplers.sce import SceConfig
from runner.samplers.scored import ScoredConfig
from runner.samplers.static import StaticConfig
from runner.samplers.topk import TopKConfig


def _static(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler | None:
    if config.with_targets:  # their number differs from batch to batch
        return None
    return TorchStatic(config, config.distribution(training.label_counts_N), seed, layer.device)


def _log_uniform(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler | None:
    # How many draws make num_samples distinct classes is known only once they are drawn.
    return None if config.until_distinct else _static(config, layer, training, seed)


def _in_batch(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchInBatch(training, device=layer.device)


def _top_k(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchTopK(min(config.num_nearest, layer.num_classes), layer)


def _scored(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchScored(config, layer, seed)


def _midx(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchMidx(config, layer, config.period(training), seed, config.weights(training))


def _lsh(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchLsh(config, layer, seed, config.tail(training, seed))


def _lsh_bucket(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchLshBucket(config, layer, seed)


def _lsh_top_k(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchLshTopK(config, layer, seed)


def _sce(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchSce(config, layer, seed)


def _midx_exact(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchMidxExact(config, layer, config.period(training), seed)


def _midx_learn(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchLearntMidx(config, layer, config.period(training), seed, config.weights(training))


def _rff(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    config.check_size(layer.num_classes)
    return TorchRff(config, layer, seed)


def _full(config: Any, layer: TorchLayer, training: TrainingFacts, seed: int) -> Sampler:
    return TorchFull(config, layer)


# By the method that builds the sampler of the CPU: a config that inherits it draws as that sampler does.
_BUILDERS: dict[Any, Callable[[Any, TorchLayer, TrainingFacts, int], Sampler | None]] = {
    FullConfig.build: _full,
    StaticConfig.build: _static,
    LogUniformConfig.build: _log_uniform,
    InBatchConfig.build: _in_batch,
    TopKConfig.build: _top_k,
    ScoredConfig.build: _scored,
    MidxConfig.build: _midx,
    MidxExactConfig.build: _midx_exact,
    MidxLearnConfig.build: _midx_learn,
    RffConfig.build: _rff,
    SceConfig.build: _sce,
    LshConfig.build: _lsh,
    LshBucketConfig.build: _lsh_bucket,
    LshTopKConfig.build: _lsh_top_k,
}


def draws_on_device(config: SamplerConfig) -> bool:
    """Tell whether the sampler of a config draws where the class matrix lies."""
    of_other_sizes = getattr(config, "until_distinct", False) or getattr(config, "with_targets", False)
    return type(config).build in _BUILDERS and not of_other_sizes


def sampler_on_device(config: SamplerConfig, layer: Layer, training: TrainingFacts, seed: int) -> Sampler | None:
    """Return the sampler that draws where the class matrix of ``layer`` lies; None if there is none."""
    assert isinstance(layer, TorchLayer)
    build = _BUILDERS.get(type(config).build)
    return None if build is None else build(config, layer, training, seed)
