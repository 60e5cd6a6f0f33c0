"""The figures of conf/table, from run folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.report.figure_style import COLOURS, MARKERS, OTHER, STYLE, new_figure, plain_log_ticks, save
from runner.report.frontier import frontier, settings_of_plan
from runner.report.records import RunRecord, record_of
from runner.tables import Column, Grid, Method, PlannedRun, TableSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(spec: TableSpec, runs: Sequence[PlannedRun], folder: Path) -> list[Path]:
    """Draw a figure of conf/table as PNG and SVG; returns the PNGs, none without finished runs."""
    import matplotlib

    finished = [run for run in runs if record_of(run).finished]
    columns = [column for column in spec.grid.datasets if any(run.dataset == column.name for run in finished)]
    if not columns:
        return []
    with matplotlib.rc_context(STYLE):
        if spec.kind == "distribution":
            figures = {f"{spec.name}_{c.name}": _distribution(spec.grid, c, finished) for c in columns}
        elif spec.kind == "frontier":
            panels = {c.label: settings_of_plan([r for r in finished if r.dataset == c.name]) for c in columns}
            figures = {spec.name: frontier(panels, {m.name: m.label for m in spec.grid.methods})}
        elif spec.kind == "curves":
            figures = {spec.name: _curves(spec.grid, columns, finished)}
        else:
            figures = {spec.name: _frequency(columns, finished)}
        return [save(figure, folder / name) for name, figure in figures.items() if figure is not None]


# ---------------------------------------------------------------- P@1 against seconds and against iterations


def _curves(grid: Grid, columns: Sequence[Column], runs: Sequence[PlannedRun]) -> "Figure":
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure, axes = new_figure(2, len(columns), width=5.2, height=3.5)
    for place, column in enumerate(columns):
        time_axis, step_axis = axes[0, place], axes[1, place]
        for method in grid.methods:
            mine = [record_of(run) for run in runs if run.dataset == column.name and run.method == method.name]
            if mine:
                _curve(time_axis, method, mine, "train_seconds")
                _curve(step_axis, method, mine, "step")
        time_axis.set_xscale("log")
        time_axis.set_title(column.label)
        time_axis.set_xlabel("seconds of training")
        step_axis.set_xlabel("iterations")
        step_axis.set_xlim(left=0)
        step_axis.xaxis.set_major_locator(MaxNLocator(6))
        step_axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        for axis in (time_axis, step_axis):
            axis.set_ylim(bottom=0)
        plain_log_ticks(time_axis)
    for row in range(2):
        axes[row, 0].set_ylabel("P@1 on the test subset, %")
    handles = {
        label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    order = [method.label for method in grid.methods if method.label in handles]
    figure.legend(
        [handles[label] for label in order],
        order,
        loc="outside lower center",
        ncols=min(len(order), 4 * len(columns)),
    )
    return figure


def _curve(axis: "Axes", method: Method, records: Sequence[RunRecord], x_key: str) -> None:
    """One line per method: the mean over seeds, with every seed's own line faint behind it."""
    colour = COLOURS.get(method.name, OTHER)
    lines = []
    for record in records:
        observed = record.of_kind("evaluation")
        lines.append(np.array([[item[x_key], 100 * item["test_subset/p@1"]] for item in observed]).reshape(-1, 2))
    if len(lines) > 1:
        for line in lines:
            axis.plot(line[:, 0], line[:, 1], color=colour, alpha=0.3, linewidth=0.8)
    shared = min(len(line) for line in lines)
    mean = np.mean([line[:shared] for line in lines], axis=0)
    axis.plot(
        mean[:, 0], mean[:, 1], color=colour, label=method.label, linewidth=1.8,
        marker=MARKERS.get(method.name, "."), markersize=4.5, markevery=max(1, shared // 16),
    )  # fmt: skip


# ---------------------------------------------------------------- label frequency


def _frequency(columns: Sequence[Column], runs: Sequence[PlannedRun]) -> "Figure | None":
    figure, axes = new_figure(1, len(columns), width=4.6, height=3.4)
    for axis, column in zip(axes[0], columns, strict=True):
        record = next(record_of(run) for run in runs if run.dataset == column.name)
        frequency = record.summary["dataset"]["label_frequency"]
        rank, count = np.array(frequency["rank"]), np.array(frequency["count"])
        seen = count > 0
        axis.plot(rank[seen], count[seen], color="#0072B2", linewidth=2)
        axis.fill_between(rank[seen], count[seen], 0.5, color="#0072B2", alpha=0.12, linewidth=0)
        axis.set(xscale="log", yscale="log", xlabel="class, most frequent first", title=column.label)
        axis.set_ylim(bottom=0.5)
        axis.set_xlim(left=1)
        shape = record.summary["dataset"]
        axis.text(
            0.97, 0.95, f"{shape['num_classes']:,} classes\n{shape['num_train']:,} training rows",
            transform=axis.transAxes, ha="right", va="top", fontsize=9, color="#444444",
        )  # fmt: skip
    axes[0, 0].set_ylabel("training rows with the class")
    return figure


# ---------------------------------------------------------------- proposal against softmax


def _distribution(grid: Grid, column: Column, runs: Sequence[PlannedRun]) -> "Figure | None":
    """Columns: methods that sample; rows: before and after training. Probability of a class by rank."""
    shown = []
    for method in grid.methods:
        mine = [run for run in runs if run.dataset == column.name and run.method == method.name]
        if mine and method.name != grid.baseline:
            records = record_of(mine[0]).of_kind("distribution")
            if len(records) >= 2:
                shown.append((method, records[0], records[-1]))
    if not shown:
        return None
    figure, axes = new_figure(2, len(shown), width=2.6, height=2.5)
    for place, (method, early, late) in enumerate(shown):
        for row, record in enumerate((early, late)):
            axis = axes[row, place]
            distribution_panel(axis, record, COLOURS.get(method.name, OTHER), MARKERS.get(method.name, "."))
            axis.tick_params(labelsize=8, labelleft=place == 0, labelbottom=row == 1)
            if row == 0:
                axis.set_title(method.label)
    axes[0, 0].set_ylabel("before training\nprobability of a class")
    axes[1, 0].set_ylabel("after training\nprobability of a class")
    figure.supxlabel("rank of the class by the model's logit", fontsize=10)
    figure.suptitle(f"{column.label}: softmax (grey), proposal (colour), uniform (dashed)", fontsize=11)
    return figure


def distribution_panel(axis: "Axes", record: Mapping[str, Any], colour: str, marker: str) -> None:
    """``diagnostics.proposal_against_truth`` drawn: softmax grey, proposal in colour, uniform dashed."""
    floor = 1e-9
    ends = np.array(record["rank_end"])
    sizes = np.diff(ends, prepend=0)
    middle = np.sqrt(np.maximum(ends - sizes + 1, 1) * ends)
    truth = np.maximum(np.array(record["truth"]) / sizes, floor)
    proposal = np.array(record["proposal"]) / sizes
    axis.fill_between(middle, truth, floor, color="#BBBBBB", alpha=0.6, linewidth=0, label="softmax")
    drawn = proposal > 0
    axis.plot(
        middle[drawn], proposal[drawn], color=colour, linewidth=1.8, marker=marker, markersize=3.5, label="proposal",
    )  # fmt: skip
    axis.axhline(1 / ends[-1], color="#555555", linewidth=0.9, linestyle=(0, (4, 3)))
    axis.set(xscale="log", yscale="log", ylim=(1e-7, 1), xlim=(1, ends[-1]))
