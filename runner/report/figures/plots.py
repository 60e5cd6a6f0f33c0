"""Draw the figures of conf/table from run folders."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.report.figures.axis_words import words_of
from runner.report.figures.curves import curves, line_by_value
from runner.report.figures.frontier import frontier, settings_of_plan
from runner.report.figures.panels import Panel, Scale, figure_of, shared_out
from runner.report.figures.style import Look, looks_of_rows, new_figure, plain_log_ticks, save, styled
from runner.report.numbers.group import of_other_data
from runner.report.numbers.records import record_of
from runner.report.spec.grids import Dataset, Grid, PlannedRun
from runner.report.spec.tables import TableSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_COLUMNS = 4  # of small panels


def draw(spec: TableSpec, runs: Sequence[PlannedRun], folder: Path) -> list[Path]:
    """Draw a figure of conf/table as PNG and SVG; return the paths of the PNGs, none if no run has finished.

    Curves of several metrics are a picture for each, NAME_METRIC.png, and so may be those of several data sets.
    """

    other = of_other_data(map(record_of, runs))
    for run_id, why in other.items():
        print(f"left out of {spec.name}: {run_id}: {why}", file=sys.stderr)
    finished = [run for run in runs if record_of(run).finished and run.run_id not in other]
    datasets = [d for d in spec.grid.datasets if any(run.dataset == d.name for run in finished)]
    if not datasets:
        return []
    with styled():
        if spec.kind == "distribution":
            figures = {f"{spec.name}_{d.name}": _distribution(spec.grid, d, finished) for d in datasets}
        elif spec.kind == "frontier":
            panels = {d.label: settings_of_plan([r for r in finished if r.dataset == d.name]) for d in datasets}
            panels = {label: settings for label, settings in panels.items() if settings}
            labels = {method.name: method.label for method in spec.grid.methods}
            figures = {spec.name: frontier(panels, labels, looks_of_rows(spec.grid.methods)) if panels else None}
        elif spec.kind == "curves":
            drawn = curves(spec, datasets, finished)
            figures = {"_".join(filter(None, (spec.name, part))): each for part, each in drawn.items()}
        elif spec.kind == "effect":
            figures = {spec.name: _effect(spec.grid, datasets, finished)}
        else:
            figures = {spec.name: _frequency(datasets, finished)}
        return [save(figure, folder / name) for name, figure in figures.items() if figure is not None]


# ---------------------------------------------------------------- the end of training by a swept setting


def _effect(grid: Grid, datasets: Sequence[Dataset], runs: Sequence[PlannedRun]) -> "Figure":
    """Draw the headline on the test set against the swept setting; methods without it are dashed lines across.

    Points are means over seeds, and bands are their standard deviation. A setting that lacks a seed's run is left out.
    """
    key = grid.sweep[0].key
    values = sorted({value for run in runs for _, value in run.point if not isinstance(value, str)})
    looks = looks_of_rows(grid.methods)
    yardstick = record_of(runs[0]).yardstick
    row = []
    for dataset in datasets:
        lines = []
        for method in grid.methods:
            mine = [run for run in runs if run.dataset == dataset.name and run.method == method.name]
            ends: dict[float | None, list[float]] = {}
            for run in mine:
                swept_to = dict(run.point).get(key)
                assert not isinstance(swept_to, str), "an effect is that of a number"
                ends.setdefault(swept_to, []).append(record_of(run).quality)
            if ends:
                is_reference = method.name == grid.baseline
                lines.append(line_by_value(method.label, looks[method.name], ends, is_reference=is_reference))
        rising = yardstick.headline.higher_is_better
        shown = np.concatenate([line.y_P for line in lines])
        row.append(
            Panel(
                title=dataset.label,
                lines=tuple(lines),
                x=Scale(label=words_of(key, [record_of(run) for run in runs]), is_log=True, ticks=tuple(values)),
                y=Scale(
                    label=yardstick.label_with_unit(yardstick.final), is_log=not rising and bool(np.nanmin(shown) > 0)
                ),
            )
        )
    return figure_of([row], height=4.0)


# ---------------------------------------------------------------- label frequency


def _frequency(datasets: Sequence[Dataset], runs: Sequence[PlannedRun]) -> "Figure | None":
    figure, axes = new_figure(1, len(datasets), width=4.6, height=3.4)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        record = next(record_of(run) for run in runs if run.dataset == dataset.name)
        frequency = record.summary["dataset"]["label_frequency"]
        rank, count = np.array(frequency["rank"]), np.array(frequency["count"])
        seen = count > 0
        axis.plot(rank[seen], count[seen], color="#0072B2", linewidth=2)
        axis.fill_between(rank[seen], count[seen], 0.5, color="#0072B2", alpha=0.12, linewidth=0)
        axis.set(xscale="log", yscale="log", xlabel="class, most frequent first", title=dataset.label)
        axis.set_ylim(bottom=0.5)
        axis.set_xlim(left=1)
        plain_log_ticks(axis.xaxis)
        plain_log_ticks(axis.yaxis)
        shape = record.summary["dataset"]
        axis.text(
            0.97, 0.95, f"{shape['num_classes']:,} classes\n{shape['num_train']:,} training rows",
            transform=axis.transAxes, ha="right", va="top", fontsize=9, color="#444444",
        )  # fmt: skip
    axes[0, 0].set_ylabel("training rows with the class")
    return figure


# ---------------------------------------------------------------- proposal against softmax


def _distribution(grid: Grid, dataset: Dataset, runs: Sequence[PlannedRun]) -> "Figure | None":
    """Draw the probability of a class by rank: a column per method that samples, a row before and after training."""
    shown, looks = [], looks_of_rows(grid.methods)
    for method in grid.methods:
        mine = [run for run in runs if run.dataset == dataset.name and run.method == method.name]
        if mine and method.name != grid.baseline:
            records = record_of(mine[0]).of_kind("distribution")
            if len(records) >= 2:
                shown.append((method, records[0], records[-1]))
    if not shown:
        return None
    groups = shared_out(shown, _MOST_COLUMNS)
    figure, axes = new_figure(2 * len(groups), max(map(len, groups)), width=2.8, height=2.4)
    for above, group in enumerate(groups):
        for place in range(axes.shape[1]):
            for below, when in enumerate(("before", "after")):
                axis = axes[2 * above + below, place]
                if place >= len(group):
                    axis.set_axis_off()
                    continue
                method, *records = group[place]
                distribution_panel(axis, records[below], looks[method.name])
                axis.tick_params(labelsize=8, labelleft=place == 0, labelbottom=below == 1)
                if below == 0:
                    axis.set_title(method.label)
                if place == 0:
                    axis.set_ylabel(f"{when} training")
    figure.supylabel("probability of a class", fontsize=10)
    figure.supxlabel("rank of the class by the model's logit", fontsize=10)
    figure.suptitle(f"{dataset.label}: softmax (grey), proposal (colour), uniform (dashed)", fontsize=11)
    return figure


def distribution_panel(axis: "Axes", record: Mapping[str, Any], look: Look) -> None:
    """Draw the masses of groups of ranks, as ``runner.measures.by_rank.proposal_against_truth`` returns them.

    The softmax is grey, the proposal has the look's colour, and the uniform distribution is dashed.
    """
    from matplotlib.ticker import LogLocator

    floor = 1e-9
    ends = np.array(record["rank_end"])
    sizes = np.diff(ends, prepend=0)
    middle = np.sqrt(np.maximum(ends - sizes + 1, 1) * ends)
    truth = np.maximum(np.array(record["truth"]) / sizes, floor)
    proposal = np.array(record["proposal"]) / sizes
    axis.fill_between(middle, truth, floor, color="#BBBBBB", alpha=0.6, linewidth=0, label="softmax")
    drawn = proposal > 0
    axis.plot(
        middle[drawn], proposal[drawn], color=look.colour, linewidth=1.8, marker=look.marker, markersize=3.5,
        label="proposal",
    )  # fmt: skip
    axis.axhline(1 / ends[-1], color="#555555", linewidth=0.9, linestyle=(0, (4, 3)))
    axis.set(xscale="log", yscale="log", ylim=(1e-7, 1), xlim=(1, ends[-1]))
    plain_log_ticks(axis.xaxis)
    plain_log_ticks(axis.yaxis)
    axis.yaxis.set_major_locator(LogLocator(base=100))  # not every power of ten: the zeros would be hard to count
