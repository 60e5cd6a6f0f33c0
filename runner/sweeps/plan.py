"""Plan a sweep: what each job is to run, whether it can, what is finished already, and how long the others take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.config import Failure, check_model_reads_dataset, explain, prepare_plugins, with_usual_model
from runner.options.settings import CPU, RunConfig
from runner.report.numbers.records import all_records
from runner.report.plan.plan import Step, duration, plan_total, steps_of
from runner.report.spec.grids import PlannedRun


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job is one combination of the sweep.

    ``number`` counts from 1 and ``text`` has the settings that tell jobs apart. ``step`` is its place in the plan,
    ``failure`` tells why the combination cannot run, and ``same_as`` is the number of an earlier job with the same run.
    """

    number: int
    overrides: tuple[str, ...]
    text: str
    step: Step | None = None
    failure: Failure | None = None
    same_as: int | None = None

    @property
    def is_launched(self) -> bool:
        return self.step is not None and self.same_as is None

    @property
    def seconds_left(self) -> float:
        """The estimated seconds of a job that is still to run; 0 if they are unknown."""
        if self.step is None or not self.is_launched or not self.step.is_pending:
            return 0.0
        return self.step.seconds or 0.0

    @property
    def status(self) -> str:
        if self.failure is not None:
            return f"cannot run: {self.failure.reason}"
        if self.same_as is not None:
            return f"the same run as [{self.same_as}]"
        assert self.step is not None
        if not self.step.is_pending:
            return self.step.status
        memory = f"memory {self.step.memory}"
        if self.step.seconds is None:
            return f"{self.step.status}, for how long is not known, {memory}"
        about = "about" if self.step.measured else "~"
        return f"{self.step.status}, {about} {duration(self.step.seconds)}, {memory}"


def plan_jobs(combinations: Sequence[Sequence[str]], compose: Callable[[Sequence[str]], RunConfig]) -> list[Job]:
    """Return a job for each combination of overrides, which all set the same keys in the same order.

    ``compose(overrides)`` returns the configuration and may raise any error: the combination then has a failure, and
    the others are planned.
    """
    words = [with_usual_model(overrides) for overrides in combinations]  # some of several methods may set the model
    failures: dict[int, Failure] = {}
    runs: dict[int, PlannedRun] = {}
    first: dict[Path, int] = {}  # the number of the first job with a run folder
    for number, overrides in enumerate(words, start=1):
        try:
            prepare_plugins(overrides)  # it names words that Hydra would describe by its own types
            config = compose(overrides)
            check_model_reads_dataset(config)
            config = _settled(config)
        except Exception as error:  # whatever Hydra raises
            failures[number] = Failure(reason=explain(error), is_mistake=True)
        else:
            runs[number] = PlannedRun(
                dataset=config.dataset.name, method=config.method_name, seed=config.seed, overrides=(), config=config
            )
            first.setdefault(config.run_dir, number)
    folders = {run.config.run_dir.parents[1] for run in runs.values()}
    records = [record for folder in sorted(folders) for record in all_records(folder)]
    titled = [("", run) for run in runs.values()]
    steps = dict(zip(runs, steps_of(titled, records) if titled else [], strict=True))
    jobs = []
    for number, (overrides, text) in enumerate(zip(words, _texts(combinations), strict=True), start=1):
        earlier = first[runs[number].config.run_dir] if number in runs else number
        jobs.append(
            Job(
                number=number,
                overrides=tuple(overrides),
                text=text,
                step=steps.get(number),
                failure=failures.get(number),
                same_as=earlier if earlier != number else None,
            )
        )
    return jobs


def _settled(config: RunConfig) -> RunConfig:
    if config.hardware.name == CPU:
        return config
    from runner.machine.device import settled  # it imports torch

    return settled(config)


def _texts(combinations: Sequence[Sequence[str]]) -> list[str]:
    """Return what tells each combination from others; the whole of it if there is only one."""
    differs = [len(set(values)) > 1 for values in zip(*combinations, strict=True)]
    if not any(differs):
        differs = [True] * len(differs)
    return [" ".join(word for word, shown in zip(words, differs, strict=True) if shown) for words in combinations]


def plan_text(jobs: Sequence[Job], at_once: int) -> str:
    """Return a line for each job, and one that counts them and estimates their time; ``at_once`` run together."""
    lines = [f"[{job.number}/{len(jobs)}] {job.text}: {job.status}" for job in jobs]
    if steps := [job.step for job in jobs if job.step is not None and job.is_launched]:
        together = f"; {at_once} at once, whose seconds are longer and marked" if at_once > 1 else ""
        lines.append(plan_total(steps, at_once) + together)
    return "\n".join(lines)


def heading(job: Job, jobs: Sequence[Job], at_once: int) -> str:
    """Return what is printed when the job starts: its number, its settings, and the time that is left for the sweep."""
    left = sum(other.seconds_left for other in jobs[job.number - 1 :]) / at_once
    return f"[{job.number}/{len(jobs)}] {job.text}" + (f"; about {duration(left)} left" if left else "")
