"""Run a configuration into its run folder, and load the network of a run from its folder."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.config import check_model_reads_dataset
from runner.door.data import open_data
from runner.errors import ConfigError, DamagedRun, DataError, DataNotPrepared, Diverged, RunnerError, require
from runner.machine import memory
from runner.machine.device import settled
from runner.machine.group import Place, meet
from runner.machine.terminal import fitted
from runner.machine.threads import set_threads
from runner.network import ClassNetwork
from runner.options.settings import CPU, RunConfig
from runner.output.across import ALONE, Across, block_of
from runner.parts import task_of
from runner.tasks import Task
from runner.training import compilation
from runner.training.loop import Training
from runner.training.needs import check_memory
from runner.training.prediction import restored_task
from runner.training.progress import Progress
from runner.training.ranks_folder import RanksFolder
from runner.training.run_folder import RunFolder, description, provenance
from runner.training.same_run import DATA_CHANGED, changed_plugin, difference
from runner.training.schedule import Schedule
from runner.training.stored_arrays import fitting
from runner.training.trackers import Trackers, check_libraries, trackers_of


def run(config: RunConfig, *, compiles_apart: bool = False) -> Path:
    """Train, evaluate and write the run folder; return its path.

    A finished configuration is not repeated unless ``force`` is set; an interrupted one resumes from its checkpoint.
    ``compiles_apart``: another process first compiles what kernels are missing (see ``runner.training.compilation``),
    once all has been checked that needs none.
    Raises ConfigError for a wrong configuration, RunnerError if data are not prepared, the folder is locked or the loss
    diverges, and KeyboardInterrupt after it has saved a checkpoint.
    """
    check_model_reads_dataset(config)
    across = _ranks(config)
    check_libraries(config)
    config.model.check_installed()
    config = settled(config)
    config.check_processor()
    _say_where_it_draws(config)
    # This may raise ConfigError, which must be before a folder is made.
    threads = set_threads(config.hardware.threads, config.hardware.parallel_jobs)
    folder = RunFolder(config.run_dir) if across.size == 1 else RanksFolder(config.run_dir, across)
    with folder.locked():
        if config.force:
            open_data(config.dataset)  # the data may be missing, which must be found before anything is deleted
            folder.clear()
        folder.check(config.run_id)
        _check_same_run(config, folder)
        if folder.is_finished():
            _check_same_data(config, folder)
            folder.drop_what_resumes()  # a kill may have come between the result and this
            said = f"already finished, not repeated (force=true re-runs): {config.run_id}{_made_as(config, folder)}"
            print(fitted(said, sys.stderr), file=sys.stderr)
            return folder.path
        summary: dict[str, Any] = {"status": "running", **description(config)}
        trackers = Trackers({})
        try:
            memory.reset_peak()
            data = open_data(config.dataset)
            _check_same_data(config, folder, data.checksum)
            check_memory(config, data)
            task = task_of(config, data)
            task.across = across
            _check_task(config, task)
            _check_same_ranks(config, data, across)
            if compiles_apart:
                _compile(config, across)
            origin = provenance(config, threads, data.checksum)
            training = Training(config, folder, task, summary)
            folder.write_provenance(origin, resumed=training.resume())
            folder.start(config)
            folder.write_summary(summary)
            if config.tracker != "none":
                trackers = trackers_of(config, folder.observations())
                folder.mirror = trackers.observe
            training.go()
            across.end()
        except (ConfigError, DamagedRun, DataNotPrepared):
            raise  # a mistake on the command line, damage and missing data are no result: the folder is not changed
        except KeyboardInterrupt:
            _leave(folder, {**summary, "status": "interrupted"})
            raise
        except Diverged as error:
            _leave(folder, {**summary, "status": "diverged", "error": str(error)})
            raise
        except Exception as error:
            _leave(folder, {**summary, "status": "failed", "error": f"{type(error).__name__}: {error}"})
            raise
        finally:
            trackers.close(lambda: str((folder.summary() or {}).get("status")))
    return folder.path


def _ranks(config: RunConfig) -> Across:
    """Join the other processes of a split run. Raises RunnerError if they do not come, or are of another run."""
    place, split = Place.of_environment(), config.hardware.classes == "split"
    require(
        split or place.size == 1,
        f"{place.size} processes were started, but hardware.classes=whole trains in one; add hardware.classes=split",
    )
    group = meet(config.hardware.timeout)
    if group is None:
        return ALONE
    group.require_same("the settings", {"the run": config.run_id, "force": config.force})
    from runner.machine.device import CPU, device_of, take_own_gpu, why_no_gpu
    from runner.output.ranks import Ranks

    device = CPU if why_no_gpu(config) else device_of(config.hardware)
    if device.type == "cuda":
        take_own_gpu(place)
    return Ranks(group, device)


def _check_same_ranks(config: RunConfig, data: Any, across: Across) -> None:
    """Raise RunnerError unless all ranks read the same data, and ConfigError unless each gets some classes."""
    if across.size == 1:
        return
    across.require_same("the data", {"data of checksum": data.checksum})
    classes = data.num_classes
    lo, hi = block_of(classes, across.size - 1, across.size)
    each = block_of(classes, 0, across.size)[1]
    require(
        lo < hi,
        f"{classes:,} classes, {each:,} a process, leave none for the last of {across.size} processes; start at most"
        f" {-(-classes // each)}",
    )


def _compile(config: RunConfig, across: Across) -> None:
    """Compile missing kernels in another process, once for all ranks that share this machine."""
    if across.leads:
        compilation.compile_first(config)
    across.follow("compiling", _COMPILE_SECONDS)
    if not across.leads:
        compilation.compile_first(config)  # on another machine the first rank's kernels are not there


_COMPILE_SECONDS = 1800


def _say_where_it_draws(config: RunConfig) -> None:
    if config.hardware.name == CPU or not config.has_classes:
        return
    from runner.samplers.on_device import draws_on_device

    if not draws_on_device(config.sampler):
        said = f"sampler={config.sampler.name} draws on the CPU: each step copies hidden states there"
        print(said, file=sys.stderr)


def _made_as(config: RunConfig, folder: RunFolder) -> str:
    """Return in words which other method with the same settings named the run when it was made; empty if none did."""
    made_as = (folder.summary() or {}).get("config", {}).get("method")
    return f", made as method={made_as}, which has the same settings" if made_as not in (None, config.method) else ""


def _leave(folder: RunFolder, summary: dict[str, Any]) -> None:
    """Write how the run ended. If the disk does not take that, the status of its beginning stays."""
    with suppress(OSError, RunnerError):  # what ended the run tells more
        folder.write_summary(summary)


def _check_task(config: RunConfig, task: Task) -> None:
    """Announce what memory steps hold; raise ConfigError if examples, batches and memory do not go together."""
    config.batch_sampler.check_examples(task.examples)
    needed = config.batch_sampler.table_bytes(task.examples.count)
    require(
        needed <= memory.available_bytes(),
        f"the tables of batch_sampler={config.batch_sampler.name} take {needed / 2**30:.1f} GiB, but"
        f" {memory.available_bytes() / 2**30:.1f} GiB are free; set a smaller batch_sampler.L",
    )
    for notice in task.notices():
        print(notice, file=sys.stderr)


def _check_same_run(config: RunConfig, folder: RunFolder) -> None:
    """Raise RunnerError if the folder has results of other settings, plugins or devices than are meant now."""
    summary = folder.summary()
    if summary is None or not (folder.is_finished() or folder.has_checkpoint):
        return
    if changed := difference(config, summary, folder.provenance()):
        raise RunnerError(changed)


def _check_same_data(config: RunConfig, folder: RunFolder, checksum: str | None = None) -> None:
    """Raise RunnerError if the run of the folder was trained on other data than the configuration names now."""
    before = folder.provenance().get("data_checksum")
    if checksum is None and config.dataset.kind == "synthetic_xc":
        return  # its settings determine its content, and generating it again can take long
    try:
        now = checksum or open_data(config.dataset).checksum
    except (ConfigError, DataError):
        return  # a finished run stays finished even if its data were deleted
    if before is not None and before != now:
        raise RunnerError(f"{DATA_CHANGED} {folder.path} was made; force=true starts it again")


def load_trained(config: RunConfig, folder: RunFolder) -> tuple[ClassNetwork, Task, int]:
    """Return the network that a run left, its task, and the step of its weights.

    The weights are those of the end of the run or, before it, of the last checkpoint. Raises RunnerError if the weights
    were not kept or the data have changed since the run.
    """
    _warn_of_plugins(config, folder)
    data = open_data(config.dataset)
    _check_same_data(config, folder, data.checksum)
    config = settled(config)
    task = task_of(config, data)
    network, step = _with_weights(config, folder, task)
    return network, task, step


def load_to_rank(config: RunConfig, folder: RunFolder) -> tuple[ClassNetwork, Task, int]:
    """Return what ``load_trained`` does, to rank with, by the folder alone if it holds names and sizes.

    The task then has no examples. Raises RunnerError as ``load_trained``, and DamagedRun.
    """
    config_here = settled(config)
    task = restored_task(config_here, folder.path)
    if task is None:
        return load_trained(config, folder)
    _warn_of_plugins(config, folder)
    network, step = _with_weights(config_here, folder, task)
    return network, task, step


def _warn_of_plugins(config: RunConfig, folder: RunFolder) -> None:
    if changed := changed_plugin(config, folder.provenance(), folder.run_id):
        print(f"warning: {changed}", file=sys.stderr)


def _with_weights(config: RunConfig, folder: RunFolder, task: Task) -> tuple[ClassNetwork, int]:
    """Return the network of a task with the weights of the run's folder, and their step. Raises RunnerError."""
    kept = folder.load_weights()
    if kept is None:
        raise RunnerError(
            f"{folder.path} has no weights, because they were not kept; run its command again with force=true"
            " keep_weights=true"
        )
    network: ClassNetwork = task.build_network()
    arrays = kept.arrays
    if task.ranks_only:
        arrays = {name: array for name, array in arrays.items() if not name.startswith("sampler.")}
    with fitting(folder.path):
        network.load_final_weights(arrays)
    if kept.progress is not None:
        # Rows of a checkpoint may lag behind by some steps of its epoch's learning rate; final weights do not.
        progress = Progress.of(kept.progress, str(folder.path))
        network.set_lr(Schedule.of(config, task.training.steps_per_epoch).rate(progress))
        network.read_all(kept.step + 1)
    return network, kept.step
