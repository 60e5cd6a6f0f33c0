"""Check what tasks hand over: facts of the training data, batches and measures.

Legend: B rows of a batch, P targets of the batch, N classes.
"""

from typing import Any

from runner.contracts import Examples, Measure, TrainingFacts
from runner.door.arrays import (
    Wrong,
    check_array,
    check_count,
    check_ids,
    check_offsets,
    check_plain,
    demand,
    is_finite,
    is_number,
    row_out_of_order,
    shown,
)
from runner.door.guard import Guard, is_from_outside


def checked_task(make: Any, cls: type, family: str) -> Any:
    """Return the task that ``make`` makes; all that one from outside returns is checked. Raises PluginError."""
    if not is_from_outside(cls):
        return make()
    guard = Guard.of(cls, "task of family", family)
    task = guard.made(make)
    guard.check(lambda: _check_facts(task))
    num_classes = len(task.training.label_counts_N)

    def batch(made: Any, *_: Any, **__: Any) -> None:
        check_batch(made, num_classes)

    def measures(made: Any, *_: Any) -> None:
        demand(
            isinstance(made, dict) and bool(made), f"an evaluation must return a dict of measures, not {shown(made)}"
        )
        check_plain(made, "an evaluation")

    def subset(made: Any, *_: Any) -> None:
        measures(made)
        key = f"{task.watched(task.config)}/{task.headline().key}"
        demand(key in made, f"evaluate_subset lacks '{key}'; it has {', '.join(made)}")
        demand(isinstance(made[key], float | int), f"evaluate_subset has {shown(made[key])} for '{key}'")

    for name in ("batch", "probe", "glance"):
        guard.watch(task, name, batch)
    guard.watch(task, "evaluate_subset", subset)
    guard.watch(task, "evaluate_final", measures)
    guard.watch(task, "about_data", lambda made: check_plain(made, "about_data()"))
    return task


def check_batch(made: Any, num_classes: int) -> None:
    """Raise Wrong unless this is a batch whose targets and weights a head can take."""
    rows = getattr(made, "num_rows", None)
    demand(rows is not None, f"a batch must have num_rows, and {shown(made)} has not")
    check_count(rows, "num_rows")
    weight_B = getattr(made, "weight_B", None)
    if weight_B is not None:
        check_array(weight_B, "weight_B", "float32", rows)
        demand(is_finite(weight_B) and weight_B.min() >= 0, "weight_B must be finite and at least 0")
    if not num_classes:
        return
    for name in ("targets", "target_indptr"):
        demand(hasattr(made, name), f"a batch must have {name}, and {shown(made)} has not")
    check_array(made.targets, "targets", "int32", None)
    check_offsets(made.target_indptr, "target_indptr", rows, len(made.targets))
    check_ids(made.targets, "targets", num_classes)
    if (row := row_out_of_order(made.targets, made.target_indptr)) >= 0:
        raise Wrong(f"the targets of row {row} do not ascend, or repeat one")


def _check_facts(task: Any) -> None:
    examples, facts, measures = (getattr(task, name, None) for name in ("examples", "training", "measures"))
    demand(isinstance(examples, Examples), f"examples must be Examples, not {shown(examples)}")
    assert isinstance(examples, Examples)
    check_count(examples.count, "examples.count")
    if not isinstance(facts, TrainingFacts):
        raise Wrong(f"training must be TrainingFacts, not {shown(facts)}")
    check_array(facts.label_counts_N, "label_counts_N", "int64", None)
    demand(not len(facts.label_counts_N) or facts.label_counts_N.min() >= 0, "label_counts_N has a number below 0")
    check_count(facts.num_rows, "training.num_rows")
    check_count(facts.steps_per_epoch, "training.steps_per_epoch")
    check_count(getattr(task, "num_features", None), "num_features", low=0)
    for name in ("rows_per_step", "rows_per_epoch"):
        check_count(getattr(task, name, None), name)
    are_measures = isinstance(measures, list | tuple) and all(isinstance(one, Measure) for one in measures)
    demand(are_measures, f"measures must be a tuple of Measure, not {shown(measures)}")
    headlines = sum(one.headline for one in measures or ())
    demand(headlines == 1, f"one measure must be the headline, not {headlines}")
    for one in measures or ():
        demand(is_number(one.scale), f"measure {one.key} has the scale {shown(one.scale)}")
