"""Choose the task of a run by the family of its data: what a step trains on, what is measured, what is reported."""

from typing import Any

from runner.errors import require
from runner.settings import RunConfig
from runner.tasks.base import Task
from runner.tasks.classification import Classification
from runner.tasks.language import LanguageModelling
from runner.tasks.pairs import SentencePairs

TASKS: dict[str, type[Task]] = {"rows": Classification, "text": LanguageModelling, "pairs": SentencePairs}


def task_class(config: RunConfig) -> type[Task]:
    """Return the class of a configuration's task, which can say without data what it measures.

    Raises ConfigError where no task is registered for the data set's family.
    """
    family = config.dataset.family
    require(
        family in TASKS,
        f"dataset={config.dataset.name} holds {family}, and no task is registered for {family} (only for"
        f" {', '.join(TASKS)}); register one with runner.registry.register_task",
    )
    return TASKS[family]


def task_of(config: RunConfig, data: Any) -> Task:
    """Return the task of a configuration; ``data`` is what ``config.dataset.build()`` returns."""
    return task_class(config)(config, data)


def rehearsal_of(config: RunConfig) -> Task:
    """Return the same task on a little throw-away data, for compiling kernels."""
    return task_class(config).rehearsal(config)


__all__ = [
    "TASKS",
    "Classification",
    "LanguageModelling",
    "SentencePairs",
    "Task",
    "rehearsal_of",
    "task_class",
    "task_of",
]
