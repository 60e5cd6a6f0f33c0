"""Tell whether a finished run's model learnt anything, by one rule for every table.

A number of a model that answers as if it had seen no features is no result of a method. What counts is the headline on
the test set, beside what needs no training: guesses at random, the largest class's share for accuracy, the mean for
regression, and equal chances of all types for perplexity. Naming the most frequent classes is a method, and passes.
"""

import math
from collections.abc import Iterable

from runner.report.numbers.records import RunRecord

NEVER_LEARNT = "never learnt"
_MARK = f" ({NEVER_LEARNT})"
_ERRORS = 2  # standard errors of a share of test rows, within which it is at chance


def why_not_learnt(record: RunRecord) -> str:
    """Return ``never learnt: REASON``; empty of a finished run that learnt, or whose summary does not tell."""
    if record.metric("test/r2") <= 0:
        return f"{NEVER_LEARNT}: no better than predicting the mean"
    data, key = record.summary.get("dataset", {}), record.yardstick.headline.key
    value = record.metric(record.yardstick.final)
    classes = data.get("num_classes")
    if key == "ppl" and classes and value > classes:
        return f"{NEVER_LEARNT}: perplexity above the {classes:,} types"
    chance = _chance(key, data)
    if chance is not None and value <= chance:
        return f"{NEVER_LEARNT}: {record.yardstick.headline.label} at chance"
    return ""


def marked(label: str, records: Iterable[RunRecord]) -> str:
    """Return the label of a line in a figure, which says so if one of its runs never learnt."""
    return label + _MARK if any(map(why_not_learnt, records)) else label


def _chance(key: str, data: dict[str, float]) -> float | None:
    """Return the value of a headline, as stored, up to which it is at chance; None where the data do not tell."""
    classes, rows = data.get("num_classes"), data.get("num_test")
    if key == "accuracy" and "largest_class_of_test" in data and rows:
        return _with_error(data["largest_class_of_test"], rows)
    if key == "p@1" and classes and rows and "labels_per_row" in data:
        return _with_error(data["labels_per_row"] / classes, rows)
    if key == "ndcg@10" and classes:  # one item of all is right, at a random rank
        return sum(1 / math.log2(rank + 1) for rank in range(1, 11)) / classes
    return None


def _with_error(share: float, rows: float) -> float:
    return share + _ERRORS * math.sqrt(share * (1 - share) / rows)
