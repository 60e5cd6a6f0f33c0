"""Decide once which device a run uses, and say so if it is not the requested one."""

import dataclasses
import functools
import sys

import torch

from runner.errors import require
from runner.machine.clock import StageClock
from runner.machine.group import Place
from runner.options.settings import HardwareConfig, RunConfig

CPU = torch.device("cpu")


def settled(config: RunConfig) -> RunConfig:
    """Return the configuration as it can run here.

    If ``hardware=gpu`` cannot be used, the CPU takes its place and a line on standard error says why.
    """
    why = why_no_gpu(config)
    if why is None:
        return config
    print(f"hardware=gpu: no GPU is used, because {why}; the run uses the CPU", file=sys.stderr, flush=True)
    asked = config.hardware
    kept = ("threads", "parallel_jobs", "classes", "batch", "timeout")
    here = HardwareConfig(**{key: getattr(asked, key) for key in kept})
    return dataclasses.replace(config, hardware=here)


def why_no_gpu(config: RunConfig) -> str | None:
    """Return why the GPU that a configuration asks for cannot be used; None if it can, or if none is asked for."""
    if config.hardware.name != "gpu":
        return None
    if not config.has_classes:
        return f"model={config.model.name} has no class matrix"
    return None if torch.cuda.is_available() else f"torch finds no GPU that it can use{_reason()}"


def _reason() -> str:
    """Return what torch says of the GPU: it is built without CUDA, or the driver is too old, for instance."""
    if torch.version.cuda is None:
        return f" (torch {torch.__version__} is built without CUDA)"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f" ({str(error).splitlines()[0].rstrip('.')})"
    return ""


def clock_of(hardware: HardwareConfig) -> StageClock:
    """Return a clock for the stages of steps on the device of a configuration from ``settled``."""
    return StageClock(functools.partial(torch.cuda.Event, enable_timing=True) if hardware.name == "gpu" else None)


def device_of(hardware: HardwareConfig) -> torch.device:
    """Return the device of a network's weights; the configuration must come from ``settled``."""
    return torch.device("cuda") if hardware.name == "gpu" else CPU


def take_own_gpu(place: Place) -> None:
    """Let this process of several use the GPU of its number on its machine. Raises ConfigError if there are too few."""
    have = torch.cuda.device_count()
    require(
        place.here <= have,
        f"hardware=gpu: {place.here} processes were started on this machine, which has {have} GPU{'s' * (have != 1)};"
        " start one for each GPU",
    )
    torch.cuda.set_device(place.local)
