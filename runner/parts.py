"""List models by name and tasks by family, and choose a run's task: what a step trains on, what is measured."""

from typing import Any

from runner.baselines.adaptive_task import AdaptiveLanguageModelling
from runner.baselines.counts import ItemKnnConfig, MarkovConfig, MostFrequentConfig, PopularityConfig
from runner.baselines.tasks import FittedClassification, FittedRecommendation
from runner.baselines.trees import OmikujiConfig
from runner.door.tasks import checked_task
from runner.errors import require
from runner.lgd.models import LogisticConfig, RegressionConfig
from runner.lgd.pairs.bert import BertConfig
from runner.lgd.pairs.task import SentencePairs
from runner.lgd.task import LinearRegression, LogisticRegression
from runner.models.base import ModelChoice
from runner.models.language import LstmConfig, TransformerConfig
from runner.models.mlp import LinearConfig, MlpConfig
from runner.models.sequences import Gru4recConfig, SasrecConfig
from runner.options.settings import RunConfig
from runner.tasks.base import Task
from runner.tasks.classification import Classification
from runner.tasks.language import LanguageModelling
from runner.tasks.recommendation import Recommendation

MODELS: dict[str, type[ModelChoice]] = {
    "mlp": MlpConfig,
    "linear": LinearConfig,
    "lstm": LstmConfig,
    "transformer": TransformerConfig,
    "regression": RegressionConfig,
    "logistic": LogisticConfig,
    "bert": BertConfig,
    "sasrec": SasrecConfig,
    "gru4rec": Gru4recConfig,
    "popularity": PopularityConfig,
    "most_frequent": MostFrequentConfig,
    "markov": MarkovConfig,
    "item_knn": ItemKnnConfig,
    "omikuji": OmikujiConfig,
}

TASKS: dict[str, type[Task]] = {
    "rows": Classification,
    "text": LanguageModelling,
    "regression": LinearRegression,
    "logistic": LogisticRegression,
    "pairs": SentencePairs,
    "sequences": Recommendation,
    "fitted_rows": FittedClassification,
    "fitted_sequences": FittedRecommendation,
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
    cls = task_class(config)
    return checked_task(lambda: cls(config, data), cls, config.dataset.family)


def rehearsal_of(config: RunConfig) -> Task:
    """Return the same task on a little throw-away data, for compiling kernels."""
    cls = task_class(config)
    return checked_task(lambda: cls.rehearsal(config), cls, config.dataset.family)
