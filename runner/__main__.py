"""Run one configuration: ``python -m runner KEY=VALUE GROUP=NAME ...``.

Hydra composes the configuration; ``runner.config`` checks it and converts it to typed Python.
"""

import os
import sys

import hydra
from omegaconf import DictConfig

from runner.config import check_model_reads_dataset, explain, register_failure, to_run_config
from runner.training.run_folder import RunFolder

os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its errors, and this module prints them as one line


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """Check the composed configuration, run it, and print the path of the run folder."""
    try:
        config = to_run_config(cfg)
        check_model_reads_dataset(config)
        if config.sampler is not None:
            config.sampler.check_processor()
        from runner.machine.compilation import compile_first
        from runner.training.run import run  # a wrong configuration is reported before these slow imports

        if config.force or not RunFolder(config.run_dir).is_finished():
            compile_first(config)
        print(run(config), flush=True)
    except Exception as error:
        # An error raised into Hydra's loop would end the whole sweep; a failed job must not stop the other jobs.
        register_failure(error)


if __name__ == "__main__":
    from runner.config import exit_code, prepare_plugins

    try:
        prepare_plugins(sys.argv[1:])
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(exit_code())
