"""Make samplers for class matrices of either engine."""

from runner.contracts import TrainingFacts
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig


def build_sampler(config: SamplerConfig, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
    """Make the sampler for a class matrix: one that draws where it lies, if there is one, else that of the CPU."""
    if layer.table.engine == "torch":
        from runner.samplers.on_device import sampler_on_device  # it imports torch

        if (found := sampler_on_device(config, layer, training, seed)) is not None:
            return found
    return config.build(layer=layer, training=training, seed=seed)
