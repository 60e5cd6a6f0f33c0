"""Collect what a figure shows as a table with run ids, one row for each point of each run.

Every frame has the columns ``dataset``, ``method`` (the row's name), ``label``, ``setting`` (the swept settings),
``seed`` and ``run_id``; what follows them depends on the kind of the figure. Metrics are as stored, unscaled. Seconds
are empty where they are no number (``RunRecord.why_no_seconds``). Lines of a figure are means over the seeds, smoothed
where the figure says so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from runner.report.numbers.group import of_other_data
from runner.report.numbers.learning import marked
from runner.report.numbers.records import RunRecord, record_of
from runner.report.spec.grids import PlannedRun, point_text
from runner.report.spec.tables import TableSpec

Points = Callable[[TableSpec, PlannedRun, RunRecord], Iterator[dict[str, Any]]]


def figure_data(spec: TableSpec, runs: Sequence[PlannedRun], points: Points | None = None) -> pd.DataFrame:
    """Return the points of all finished runs of a figure; an empty frame if there are none.

    ``points`` yields those of a run; without it, they are those of the figure's kind.
    """
    labels = {method.name: method.label for method in spec.grid.methods}
    rows = []
    other = of_other_data(map(record_of, runs))
    for run in runs:
        record = record_of(run)
        if not record.finished or run.run_id in other:
            continue
        about = {
            "dataset": run.dataset,
            "method": run.method,
            "label": marked(labels[run.method], [record]),
            "setting": point_text(run.point),
            "seed": run.seed,
            "run_id": run.run_id,
        }
        rows += [{**about, **point} for point in (points or _points)(spec, run, record)]
    return pd.DataFrame(rows)


def _seconds(record: RunRecord, seconds: float) -> float | None:
    return None if record.why_no_seconds else seconds


def _points(spec: TableSpec, run: PlannedRun, record: RunRecord) -> Iterator[dict[str, Any]]:
    if spec.kind in ("curves", "levels"):
        for metric in spec.metrics or (record.yardstick.curve,):
            for seen in record.of_kind("evaluation"):
                costs = {"epoch": seen["epoch"], "step": seen["step"]}
                seconds = _seconds(record, seen["train_seconds"])
                yield {**costs, "train_seconds": seconds, "metric": metric, "value": seen[metric]}
    elif spec.kind in ("effect", "frontier"):
        final = record.yardstick.final
        seconds = _seconds(record, record.summary["train_seconds"])
        yield {"train_seconds": seconds, "metric": final, "value": record.metric(final)}
    elif spec.kind == "frequency":
        frequency = record.summary["dataset"]["label_frequency"]
        for rank, count in zip(frequency["rank"], frequency["count"], strict=True):
            yield {"rank": rank, "training_rows": count}
    elif spec.kind == "distribution":
        for seen in record.of_kind("distribution"):
            for end, truth, proposal in zip(seen["rank_end"], seen["truth"], seen["proposal"], strict=True):
                yield {"step": seen["step"], "rank_end": end, "softmax": truth, "proposal": proposal}


def as_csv(frame: pd.DataFrame) -> str:
    """Return the text of a CSV file; numbers have six digits."""
    return frame.to_csv(index=False, float_format="%.6g")
