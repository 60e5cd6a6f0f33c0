"""What a network is trained for, by the family of its data: what a step sees, what is measured, what is told."""

from typing import Any

from runner.errors import require
from runner.settings import RunConfig
from runner.tasks.base import Task
from runner.tasks.classification import Classification
from runner.tasks.language import LanguageModelling

TASKS: dict[str, type[Task]] = {"rows": Classification, "text": LanguageModelling}


def task_class(config: RunConfig) -> type[Task]:
    """The class of a configuration's task, which needs no data to say what it measures.

    Raises ConfigError where nobody registered a task for the data set's family.
    """
    family = config.dataset.family
    require(
        family in TASKS,
        f"dataset={config.dataset.name} is of the family {family}, for which there is no task (of"
        f" {', '.join(TASKS)}): register one by runner.registry.register_task",
    )
    return TASKS[family]


def task_of(config: RunConfig, data: Any) -> Task:
    """The task of a configuration on its data set, as ``config.dataset.build()`` gives it."""
    return task_class(config)(config, data)


def rehearsal_of(config: RunConfig) -> Task:
    """The same task on throw-away data."""
    return task_class(config).rehearsal(config)


__all__ = ["TASKS", "Classification", "LanguageModelling", "Task", "rehearsal_of", "task_class", "task_of"]
