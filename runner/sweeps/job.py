"""Make one run of what Hydra composed, alone or as a job of a sweep, in this process or in that of a launcher."""

import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from runner.config import Failure, check_model_reads_dataset, register_failure, to_run_config


def job(cfg: DictConfig) -> Failure | None:
    """Print the heading that the plan gave to the job, and make its run."""
    print(HydraConfig.get().job.name, file=sys.stderr, flush=True)
    return carry_out(cfg)


def carry_out(cfg: DictConfig) -> Failure | None:
    """Check the composed configuration, run it, and print the path of the run folder.

    A failure is printed and returned: raised into Hydra's loop, it would end the whole sweep, and a failed job must not
    stop the other jobs.
    """
    try:
        config = to_run_config(cfg)
        check_model_reads_dataset(config)
        config.check_processor()
        from runner.training.run import run  # a wrong configuration is reported before this slow import

        print(run(config, compiles_apart=True), flush=True)
    except Exception as error:
        return register_failure(error)
    return None
