"""Train on a family of data and measure what was learnt. ``runner.parts`` lists all tasks."""

from runner.tasks.base import Task
from runner.tasks.classification import Classification
from runner.tasks.language import LanguageModelling
from runner.tasks.recommendation import Recommendation

__all__ = ["Classification", "LanguageModelling", "Recommendation", "Task"]
