"""Draw the bias of sampled gradients against the divergence of the proposal, which bounds it in theory.

RF-softmax's Theorem 1 and MIDX's Theorem 6 bound the bias of the gradient that m draws estimate by how far the proposal
q is from the softmax p. In the latter it is at most a norm times the square root of d2 / m, where d2 is the sum of
p^2 / q over all classes.

Legend: P points of a line.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from runner.methods.catalogue import label_of
from runner.report.figures.style import looks_of, new_figure, plain_log_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDES = {"hidden": "the hidden state", "classes": "the class vectors"}


def bias_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the ``divergence`` and ``bias`` of each sampler, run and side of the layer whose bias is above its noise.

    ``frame``: the numbers of a diagnosis's table. Samplers that leave a class out have no finite divergence.
    ``divergence`` is d2 / m, where the logarithm of d2 is the mean over rows.
    """
    parts = []
    for side in _SIDES:
        bias = pd.to_numeric(frame[f"{side}_bias_net"], errors="coerce")  # "below noise" is no number
        divergence = np.exp(pd.to_numeric(frame["renyi2"], errors="coerce")) / frame["candidates"]
        named = frame[["dataset", "run", "run_id", "sampler"]]
        parts.append(named.assign(side=side, divergence=divergence, bias=bias))
    found = pd.concat(parts)
    return found[np.isfinite(found["divergence"]) & (found["bias"] > 0)]


def bias_against_divergence(frame: pd.DataFrame) -> "Figure | None":
    """Draw the points, a panel for each side. The last run's are filled. Return None if there are none."""
    points = bias_points(frame)
    if points.empty:
        return None
    looks = looks_of(list(dict.fromkeys(frame["sampler"])))
    reach_P = np.array([points["divergence"].min(), points["divergence"].max()])
    last = frame["run"].iloc[-1]
    figure, axes = new_figure(1, len(_SIDES), width=4.6, height=4.4)
    for axis, (side, words) in zip(axes[0], _SIDES.items(), strict=True):
        axis.plot(reach_P, np.sqrt(reach_P), color="#000000", linestyle="--", linewidth=1, label="√(d₂/m)")
        for point in points[points["side"] == side].to_dict("records"):
            look, is_last = looks[point["sampler"]], point["run"] == last
            axis.plot(
                point["divergence"], point["bias"], linestyle="none", marker=look.marker, color=look.colour,
                fillstyle="full" if is_last else "none", label=label_of(point["sampler"]) if is_last else None,
            )  # fmt: skip
        axis.set(xscale="log", yscale="log", title=f"Gradient with regard to {words}", xlabel="d₂ / m")
        plain_log_ticks(axis.xaxis)
        plain_log_ticks(axis.yaxis)
    axes[0, 0].set_ylabel("bias without noise, relative to the gradient")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
    runs = [str(run) for run in dict.fromkeys(frame["run"]) if run != last]
    figure.suptitle(f"Filled: {last}" + (f"; hollow: {', '.join(runs)}" if runs else ""), fontsize=11)
    return figure
