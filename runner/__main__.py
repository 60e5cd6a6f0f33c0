"""Run one configuration, ``python -m runner KEY=VALUE GROUP=NAME ...``, or with -m and lists of values a sweep.

Hydra composes the configuration; ``runner.config`` checks it and converts it to typed Python.
"""

import os
import sys
from typing import Any, NoReturn

import hydra
from omegaconf import DictConfig, OmegaConf

from runner.config import exit_code, explain, prepare_plugins, with_usual_model
from runner.home import CONF
from runner.machine.group import leave, speaking
from runner.machine.terminal import fitted, print_anything
from runner.options.words import readable
from runner.sweeps.job import carry_out
from runner.sweeps.sweep import sweep

os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its errors, and this module prints them as one line


def meanings(*, _root_: DictConfig) -> str:
    """Return what groups and keys mean, for the template of --help in conf/config.yaml."""
    from runner.commands.help import meanings

    config: Any = OmegaConf.to_container(_root_, resolve=False)
    return meanings(config)


OmegaConf.register_new_resolver("meanings", meanings, replace=True)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def main(cfg: DictConfig) -> None:
    """Check the composed configuration, run it, and print the path of the run folder."""
    carry_out(cfg)


def run() -> int:
    """Do what the words of the command line ask for; return the exit status."""
    print_anything()
    try:
        sys.argv[1:] = readable(sys.argv[1:])
        prepare_plugins(sys.argv[1:])
        sys.argv[1:] = with_usual_model(sys.argv[1:])
        if not sweep(sys.argv[1:]):
            main()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of --help, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        with speaking(explain(error)):
            print(fitted(f"error: {explain(error)}", sys.stderr), file=sys.stderr)
        return 2
    return exit_code()


def command() -> NoReturn:
    """Be the command ``runner``: plugins in the current folder are found, as ``python -m runner`` finds them."""
    sys.path.append(os.getcwd())
    end(run())


def end(status: int) -> NoReturn:
    """End the process with an exit status."""
    leave(status)
    sys.exit(status)


if __name__ == "__main__":
    end(run())
