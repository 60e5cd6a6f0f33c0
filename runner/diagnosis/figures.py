"""Draw the figures of a diagnosis: cumulative distributions of all samplers, and each one's proposal by rank.

Legend: G groups of ranks.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runner.diagnosis.record import Diagnosis, Entry
from runner.report.figure_style import STYLE, Look, looks_of, new_figure, plain_log_ticks, save
from runner.report.plots import distribution_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def shown_in_figures(diagnosis: Diagnosis) -> list[Entry]:
    """Return the entries with a curve of their own; samplers that take every class have none."""
    return [entry for entry in diagnosis.entries if entry.measures["kl"] is not None]


def draw(diagnosis: Diagnosis, folder: Path) -> list[Path]:
    """Write both figures as PNG and SVG; return the paths of the PNGs."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        ranked = by_rank(diagnosis)
        if ranked is None:
            return []
        together = cumulative_of({f"{diagnosis.made['dataset']}: what is proposed beside the softmax": diagnosis})
        return [save(together, folder / "cumulative"), save(ranked, folder / "proposal_by_rank")]


def cumulative_of(panels: Mapping[str, Diagnosis]) -> "Figure":
    """Draw cumulative q and p over classes by decreasing p, a panel for each title.

    This is how the MIDX paper compares proposals.
    """
    figure, axes = new_figure(1, len(panels), width=5.4, height=4.4)
    for axis, (title, diagnosis) in zip(axes[0], panels.items(), strict=True):
        # A sampler that avoids targets is compared with the softmax of the other classes, which is another curve.
        shown = [entry for entry in shown_in_figures(diagnosis) if not entry.avoids_targets]
        if not shown:
            continue
        ends_G = np.array(shown[0].cumulative["rank_end"])
        axis.plot(ends_G, shown[0].cumulative["truth"], color="#000000", linewidth=3, alpha=0.85, label="softmax")
        for place, (entry, look) in enumerate(zip(shown, _looks(shown), strict=True)):
            every = max(1, len(ends_G) // 12)
            axis.plot(
                ends_G, entry.cumulative["proposal"], color=look.colour, linewidth=1.6, linestyle=look.linestyle,
                marker=look.marker, markersize=5,
                markevery=(place % every, every), label=entry.name,
            )  # fmt: skip
        axis.set(xscale="log", xlim=(1, ends_G[-1]), ylim=(0, 1.02), xlabel="classes, most probable first", title=title)
        plain_log_ticks(axis.xaxis)
    axes[0, 0].set_ylabel("cumulative probability, mean over rows")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure


def by_rank(diagnosis: Diagnosis) -> "Figure | None":
    """Draw the probability of a class by its rank, a panel for each sampler; return None if no sampler draws."""
    shown = shown_in_figures(diagnosis)
    if not shown:
        return None
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = new_figure(rows, columns, width=2.7, height=2.5)
    for place, axis in enumerate(axes.flat):
        if place >= len(shown):
            axis.set_axis_off()
            continue
        entry, look = shown[place], _looks(shown)[place]
        distribution_panel(axis, entry.distribution, look)
        axis.set_title(entry.name)
        axis.tick_params(labelsize=8, labelleft=place % columns == 0)
        axis.tick_params(labelbottom=place + columns >= len(shown))
    figure.supylabel("probability of a class", fontsize=10)
    figure.supxlabel("rank of the class by the model's logit", fontsize=10)
    title = f"{diagnosis.made['dataset']}: softmax (grey), proposal (colour), uniform (dashed)"
    figure.suptitle(title if columns > 2 else title.replace(": ", ":\n"), fontsize=11)
    return figure


def _looks(shown: Sequence[Entry]) -> list[Look]:
    looks = looks_of([entry.name for entry in shown])
    return [looks[entry.name] for entry in shown]
