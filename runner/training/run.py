"""A run from its configuration to its folder, and a finished run's network from its folder.

``python -m runner`` alone (13,575 classes, 4 epochs, LSH Label) ends near P@1 .66 in about a minute on 2 cores.
"""

import sys
from pathlib import Path
from typing import Any

from runner.config import check_model_reads_dataset
from runner.errors import ConfigError, DataError, DataNotPrepared, Diverged, RunnerError
from runner.machine import memory
from runner.machine.device import settled
from runner.machine.threads import set_threads
from runner.network import ClassNetwork, Network
from runner.settings import RunConfig
from runner.tasks import Task, task_of
from runner.training.loop import Training
from runner.training.progress import Progress
from runner.training.run_folder import RunFolder
from runner.training.schedule import Schedule


def run(config: RunConfig) -> Path:
    """Train, evaluate and write the run folder, whose path is returned.

    A finished configuration is not repeated (unless ``force``), an interrupted one resumes from its checkpoint.
    Raises RunnerError for data not prepared, a locked folder or a diverged loss; KeyboardInterrupt after
    leaving a checkpoint.
    """
    check_model_reads_dataset(config)
    config.sampler.check_processor()
    config = settled(config)
    threads = set_threads(config.hardware.threads)  # a wrong number is found before a folder is made
    folder = RunFolder(config.run_dir)
    with folder.locked():
        if config.force:
            config.dataset.build()  # before anything is deleted: the data may be gone
            folder.clear()
        if folder.is_finished():
            _check_same_data(config, folder)
            print(f"already finished, not repeated (force=true re-runs): {config.run_id}", file=sys.stderr)
            return folder.path
        summary: dict[str, Any] = {"status": "running", "run_id": config.run_id, "config": config.as_dict()}
        try:
            memory.reset_peak()
            data = config.dataset.build()
            _check_same_data(config, folder, data.checksum)
            training = Training(config, folder, task_of(config, data), data.checksum, summary, threads)
            folder.start(config)
            folder.write_summary(summary)
            training.go()
        except ConfigError:
            raise  # a mistake on the command line is no result; what the folder says stays
        except KeyboardInterrupt:
            folder.write_summary({**summary, "status": "interrupted"})
            raise
        except Diverged as error:
            folder.write_summary({**summary, "status": "diverged", "error": str(error)})
            raise
        except DataNotPrepared as error:
            folder.write_summary({**summary, "status": "skipped: data not prepared", "error": str(error)})
            raise
        except Exception as error:
            folder.write_summary({**summary, "status": "failed", "error": f"{type(error).__name__}: {error}"})
            raise
    return folder.path


def _check_same_data(config: RunConfig, folder: RunFolder, checksum: str | None = None) -> None:
    """Raise RunnerError when the folder's run saw other data than the configuration names now."""
    before = folder.provenance().get("data_checksum")
    if checksum is None and config.dataset.kind == "synthetic_xc":
        return  # its settings are its content, and making it anew can take long
    try:
        now = checksum or config.dataset.build().checksum
    except (ConfigError, DataError):
        return  # a finished run stays finished when its data are deleted
    if before is not None and before != now:
        raise RunnerError(f"the data changed since {folder.path} was made; force=true starts it again")


def load_trained(config: RunConfig, folder: RunFolder) -> tuple[ClassNetwork, Task, int]:
    """Return the network as a run left it, at its end or at its last checkpoint, its task, and the last step.

    Raises RunnerError when the weights were not kept or the data are not those the run saw.
    """
    data = config.dataset.build()
    _check_same_data(config, folder, data.checksum)
    kept = folder.load_weights()
    if kept is None:
        raise RunnerError(f"{folder.path} keeps no weights; force=true keep_weights=true makes the run again")
    config = settled(config)
    task = task_of(config, data)
    network: ClassNetwork = Network.of(config, task.build_head(), num_features=task.num_features)
    network.load_final_weights(kept.arrays)
    if kept.progress is not None:
        # Rows of a checkpoint may lag behind by steps of its epoch's learning rate; final weights do not.
        progress = Progress.of(kept.progress, str(folder.path))
        network.set_lr(Schedule.of(config, task.training.steps_per_epoch).rate(progress))
        network.read_all(kept.step + 1)
    return network, task, kept.step
