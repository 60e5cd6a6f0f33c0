"""This module draws the headline against training seconds and marks the settings that no other setting beats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from runner.report.figure_style import STYLE, Look, looks_of, new_figure, plain_log_ticks
from runner.report.grids import PlannedRun, point_text
from runner.report.records import RunRecord, record_of
from runner.report.sweep import differing_keys, families, flat

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Finished runs that differ in nothing but the seed.

    ``text`` names the settings that distinguish it from others of its method.
    """

    method: str
    text: str
    records: tuple[RunRecord, ...]

    @property
    def costs(self) -> list[float]:
        """The training seconds of each run."""
        return [float(record.summary["train_seconds"]) for record in self.records]

    @property
    def qualities(self) -> list[float]:
        """Each run's headline on the test set, as it is printed."""
        return [record.quality for record in self.records]

    @property
    def middle(self) -> tuple[float, float]:
        """The means over the seeds: (training seconds, quality)."""
        return fmean(self.costs), fmean(self.qualities)

    @property
    def gain(self) -> float:
        """The mean quality, negated if lower is better, so that larger is always better."""
        return self.middle[1] if self.records[0].yardstick.headline.higher_is_better else -self.middle[1]


def settings_of_plan(runs: Sequence[PlannedRun]) -> list[Setting]:
    """Group the finished runs of one data set, whose seconds are numbers, by method and by what their grid sweeps."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        if _has_both(record_of(run)):
            groups.setdefault((run.method, point_text(run.point)), []).append(record_of(run))
    return [Setting(method=method, text=text, records=tuple(found)) for (method, text), found in groups.items()]


def settings_of_records(records: Sequence[RunRecord], keys: Sequence[str] = ()) -> list[Setting]:
    """Group finished runs of one data set, planned or not, by every setting that differs between runs of a method.

    The text shows the keys that differ; if ``keys`` are given, only those of them.
    """
    settings: list[Setting] = []
    for (_, method), alike in families([record for record in records if _has_both(record)]).items():
        differing = differing_keys(alike)
        groups: dict[str, list[RunRecord]] = {}
        for record in alike:
            groups.setdefault(_text(record, differing), []).append(record)
        shown = [key for key in differing if not keys or key in keys]
        settings += [
            Setting(method=method, text=_text(found[0], shown), records=tuple(found)) for found in groups.values()
        ]
    return settings


def _has_both(record: RunRecord) -> bool:
    """Tell whether the record has a quality, and seconds that can be compared."""
    return record.finished and not record.why_no_seconds


def _text(record: RunRecord, keys: Sequence[str]) -> str:
    setting = flat(record.config)
    return " ".join(f"{key.rpartition('.')[2]}={setting[key]}" for key in keys if key in setting)


def pareto(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings that no other setting beats in both seconds and quality, fastest first."""
    best: list[Setting] = []
    for setting in sorted(settings, key=lambda s: (s.middle[0], -s.gain)):
        if not best or setting.gain > best[-1].gain:
            best.append(setting)
    return best


# ---------------------------------------------------------------- drawing


def frontier(
    panels: Mapping[str, Sequence[Setting]], labels: Mapping[str, str], looks: Mapping[str, Look] | None = None
) -> "Figure":
    """Draw the settings of each title in a panel of its own.

    ``labels`` gives each method's printed name, in the legend's order. ``looks`` gives each method's look; the default
    is the look of the catalogue's method of the same name.

    A point is a setting, the mean of its seeds, which are drawn faint behind it. A line joins a method's points in the
    order of seconds. The ringed points on the grey staircase are the Pareto frontier.
    """
    import matplotlib

    looks = looks or looks_of(labels)
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(1, len(panels), width=8.0, height=5.6)
        for axis, (title, settings) in zip(axes[0], panels.items(), strict=True):
            _panel(axis, settings, labels, looks)
            axis.set_title(title)
        yardstick = next(s.records[0].yardstick for settings in panels.values() for s in settings)
        axes[0, 0].set_ylabel(yardstick.label_with_unit(yardstick.final))
        handles = {
            label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        order = [label for label in (*labels.values(), "Pareto frontier") if label in handles]
        figure.legend(
            [handles[label] for label in order], order, loc="outside lower center",
            ncols=min(len(order), 5 * len(panels)),
        )  # fmt: skip
        figure.draw_without_rendering()  # positions are final only now, and overlaps depend on them
        for axis, settings in zip(axes[0], panels.values(), strict=True):
            _write_texts(axis, settings)
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
        for index, setting in enumerate(mine):
            label = labels[method] if index == 0 else None
            axis.plot(*setting.middle, linestyle="none", markersize=7, label=label, zorder=3, **style)
            if len(setting.records) > 1:
                seeds = setting.costs, setting.qualities
                axis.plot(*seeds, linestyle="none", markersize=3, alpha=0.4, zorder=2, **style)
    middles = [setting.middle for setting in best]
    axis.plot(
        *zip(*middles, strict=True), drawstyle="steps-post", color="#999999", linewidth=1.2,
        linestyle=(0, (4, 2)), zorder=1, label="Pareto frontier",
        marker="o", markersize=13, markerfacecolor="none", markeredgecolor="#444444", markeredgewidth=0.9,
    )  # fmt: skip
    axis.margins(0.12)
    axis.set_xscale("log")
    plain_log_ticks(axis.xaxis)
    axis.set_xlabel("seconds of training")


_FONT = 7.5  # points
_DISTANCES = (8, 15, 24, 34)  # points from a setting to its text; beyond the first, a thin line joins them
_NEAR = _DISTANCES[:2]  # the distances allowed for settings that are not on the frontier
_PLACES = [  # (right of the point, above it), places away from the staircase first
    (1, -1), (-1, 1), (-1, 0), (1, 0), (0, -1), (0, 1), (1, 1), (-1, -1),
]  # fmt: skip
Box = tuple[float, float, float, float]  # left, bottom, right, top in points


def _write_texts(axis: "Axes", settings: Sequence[Setting]) -> None:
    """Write each setting's text near its point, inside the axes, where it covers no point and no other text.

    Settings on the frontier come first and always get a text; other settings without a free place get none.
    """
    from matplotlib.patheffects import withStroke

    to_points = 72 / axis.get_figure().dpi  # type: ignore[union-attr]
    spots = {s: tuple(float(x) * to_points for x in axis.transData.transform(s.middle)) for s in settings}
    taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots.values()]
    left, bottom, right_end, top = (value * to_points for value in axis.bbox.extents)
    beyond = 1e4
    taken += [
        (left - beyond, -beyond, left, beyond), (right_end, -beyond, beyond, beyond),
        (left, -beyond, right_end, bottom), (left, top, right_end, beyond),
    ]  # fmt: skip
    best = pareto(settings)
    for setting in [*best, *(s for s in settings if s not in best)]:
        if not setting.text:
            continue
        x, y = spots[setting]
        choices = [
            (_box(x, y, right, above, distance, len(setting.text)), (right, above, distance))
            for distance in (_DISTANCES if setting in best else _NEAR)
            for right, above in _PLACES
        ]
        box, (right, above, distance) = min(choices, key=lambda choice: _overlap(choice[0], taken))
        if _overlap(box, taken) > 0 and setting not in best:
            continue
        taken.append(box)
        leader = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}
        written = axis.annotate(
            setting.text, setting.middle, xytext=_offset(right, above, distance), textcoords="offset points",
            ha=("right", "center", "left")[right + 1], va=("top", "center", "bottom")[above + 1], fontsize=_FONT,
            color="#000000" if setting in best else "#666666", zorder=4,
            arrowprops=leader if distance > _DISTANCES[0] else None,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip
        written.set_in_layout(False)


def _offset(right: int, above: int, distance: float) -> tuple[float, float]:
    """Return the offset (right, up) in points; a corner lies as far away as a side."""
    reach = distance / (right**2 + above**2) ** 0.5
    return right * reach, above * reach


def _box(x: float, y: float, right: int, above: int, distance: float, letters: int) -> Box:
    """Estimate the box that a text fills; a letter is taken to be about half as wide as high."""
    width, height = 0.56 * _FONT * letters, 1.2 * _FONT
    aside, up = _offset(right, above, distance)
    left = x + aside - width * (1 - right) / 2
    bottom = y + up - height * (1 - above) / 2
    return left, bottom, left + width, bottom + height


def _overlap(box: Box, taken: Sequence[Box]) -> float:
    """Return the area of ``box`` that the boxes already taken cover, in square points."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in taken
    )
