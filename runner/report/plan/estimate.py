"""Estimate how long runs take: from earlier runs here, from runs elsewhere, or from the size of the data."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.baselines.trees import OmikujiConfig
from runner.data import CardConfig, SyntheticXcConfig
from runner.data.rows.card import Expected, RowsCard
from runner.data.rows.synthetic import Shape
from runner.data.sequences.card import ExpectedSequences, SequencesCard
from runner.data.sequences.synthetic import SyntheticLogConfig
from runner.data.shared.cards import load_card
from runner.data.text.card import ExpectedText, TextCard
from runner.data.text.python_topics import PythonTopicsConfig
from runner.models.language import LstmConfig, TransformerConfig
from runner.models.sequences import Gru4recConfig, SasrecConfig
from runner.options.settings import RunConfig
from runner.report.numbers.records import RunRecord
from runner.report.plan.reference_seconds import reference_seconds
from runner.report.plan.speed import Speed
from runner.report.spec.grids import PlannedRun
from runner.samplers.full import FullConfig

# These constants give the cost of runs in units of what ``speed`` measures. They come from the runs of grids lns and
# midx_lm on two idle cores of a Zen 4 processor. Products: our own tiles are faster than torch's product, whose logits
# go to memory, and ranking is slower. Reads: a candidate is read to score it and, with its moments, to update it.
_FULL_RATE, _RANKING_RATE, _TREE_RATE = 1.3, 0.65, 1 / 15  # of ``Speed.products``
_BF16_SHARE, _STORED_SHARE = 0.57, 0.8  # of full softmax's seconds
_SLOW_BF16_SHARE = 1.4  # of full softmax's seconds on an Intel Xeon without AMX
_READS, _READS_BY_BUCKET, _READS_SHARED = 1.5, 2.6, 0.15  # of a candidate's class vector
_ENCODES = 4.0  # of ``Speed.encoded_row``
_GROWS, _PREDICTS = 18.0, 130.0  # of ``Speed.encoded_row``: a row of one label tree, and a row's ranking by all trees
_HEAD_SHARE = 0.25  # of full softmax's seconds: adaptive softmax with its usual bands
_START_SECONDS, COMPILE_SECONDS = 4.5, 30.0  # every process starts; the first one of a kind of settings also compiles
_SHARED_START_SECONDS = 0.5  # of a run in a process that other runs have started
_TOPICS = ExpectedText(num_classes=3316, train_tokens=89_820, valid_tokens=7_632, test_tokens=8_653)  # Python 3.11's


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The sizes that an estimate needs. Rows are tokens if the data set is text, and events if it is a log."""

    classes: int
    trained: int  # rows of an epoch
    step: int  # rows of a batch
    evaluated: int  # rows evaluated in an epoch
    evaluated_last: int  # rows evaluated after the last epoch
    encode_seconds: float  # per trained row
    window: int = 1  # rows that are encoded to evaluate one


def estimate(run: PlannedRun, similar: Sequence[RunRecord], speed: Speed) -> tuple[float | None, bool]:
    """Return the estimated wall seconds of a run (None if unknown), and True if they are based on similar runs.

    ``similar``: finished runs that are ``similar_to`` it. Without any, seconds of the same run on another machine
    count, multiplied by this machine's slowness. All epochs count, though a validation set may end the training
    earlier. Compilation is left out, except of seconds from another machine.
    """
    config = run.config
    per_epoch = [record.seconds_per_epoch for record in similar]
    if not per_epoch and (elsewhere := reference_seconds(run)) is not None:
        return elsewhere * speed.slowness, False
    start = _START_SECONDS * speed.slowness
    if config.sampler is None and config.dataset.family == "pairs":  # an encoder of sentences: seconds a batch
        return (start + config.epochs * statistics.median(per_epoch), True) if per_epoch else (None, False)
    if is_short(config):  # such runs share a process, and their steps are cheap
        return _SHARED_START_SECONDS * speed.slowness + config.epochs * (
            statistics.median(per_epoch) if per_epoch else 0.0
        ), bool(per_epoch)
    work = _work(run, speed)
    if work is None:
        return (start + config.epochs * statistics.median(per_epoch), True) if per_epoch else (None, False)
    epochs = float(config.epochs)
    if config.max_steps is not None:
        epochs = min(epochs, config.max_steps / max(1, work.trained // work.step))
    if isinstance(config.model, OmikujiConfig):
        ranked_row, evaluated_row = 0.0, _PREDICTS * speed.encoded_row
    else:
        ranked_row = 2.0 * work.classes * config.model.dim / (_RANKING_RATE * speed.products)
        evaluated_row = ranked_row + work.window * work.encode_seconds / 3
    if per_epoch:
        trained = epochs * statistics.median(per_epoch)
    else:
        layer_seconds = _layer_seconds(run, work.classes, ranked_row, speed)
        trained = epochs * work.trained * (work.encode_seconds + layer_seconds)
    watched = work.evaluated * (epochs + config.evaluation.turn(trained) / config.evaluation.per_epoch)
    return start + trained + (watched + work.evaluated_last) * evaluated_row, bool(per_epoch)


def is_short(config: RunConfig) -> bool:
    """Tell whether the run shares a process with others: it scores no classes, so most such runs take a second."""
    return config.sampler is None and config.output.kind == "classes" and not isinstance(config.model, OmikujiConfig)


def _layer_seconds(run: PlannedRun, num_classes: int, ranked_row: float, speed: Speed) -> float:
    """Estimate the output layer's training seconds for one row from the number of classes that the sampler touches."""
    if isinstance(run.config.model, OmikujiConfig):
        return run.config.model.n_trees * _GROWS * speed.encoded_row
    sampler, dim, output = run.config.sampler, run.config.model.dim, run.config.output
    if output.kind == "adaptive":  # most rows need the head alone, and later bands have short vectors
        return _HEAD_SHARE * 8.0 * num_classes * dim / (_FULL_RATE * speed.products)
    if isinstance(sampler, FullConfig):
        seconds = 8.0 * num_classes * dim / (_FULL_RATE * speed.products)
        if sampler.takes_bf16:
            seconds *= _BF16_SHARE if sampler.bf16_pays else _SLOW_BF16_SHARE
        return seconds * (_STORED_SHARE if sampler.stored_logits != "none" else 1.0)
    candidates = min(getattr(sampler, "num_samples", 1000), num_classes)
    read_once = 4.0 * dim * candidates / speed.gathered
    if sampler.name == "rff":
        tree_flops = 4.0 * sampler.D * candidates * math.log2(num_classes)
        return _READS * read_once + tree_flops / (_TREE_RATE * speed.products)
    if sampler.name == "quadratic_tree":  # nodes are matrices, and a leaf is as many classes as coordinates
        nodes = math.log2(max(2.0, num_classes / dim)) + 1
        return _READS * read_once + 2.0 * nodes * dim**2 * candidates / (_TREE_RATE * speed.products)
    if sampler.name in ("topk", "exact", "quadratic", "midx_exact"):
        return 2.0 * ranked_row + _READS * read_once
    if getattr(sampler, "shared", False):
        return _READS_SHARED * read_once
    if sampler.name.startswith("lsh"):
        return _READS_BY_BUCKET * read_once * (1 + sampler.L / 400)
    return _READS * read_once


def _work(run: PlannedRun, speed: Speed) -> _Work | None:
    """Return the sizes of a run, or None if they are unknown until the data are read."""
    config, dataset = run.config, run.config.dataset
    shape: Expected | ExpectedText | ExpectedSequences | Shape | None = None
    if isinstance(dataset, CardConfig):
        card = load_card(dataset.name)
        shape = card.expected if isinstance(card, RowsCard | TextCard | SequencesCard) else None
    elif isinstance(dataset, SyntheticXcConfig):
        shape = dataset.shape
    elif isinstance(dataset, PythonTopicsConfig):
        shape = _TOPICS
    elif isinstance(dataset, SyntheticLogConfig):
        events = dataset.num_users * dataset.mean_length
        shape = ExpectedSequences(num_users=dataset.num_users, num_items=dataset.num_items, num_events=events)
    if shape is None:
        return None
    encode_seconds = _ENCODES * speed.encoded_row
    between_seconds = 6.0 * _weights_between(config.model) / (_RANKING_RATE * speed.products)
    if isinstance(shape, ExpectedSequences):
        if shape.num_users is None or shape.num_items is None or shape.num_events is None:
            return None
        return _Work(
            classes=shape.num_items,
            trained=max(1, round(0.8 * shape.num_events) - shape.num_users),  # nobody predicts a user's first event
            step=config.batch_size * config.model.length,
            evaluated=round(config.evaluation.per_epoch * 0.1 * shape.num_events),
            evaluated_last=round(0.2 * shape.num_events),
            encode_seconds=encode_seconds + between_seconds,
            window=min(config.model.length, math.ceil(shape.num_events / shape.num_users)),
        )
    if isinstance(shape, ExpectedText):
        if shape.train_tokens is None or shape.valid_tokens is None or shape.test_tokens is None:
            return None
        return _Work(
            classes=shape.num_classes,
            trained=shape.train_tokens,
            step=config.batch_size * config.windows.length,
            evaluated=config.evaluation.per_epoch * shape.valid_tokens,
            evaluated_last=2 * shape.test_tokens + shape.valid_tokens,
            encode_seconds=encode_seconds + between_seconds,
        )
    held = round(dataset.valid_share * shape.num_train)
    return _Work(
        classes=shape.num_classes,
        trained=shape.num_train - held,
        step=config.batch_size,
        evaluated=config.evaluation.per_epoch * min(config.evaluation.rows, held or shape.num_test),
        evaluated_last=shape.num_test + held,
        encode_seconds=encode_seconds,
    )


def _weights_between(model: Any) -> int:
    """Count the weights that every token or event is multiplied with before the output layer; 0 for other models."""
    if isinstance(model, LstmConfig):
        return model.layers * 4 * model.hidden * (model.embedding + model.hidden)
    if isinstance(model, Gru4recConfig):
        return model.layers * 3 * model.hidden * (model.embedding + model.hidden)
    if isinstance(model, TransformerConfig | SasrecConfig):
        return model.layers * model.embedding * (4 * model.embedding + 2 * model.feed_forward)
    return 0


# The sampler's settings that change the speed of a step.
_OF_SPEED = ("shared", "products", "stored_logits", "D", "num_samples", "refresh_every_steps")


def similar_to(run: PlannedRun, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records that have the run's data set, model, method, batch size and threads.

    Learning rate, length, K and L may differ.
    """
    ours = run.config.as_dict()
    return [record for record in records if _is_alike(record.config, ours)]


def _is_alike(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    alike = True
    for group in ("sampler", "loss", "batch_sampler"):
        mine, other = (config.get(group) or {} for config in (ours, theirs))
        alike &= mine.get("name") == other.get("name")
        alike &= all(mine.get(key) == other.get(key) for key in _OF_SPEED)
    alike &= all(theirs["optimizer"].get(key) == ours["optimizer"].get(key) for key in ("name", "rows"))
    alike &= all(_agree(theirs[key], ours[key]) for key in ("dataset", "model", "hardware"))
    return alike and theirs["batch_size"] == ours["batch_size"]


def _agree(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Tell whether sections are the same, but for options that are newer than a run."""
    return all(theirs[key] == ours[key] for key in theirs.keys() & ours.keys())
