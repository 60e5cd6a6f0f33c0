"""Make the runs of ``python -m runner -m KEY=A,B ...``: Hydra's grammar, composition and launchers around a plan.

Hydra's own loop of a sweep ends at the first combination that cannot be composed, and composes settings that go with a
swept sampler for another. So this loop composes every combination by itself before anything runs. Other sweepers
(``hydra/sweeper=...``) keep Hydra's loop.
"""

import sys
from collections.abc import Sequence

import hydra
from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, open_dict, read_write

from runner.config import CONF, Failure, register_failure, remember_failure, to_run_config
from runner.errors import require
from runner.machine.group import Place
from runner.machine.terminal import fitted
from runner.options.settings import RunConfig
from runner.sweeps.job import job as make_run
from runner.sweeps.launchers import at_once, pass_on_cores

_FLAGS = {"-m", "--multirun"}
_OF_THE_SWEEP = ("preset", "results_dir")  # what its own settings (hydra.*) may depend on


def sweep(words: Sequence[str]) -> bool:
    """Make the runs of the sweep that the command line asks for; return False if it asks for none that is made here.

    It asks for one by ``-m``, or by a preset with ``hydra.mode: MULTIRUN``. Failures of jobs are printed and remembered
    for ``exit_code``. Raises any error of Hydra's for what concerns the whole sweep.
    """
    flags = {word for word in words if word.startswith("-")}
    overrides = [word for word in words if word not in flags]
    if not flags <= _FLAGS or not (flags or any(word.startswith("preset=") for word in overrides)):
        return False
    with hydra.initialize_config_dir(str(CONF), job_name="runner", version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(overrides)
        whole = [
            override.input_line
            for override in parsed
            if override.is_hydra_override()
            or (override.key_or_group in _OF_THE_SWEEP and not override.is_sweep_override())
        ]
        master = loader.load_configuration("config", [line for line in whole if line], RunMode.MULTIRUN)
        sweeper = master.hydra.sweeper
        if not (flags or master.hydra.mode == RunMode.MULTIRUN) or not sweeper._target_.endswith(".BasicSweeper"):
            return False
        params = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
        require(
            Place.of_environment().size == 1,
            "a sweep (-m) starts its jobs itself: start it without torchrun, or give torchrun one configuration",
        )
        tasks = [override for override in parsed if not override.is_hydra_override()]
        tasks = [*OverridesParser.create(config_loader=loader).parse_overrides(params), *tasks]
        batches = BasicSweeper.split_arguments(tasks, None)
        _make_runs(loader, master, batches[0])
    return True


def _make_runs(loader: ConfigLoader, master: DictConfig, combinations: Sequence[Sequence[str]]) -> None:
    from runner.report.spec.grids import quoted
    from runner.sweeps.outcome import report
    from runner.sweeps.plan import heading, plan_jobs, plan_text

    pass_on_cores(master.hydra.launcher)
    context = HydraContext(config_loader=loader, callbacks=Callbacks(master))
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=make_run, config=master)
    jobs = plan_jobs(combinations, lambda overrides: _composed(loader, master, overrides))
    launched = [job for job in jobs if job.is_launched]
    batch = master.hydra.sweeper.max_batch_size or max(len(launched), 1)
    together = at_once(master.hydra.launcher, min(batch, len(launched)))
    _say(fitted(plan_text(jobs, together), sys.stderr))
    failures = {job.number: job.failure for job in jobs if job.failure is not None}
    for failed in failures.values():
        remember_failure(failed)
    shared = [f"hardware.parallel_jobs={together}"] if together > 1 else []
    words = [[f"hydra.job.name={quoted(heading(job, jobs, together))}", *shared, *job.overrides] for job in launched]
    try:
        for start in range(0, len(launched), batch):
            returned = launcher.launch(words[start : start + batch], initial_job_idx=start)
            for job, answer in zip(launched[start : start + batch], returned, strict=True):
                if (failure := _failure(answer)) is not None:
                    remember_failure(failure)
                    failures[job.number] = failure
    except KeyboardInterrupt:
        _say("stopped: finished runs are kept; the same command continues")
        raise
    except Exception as error:  # such as a worker that was killed; the run folders tell how far each job came
        register_failure(error)
    _say(report(jobs, failures))


def _composed(loader: ConfigLoader, master: DictConfig, overrides: Sequence[str]) -> RunConfig:
    cfg = loader.load_sweep_config(master, list(overrides))
    with read_write(cfg), open_dict(cfg):
        del cfg["hydra"]
    return to_run_config(cfg)


def _failure(answer: JobReturn) -> Failure | None:
    try:
        failure: Failure | None = answer.return_value
    except Exception as error:
        return register_failure(error)
    return failure


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
