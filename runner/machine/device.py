"""Which device a run uses, decided once and said where it is not the one asked for."""

import dataclasses
import sys

import torch

from runner.settings import HardwareConfig, RunConfig

CPU = torch.device("cpu")


def settled(config: RunConfig) -> RunConfig:
    """The configuration as it can run here: ``hardware=gpu`` falls back to the CPU with a line on standard error."""
    if config.hardware.name != "gpu":
        return config
    if not config.model.runs_on_gpu:
        why = f"model={config.model.name} has no part that runs on one"
    elif not torch.cuda.is_available():
        why = "there is none that torch can use"
    else:
        return config
    print(f"hardware=gpu: no GPU is used, {why}; the run goes on on the CPU", file=sys.stderr, flush=True)
    return dataclasses.replace(config, hardware=HardwareConfig(name="cpu", threads=config.hardware.threads))


def device_of(hardware: HardwareConfig) -> torch.device:
    """Return the device of the encoder under a settled configuration."""
    return torch.device("cuda") if hardware.name == "gpu" else CPU
