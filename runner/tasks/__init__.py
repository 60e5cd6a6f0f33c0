"""Choose the task of a run by its model and data: what a step trains on, what is measured, what is reported."""

from typing import Any

from runner.errors import require
from runner.options.settings import RunConfig
from runner.tasks.adaptive import AdaptiveLanguageModelling
from runner.tasks.base import Task
from runner.tasks.classification import Classification
from runner.tasks.counted import CountedClassification, CountedRecommendation
from runner.tasks.language import LanguageModelling
from runner.tasks.pairs import SentencePairs
from runner.tasks.recommendation import Recommendation
from runner.tasks.regression import LinearRegression, LogisticRegression
from runner.tasks.trees import LabelTrees

TASKS: dict[str, type[Task]] = {
    "rows": Classification,
    "text": LanguageModelling,
    "regression": LinearRegression,
    "logistic": LogisticRegression,
    "pairs": SentencePairs,
    "sequences": Recommendation,
    "counts": CountedRecommendation,
    "class_counts": CountedClassification,
    "label_trees": LabelTrees,
    "adaptive_text": AdaptiveLanguageModelling,
}


def task_class(config: RunConfig) -> type[Task]:
    """Return the class of a configuration's task, which can say without data what it measures.

    It is the task that the model names, or that of the data set's family; the adaptive output layer has one of its own.
    Raises ConfigError where none is registered.
    """
    family = config.dataset.family
    name = config.model.task if config.model.task is not None and config.model.reads == family else family
    if config.output.kind == "adaptive":
        require(
            name == "text",
            f"output.kind=adaptive is for texts, but dataset={config.dataset.name} holds {family}; leave it out",
        )
        name = "adaptive_text"
    require(
        name in TASKS,
        f"dataset={config.dataset.name} holds {family}, and no task is registered for {name} (only for"
        f" {', '.join(TASKS)}); register one with runner.registry.register_task",
    )
    return TASKS[name]


def task_of(config: RunConfig, data: Any) -> Task:
    """Return the task of a configuration; ``data`` is what ``config.dataset.build()`` returns."""
    return task_class(config)(config, data)


def rehearsal_of(config: RunConfig) -> Task:
    """Return the same task on a little throw-away data, for compiling kernels."""
    return task_class(config).rehearsal(config)


__all__ = [
    "TASKS",
    "AdaptiveLanguageModelling",
    "Classification",
    "CountedClassification",
    "CountedRecommendation",
    "LabelTrees",
    "LanguageModelling",
    "LinearRegression",
    "LogisticRegression",
    "Recommendation",
    "SentencePairs",
    "Task",
    "rehearsal_of",
    "task_class",
    "task_of",
]
