"""Decide once which device a run uses, and say so if it is not the requested one."""

import dataclasses
import sys

import torch

from runner.options.settings import HardwareConfig, RunConfig

CPU = torch.device("cpu")


def settled(config: RunConfig) -> RunConfig:
    """Return the configuration as it can run here.

    If ``hardware=gpu`` cannot be used, the CPU takes its place and a line on standard error says why.
    """
    if config.hardware.name != "gpu":
        return config
    if not config.model.runs_on_gpu:
        why = f"model={config.model.name} has no part that runs on a GPU"
    elif not torch.cuda.is_available():
        why = "torch finds no GPU that it can use"
    else:
        return config
    print(f"hardware=gpu: no GPU is used, because {why}; the run uses the CPU", file=sys.stderr, flush=True)
    return dataclasses.replace(config, hardware=dataclasses.replace(config.hardware, name="cpu"))


def device_of(hardware: HardwareConfig) -> torch.device:
    """Return the device of the encoder; the configuration must come from ``settled``."""
    return torch.device("cuda") if hardware.name == "gpu" else CPU
