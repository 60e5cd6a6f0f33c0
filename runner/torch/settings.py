"""Make a sampler's and a loss's settings from arguments; mistakes are one line.

Legend: N classes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from runner.errors import ConfigError, require
from runner.options.conversion import convert, did_you_mean
from runner.output.losses import LOSSES, FullLoss, LossConfig
from runner.registry import load_plugins
from runner.samplers import SAMPLERS, SamplerConfig

USUAL_SAMPLES = 1000
_SAME_AS_FULL = ("sampled_softmax", "active_set")  # if every class is a candidate once


def sampler_settings(name: str, num_samples: int, options: Mapping[str, Any]) -> SamplerConfig:
    """Return the settings of a registered sampler. Raises ConfigError for an unknown name, option or value."""
    if name not in SAMPLERS:
        load_plugins(())
    require(name in SAMPLERS, f"sampler: unknown '{name}'{did_you_mean(name, SAMPLERS)}")
    config = SAMPLERS[name]
    values = {"name": name, **options}
    if "num_samples" in {field.name for field in dataclasses.fields(config)}:
        values["num_samples"] = num_samples
    elif num_samples != USUAL_SAMPLES:
        raise ConfigError(f"sampler={name} has no num_samples; leave it out")
    made: SamplerConfig = convert(config, values, "sampler.")
    made.check_processor()
    return made


def loss_settings(loss: str | LossConfig, correct_target: bool, sampler: SamplerConfig) -> LossConfig:
    """Return the settings of a loss that goes with the sampler. Raises ConfigError if none does."""
    if isinstance(loss, LossConfig):
        require(not correct_target, "correct_target: set it in the loss that you give")
        made = loss
    else:
        if loss not in LOSSES:
            load_plugins(())
        require(loss in LOSSES, f"loss: unknown '{loss}'{did_you_mean(loss, LOSSES)}")
        config, values = LOSSES[loss], {"name": loss}
        if correct_target:
            has = "correct_target" in {field.name for field in dataclasses.fields(config)}
            require(has, f"loss={loss} has no correct_target; leave it out")
            values["correct_target"] = True  # type: ignore[assignment]
        made = convert(config, values, "loss.")
    if sampler.losses == ("full",) and made.name in _SAME_AS_FULL:
        return FullLoss(name="full")
    sampler.check_loss(made)
    return made


def counts_of(class_counts: Any, num_classes: int) -> np.ndarray:
    """Return how often each class occurs in training, (N,) int64; None: once each."""
    if class_counts is None:
        return np.ones(num_classes, dtype=np.int64)
    values = class_counts.cpu().numpy() if isinstance(class_counts, torch.Tensor) else np.asarray(class_counts)
    require(values.shape == (num_classes,), f"class_counts: expected {num_classes} numbers, got shape {values.shape}")
    require(values.dtype.kind in "iu", f"class_counts: expected integers, got {values.dtype}")
    require(bool((values >= 0).all()), "class_counts: a count is negative")
    return np.asarray(values.astype(np.int64))
