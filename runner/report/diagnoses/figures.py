"""Draw the figures of a diagnosis: cumulative distributions of all samplers, and each one's proposal by rank.

Legend: G groups of ranks.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.data.shared.cards import dataset_title
from runner.methods.catalogue import label_of
from runner.report.diagnoses.record import Diagnosis, Entry
from runner.report.figures.panels import Line, Panel, Scale, figure_of
from runner.report.figures.plots import distribution_panel
from runner.report.figures.style import Look, looks_of, new_figure, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SOFTMAX = Look("#000000", "", "-")


def shown_in_figures(diagnosis: Diagnosis) -> list[Entry]:
    """Return the entries with a curve of their own; samplers that take every class have none."""
    return [entry for entry in diagnosis.entries if entry.measures["kl"] is not None]


def draw(diagnosis: Diagnosis, folder: Path) -> list[Path]:
    """Write both figures as PNG and SVG; return the paths of the PNGs."""

    with styled():
        title = dataset_title(diagnosis.made["dataset"])
        ranked = by_rank(diagnosis, title)
        if ranked is None:
            return []
        together = cumulative_of({f"{title}: what is proposed beside the softmax": diagnosis})
        return [save(together, folder / "cumulative"), save(ranked, folder / "proposal_by_rank")]


def cumulative_of(panels: Mapping[str, Diagnosis]) -> "Figure":
    """Draw cumulative q and p over classes by decreasing p, panels of at most six samplers for each title.

    This is how the MIDX paper compares proposals.
    """
    row = []
    for title, diagnosis in panels.items():
        # A sampler that avoids targets is compared with the softmax of the other classes, which is another curve.
        shown = [entry for entry in shown_in_figures(diagnosis) if not entry.avoids_targets]
        if not shown:
            continue
        ends_G = np.array(shown[0].cumulative["rank_end"], dtype=float)
        truth_G = np.array(shown[0].cumulative["truth"])
        lines = [Line(label="softmax", look=_SOFTMAX, x_P=ends_G, y_P=truth_G, is_reference=True)]
        lines += [
            Line(label=label_of(entry.name), look=look, x_P=ends_G, y_P=np.array(entry.cumulative["proposal"]))
            for entry, look in zip(shown, _looks(shown), strict=True)
        ]
        row.append(
            Panel(
                title=title,
                lines=tuple(lines),
                x=Scale(label="classes, most probable first", is_log=True, low=1, high=ends_G[-1]),
                y=Scale(label="cumulative probability, mean over rows", low=0, high=1.02),
                has_key=True,
            )
        )
    return figure_of([row], width=4.0, height=3.6, most=3)


def by_rank(diagnosis: Diagnosis, title: str) -> "Figure | None":
    """Draw the stated probability of a class by its rank, a panel for each sampler; return None if no sampler draws.

    It follows from the expected counts that a sampler states for every class at the first step. Only where these depend
    on what was drawn, as with SCE's buckets, does the noise of a draw remain. Targets count, unless they are avoided.
    """
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
        distribution_panel(axis, _mass_of_groups(entry.cumulative), look)
        axis.set_title(label_of(entry.name))
        axis.tick_params(labelsize=8, labelleft=place % columns == 0)
        axis.tick_params(labelbottom=place + columns >= len(shown))
    figure.supylabel("probability of a class", fontsize=10)
    figure.supxlabel("rank of the class by its probability", fontsize=10)
    key = "softmax (grey), proposal (colour), uniform (dashed)"
    figure.suptitle(f"{title}: {key}" if columns > 2 else f"{title}:\n{key}", fontsize=11)
    return figure


def _mass_of_groups(cumulative: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return ``Divergence.curves()`` as the mass of each group of ranks, of every third group so that markers fit."""
    ends_G = np.array(cumulative["rank_end"])
    kept = np.unique(np.append(np.arange(0, len(ends_G), 3), len(ends_G) - 1))
    masses = {key: np.diff(np.array(cumulative[key])[kept], prepend=0.0) for key in ("truth", "proposal")}
    return {"rank_end": ends_G[kept], **masses}


def _looks(shown: Sequence[Entry]) -> list[Look]:
    looks = looks_of([entry.name for entry in shown])
    return [looks[entry.name] for entry in shown]
