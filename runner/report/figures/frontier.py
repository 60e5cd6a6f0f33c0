"""Draw the headline against training seconds and mark the settings that no other setting beats."""

import logging
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from runner.report.figures.style import Look, looks_of, new_figure, plain_log_ticks, plain_ticks, styled
from runner.report.numbers.group import Group, Numbers, Origins
from runner.report.numbers.quantities import QUANTITIES
from runner.report.numbers.records import RunRecord, record_of
from runner.report.numbers.sweep import differing_keys, families, setting_text, telling_keys
from runner.report.spec.grids import PlannedRun, point_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Setting(Group):
    """Finished runs that differ in nothing but the seed.

    ``text`` names the settings that distinguish it from others of its method. ``metric`` is what is judged; empty for
    the headline on the test set.
    """

    method: str
    text: str
    metric: str = ""

    @property
    def costs(self) -> Numbers:
        """The training seconds of each run."""
        return self.numbers(QUANTITIES["train_seconds"].of)

    @property
    def judged(self) -> str:
        """The name of the metric."""
        return self.metric or self.records[0].yardstick.final

    @property
    def qualities(self) -> Numbers:
        """Each run's metric, as it is printed."""
        return self.numbers(lambda record: record.scaled(self.judged))

    @property
    def middle(self) -> tuple[float, float]:
        """The means over the seeds: (training seconds, quality)."""
        return self.costs.mean, self.qualities.mean

    @property
    def gain(self) -> float:
        """The mean quality, negated if lower is better, so that larger is always better."""
        rising = self.records[0].yardstick.measure(self.judged).higher_is_better
        return self.middle[1] if rising else -self.middle[1]


def settings_of_plan(runs: Sequence[PlannedRun]) -> list[Setting]:
    """Group the finished runs of one data set, whose seconds are numbers, by method and by what their grid sweeps."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        if _has_both(record_of(run)):
            groups.setdefault((run.method, point_text(run.point)), []).append(record_of(run))
    return [Setting(method=method, text=text, records=tuple(found)) for (method, text), found in groups.items()]


def settings_of_records(records: Sequence[RunRecord], keys: Sequence[str] = (), metric: str = "") -> list[Setting]:
    """Group finished runs of one data set, planned or not, by every setting that differs between runs of a method.

    The text shows the keys that differ; if ``keys`` are given, only those of them.
    """
    settings: list[Setting] = []
    origins = Origins(records)
    for (_, method), alike in families([record for record in records if _has_both(record)]).items():
        differing = differing_keys(alike)
        groups: dict[str, list[RunRecord]] = {}
        for record in alike:
            groups.setdefault(f"{setting_text(record, differing)} {origins.text(record)}", []).append(record)
        shown = [key for key in differing if key in keys] if keys else telling_keys(alike, differing)
        settings += [
            Setting(
                method=method,
                text=f"{setting_text(found[0], shown)} {origins.text(found[0])}".strip(),
                records=tuple(found),
                metric=metric,
            )
            for found in groups.values()
        ]
    return settings


def _has_both(record: RunRecord) -> bool:
    """Tell whether the record has a quality, and seconds that can be compared."""
    return record.finished and not record.why_no_seconds


def pareto(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings that no other setting beats in both seconds and quality, fastest first."""
    best: list[Setting] = []
    for setting in sorted(settings, key=lambda s: (s.middle[0], -s.gain)):
        if not best or setting.gain > best[-1].gain:
            best.append(setting)
    return best


# ---------------------------------------------------------------- drawing

_FONT = 8.0  # points
_MOST_TEXTS = 16  # of a panel; of more settings, only those that none of the others beats have a text
_LETTERS = 24  # of a line of a text
_MOVES = 400  # of texts that overlap
Box = tuple[float, float, float, float]  # least seconds, most seconds, least and most of the metric


def frontier(
    panels: Mapping[str, Sequence[Setting]], labels: Mapping[str, str], looks: Mapping[str, Look] | None = None
) -> "Figure":
    """Draw the settings of each title in a row of its own.

    ``labels`` gives each method's printed name. ``looks`` gives each method's look; the default is the look of the
    catalogue's method of the same name.

    A point is a setting, the mean of its seeds, which are drawn faint behind it. A line joins a method's points in the
    order of seconds. The ringed points on the grey staircase are the Pareto frontier. Settings that lie close together
    are enlarged in a second panel, which has their texts; of many settings, only the best have one.
    """

    looks = looks or looks_of(labels)
    crowds = {title: _crowd(settings) for title, settings in panels.items()}
    columns = 2 if any(crowds.values()) else 1
    with styled():
        figure, axes = new_figure(len(panels), columns, width=6.0, height=4.4)
        written: list[tuple[Axes, list[tuple[Setting, str, str]]]] = []
        for (title, settings), row in zip(panels.items(), axes, strict=True):
            crowd = crowds[title]
            _panel(row[0], settings, labels, looks)
            row[0].set_title(title)
            names = [(s, labels[s.method], looks[s.method].colour) for s in _one_of_each(settings)]
            swept = [s for s in settings if s.text]
            texts = [(s, s.text, "#000000") for s in (swept if len(swept) <= _MOST_TEXTS else pareto(swept))]
            written.append((row[0], names + ([] if crowd else texts)))
            if crowd:
                _panel(row[1], settings, labels, looks)
                _enlarge(row[0], row[1], crowd)
                inside = [s for s in settings if _is_inside(s, crowd)]
                named = [(s, labels[s.method], looks[s.method].colour) for s in _one_of_each(inside)]
                written.append((row[1], named + [text for text in texts if text[0] in inside]))
            elif columns == 2:
                row[1].set_axis_off()
            some = settings[0]
            row[0].set_ylabel(some.records[0].yardstick.label_with_unit(some.judged))
        handles, names_shown = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, names_shown, loc="outside lower center")
        figure.draw_without_rendering()  # positions are final only now, and overlaps depend on them
        figure.set_layout_engine("none")
        for axis, texts in written:
            _write(axis, texts, [s for settings in panels.values() for s in settings])
        return figure


def _panel(axis: "Axes", settings: Sequence[Setting], labels: Mapping[str, str], looks: Mapping[str, Look]) -> None:
    best = pareto(settings)
    for method in labels:
        mine = sorted((s for s in settings if s.method == method), key=lambda s: s.middle)
        if not mine:
            continue
        style: Any = {"color": looks[method].colour, "marker": looks[method].marker}
        middles = [setting.middle for setting in mine]
        if len(mine) > 1:
            axis.plot(
                *zip(*middles, strict=True), color=style["color"], linestyle=looks[method].linestyle, linewidth=1,
                alpha=0.45, zorder=2,
            )  # fmt: skip
        for setting in mine:
            axis.plot(*setting.middle, linestyle="none", markersize=7, zorder=3, **style)
            if len(setting.records) > 1:
                seeds = setting.costs.each, setting.qualities.each
                axis.plot(*seeds, linestyle="none", markersize=3, alpha=0.4, zorder=2, **style)
    middles = [setting.middle for setting in best]
    axis.plot(
        *zip(*middles, strict=True), drawstyle="steps-post", color="#999999", linewidth=1.2,
        linestyle=(0, (4, 2)), zorder=1, label="Pareto frontier: nothing is faster and better",
        marker="o", markersize=13, markerfacecolor="none", markeredgecolor="#444444", markeredgewidth=0.9,
    )  # fmt: skip
    axis.margins(0.12)
    axis.set_xscale("log")
    plain_log_ticks(axis.xaxis)
    plain_ticks(axis.yaxis)
    axis.set_xlabel("seconds of training")


def _one_of_each(settings: Iterable[Setting]) -> list[Setting]:
    """Return the best setting of each method, which its name is written beside."""
    best: dict[str, Setting] = {}
    for setting in settings:
        if setting.method not in best or setting.gain > best[setting.method].gain:
            best[setting.method] = setting
    return list(best.values())


def _crowd(settings: Sequence[Setting]) -> Box | None:
    """Return the box of the settings that have a text, if it is a small part of the panel; otherwise None."""
    swept = [setting for setting in settings if setting.text]
    if len(swept) < 3:
        return None
    inner, outer = _box(swept), _box(settings)
    if inner[0] == inner[1] or inner[2] == inner[3]:
        return None  # in one line, which no other scale would draw apart
    wide = math.log(inner[1] / inner[0]) / math.log(outer[1] / outer[0])
    high = (inner[3] - inner[2]) / (outer[3] - outer[2])
    return inner if wide * high < 0.2 else None


def _box(settings: Sequence[Setting]) -> Box:
    costs = [cost for setting in settings for cost in setting.costs.each]
    qualities = [quality for setting in settings for quality in setting.qualities.each]
    return min(costs), max(costs), min(qualities), max(qualities)


def _is_inside(setting: Setting, box: Box) -> bool:
    cost, quality = setting.middle
    return box[0] <= cost <= box[1] and box[2] <= quality <= box[3]


def _enlarge(whole: "Axes", part: "Axes", box: Box) -> None:
    """Show a box and what is around it in another panel, and mark it in the panel of the whole."""
    from matplotlib.patches import Rectangle

    reach, rise = (box[1] / box[0]) ** 0.15, 0.15 * (box[3] - box[2])
    left, right, low, high = box[0] / reach, box[1] * reach, box[2] - rise, box[3] + rise
    part.set_xlim(left, right)
    part.set_ylim(low, high)
    plain_log_ticks(part.xaxis)
    part.set_title("enlarged")
    whole.add_patch(Rectangle((left, low), right - left, high - low, facecolor="none", edgecolor="#888888", lw=0.8))


def _write(axis: "Axes", texts: Sequence[tuple[Setting, str, str]], settings: Sequence[Setting]) -> None:
    """Write texts in their colours beside their settings, moved apart where they would overlap."""
    from adjustText import adjust_text
    from matplotlib.patheffects import withStroke

    if not texts:
        return
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    points = [s.middle for s in settings if left <= s.middle[0] <= right and low <= s.middle[1] <= high]
    bordered = [withStroke(linewidth=2, foreground="white")]
    with warnings.catch_warnings():  # texts that find no room stay where they are
        warnings.simplefilter("ignore", DeprecationWarning)
        logging.getLogger("adjustText").setLevel(logging.ERROR)
        adjust_text(
            [
                axis.text(
                    *s.middle, fill(text, _LETTERS), fontsize=_FONT, color=colour, zorder=4, path_effects=bordered
                )
                for s, text, colour in texts
            ],
            x=[x for x, _ in points],
            y=[y for _, y in points],
            target_x=[s.middle[0] for s, _, _ in texts],
            target_y=[s.middle[1] for s, _, _ in texts],
            ax=axis,
            expand=(1.3, 1.9),
            force_static=(0.3, 0.6),
            iter_lim=_MOVES,  # a limit of time would make the picture depend on the machine
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6},
        )
