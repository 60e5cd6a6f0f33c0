"""``python -m runner``: Hydra chooses, typed Python means (see ``runner.config``)."""

import os
import sys

import hydra
from omegaconf import DictConfig

from runner.config import check_model_reads_dataset, explain, register_failure, to_run_config
from runner.training.run_folder import RunFolder

os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that one line can be printed here


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig) -> None:
    try:
        config = to_run_config(cfg)
        check_model_reads_dataset(config)
        config.sampler.check_processor()
        from runner.machine.compilation import compile_first
        from runner.training.run import run  # heavy imports come after the configuration is known to be right

        if not RunFolder(config.run_dir).is_finished() or config.force:
            compile_first(config)
        print(run(config), flush=True)
    except Exception as error:
        # A failing job of a sweep must not hide the others, so nothing is raised into Hydra's loop.
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
