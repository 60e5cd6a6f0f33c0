"""Know how Hydra's launchers share machines: how many jobs run at a time, and how many cores a job of Slurm has."""

import os
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write


def at_once(launcher: DictConfig, jobs: int) -> int:
    """Return how many of the jobs may share a machine at a time; their seconds are marked if it is more than one.

    On Slurm, jobs that do not ask for whole nodes may share one with each other.
    """
    options: Any = OmegaConf.to_container(launcher)
    name = _name(launcher)
    if name == "JoblibLauncher":
        from joblib import effective_n_jobs

        return min(effective_n_jobs(options["n_jobs"]), jobs)
    if name == "RayLauncher":
        cores = options["ray"]["init"].get("num_cpus") or os.cpu_count() or 1
        return max(1, min(int(cores / (options["ray"]["remote"].get("num_cpus") or 1)), jobs))
    if name == "LocalLauncher":  # submitit starts all of them
        return jobs
    if name == "SlurmLauncher" and options["additional_parameters"].get("exclusive") is not True:  # "user" shares
        return min(options["array_parallelism"], jobs)
    return 1  # one after the other, or each on a node of its own


def pass_on_cores(launcher: DictConfig) -> None:
    """Let jobs of Slurm have the cores that they ask for.

    submitit starts a job's process by ``srun``, which since Slurm 22.05 does not take ``cpus_per_task`` from the job:
    without its variable, the process would be bound to one core.
    """
    if _name(launcher) == "SlurmLauncher" and launcher.cpus_per_task is not None:
        with read_write(launcher), open_dict(launcher):
            launcher.setup = [*(launcher.setup or []), f"export SRUN_CPUS_PER_TASK={launcher.cpus_per_task}"]


def _name(launcher: DictConfig) -> str:
    return str(launcher._target_).rpartition(".")[2]
