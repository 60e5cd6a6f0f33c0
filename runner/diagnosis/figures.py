"""``diagnostics/`` of a run folder: tables and figures of what ``runner.diagnosis.measures`` measured.

Legend: G groups of ranks.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from runner.report.figure_style import STYLE, Marker, looks_of, new_figure, plain_log_ticks, save
from runner.report.layout import markdown_table
from runner.report.plots import distribution_panel
from runner.training.run_folder import read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOTES = (
    "p: full softmax; q: the sampler's expected counts, normalised over all classes. Divergences in nats.",
    "`inf`: some class that the softmax can give can not be drawn; the reachable mass says how much of p can.",
    "Effective sample size: (sum w)^2 / sum w^2 of the candidates' weights w = exp(logit) / expected count.",
    "Covered mass: softmax probability of the distinct candidates and targets together.",
    "Gradients: of the loss named, against full softmax's, relative to its norm. Bias: of the mean of all draws, whose "
    "own noise is the floor; without noise: with that taken off, over all rows at once (far below the floor it may "
    "well be none). Deviation: of one draw.",
    "Mean ± standard deviation over test rows. Samplers that share candidates between rows saw all rows as one batch.",
)
_FRESH_NOTE = (
    "Fresh tables: each draw with hash functions of its own, built on the final weights; samplers without random "
    "tables have none."
)
_TARGETS_NOTE = "{name} draws outside a row's own targets, which the loss adds: divergences are over the others."


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One sampler: its settings, ``Measures.record()``, ``Measures.curves()``, ``proposal_against_truth``."""

    name: str
    loss: str
    settings: Mapping[str, Any]
    loss_settings: Mapping[str, Any]
    tables: str  # how its tables came about
    avoids_targets: bool
    measures: Mapping[str, Any]
    cumulative: Mapping[str, Any]
    distribution: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is written: ``made`` says where from (run id, step, probe, command, commit, machine)."""

    made: Mapping[str, Any]
    entries: tuple[Entry, ...]


# ---------------------------------------------------------------- tables


def _text(value: Any, decimals: int) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,.{decimals}f}"


def _cell(measures: Mapping[str, Any], name: str, decimals: int) -> str:
    """``mean ± deviation``, a status, or – where it does not apply."""
    value, deviation = measures.get(name), measures.get(f"{name}_deviation")
    text = _text(value, decimals)
    return text if deviation is None or isinstance(value, str) else f"{text} ± {deviation:.{decimals}f}"


def proposal_table(entries: Sequence[Entry]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Sampler": entry.name,
            "Loss": entry.loss,
            "Candidates": _text(entry.measures["candidates"], 0),
            "KL(p‖q)": _cell(entry.measures, "kl", 3),
            "log Σ p²/q": _cell(entry.measures, "renyi2", 3),
            "Effective sample size": _cell(entry.measures, "ess", 1),
            "Covered mass": _cell(entry.measures, "covered_mass", 3),
            "Reachable mass": _text(entry.measures["reachable_mass"], 3),
        }
        for entry in entries
    )


def gradient_table(entries: Sequence[Entry], what: str) -> pd.DataFrame:
    """``what``: hidden or classes."""
    has_fresh = any(f"fresh_{what}_bias" in entry.measures for entry in entries)
    rows = []
    for entry in entries:
        row = {"Sampler": entry.name, "Loss": entry.loss, "Candidates": _text(entry.measures["candidates"], 0)}
        row |= _bias_cells(entry.measures, what, "Bias, fixed tables" if has_fresh else "Bias", "")
        row["Deviation"] = _cell(entry.measures, f"{what}_std", 3)
        if has_fresh:
            row |= _bias_cells(entry.measures, f"fresh_{what}", "Bias over fresh tables", " (fresh)")
        rows.append(row)
    return pd.DataFrame(rows)


def _bias_cells(measures: Mapping[str, Any], prefix: str, title: str, suffix: str) -> dict[str, str]:
    return {
        title: _cell(measures, f"{prefix}_bias", 3),
        f"Noise floor{suffix}": _text(measures.get(f"{prefix}_noise_floor"), 3),
        f"Without noise{suffix}": _text(measures.get(f"{prefix}_bias_net"), 3),
    }


def notes(diagnosis: Diagnosis) -> list[str]:
    """How to read the tables."""
    entries = diagnosis.entries
    out = [*_NOTES]
    if any("fresh_hidden_bias" in entry.measures for entry in entries):
        out.append(_FRESH_NOTE)
    # A class of p > 0 out of reach in some rows only makes the mean infinite: say in how many.
    for entry in entries:
        rows, missed = entry.measures["rows"], entry.measures["rows_out_of_reach"]
        if entry.avoids_targets:
            out.append(_TARGETS_NOTE.format(name=entry.name))
        if 0 < missed < rows:
            out.append(f"{entry.name}: some class is out of reach in {missed} of {rows} rows.")
    return out


def settings(diagnosis: Diagnosis) -> str:
    """A line for each sampler."""
    return "\n".join(
        f"- `{entry.name}`: "
        + ", ".join(f"{key}={value}" for key, value in entry.settings.items() if key != "name")
        + "".join(f", loss.{key}={value}" for key, value in entry.loss_settings.items() if key != "name")
        + f" ({entry.tables})"
        for entry in diagnosis.entries
    )


def made_line(diagnosis: Diagnosis) -> str:
    """Probe, weights, draws; day, commit, machine."""
    made = diagnosis.made
    commit = str(made["commit"] or "unknown")[:10] + (" + changes" if made["patch"] else "")
    return (
        f"{made['rows']} test rows of {made['dataset']} ({made['num_classes']:,} classes), weights of {made['run_id']} "
        f"after step {made['step']:,}, {made['draws']} draws; {made['started'][:10]}; commit {commit}; "
        f"{made['cpu']}, {made['threads']} of {made['cores']} cores"
    )


def tables(diagnosis: Diagnosis) -> dict[str, pd.DataFrame]:
    """Caption -> table, text only."""
    return {
        "Proposal": proposal_table(diagnosis.entries),
        "Gradient with regard to the hidden state": gradient_table(diagnosis.entries, "hidden"),
        "Gradient with regard to the class vectors": gradient_table(diagnosis.entries, "classes"),
    }


def to_markdown(diagnosis: Diagnosis) -> str:
    parts = [f"# Diagnostics of {diagnosis.made['run_id']}"]
    parts.append(f"Made by `{diagnosis.made['command']}`  \n{made_line(diagnosis)}")
    for caption, frame in tables(diagnosis).items():
        parts += [f"## {caption}", markdown_table(frame)]
    listed = "\n".join(f"- {note}" for note in notes(diagnosis))
    return "\n\n".join([*parts, listed, "## Settings", settings(diagnosis)]) + "\n"


def as_frame(entries: Sequence[Entry]) -> pd.DataFrame:
    """A row per sampler: every measure, empty where it does not apply."""
    return pd.DataFrame({"sampler": entry.name, "loss": entry.loss, **entry.measures} for entry in entries)


# ---------------------------------------------------------------- figures


def shown_in_figures(diagnosis: Diagnosis) -> list[Entry]:
    """Samplers that take every class have no curve of their own."""
    return [entry for entry in diagnosis.entries if entry.measures["kl"] is not None]


def draw(diagnosis: Diagnosis, folder: Path) -> list[Path]:
    """PNG and SVG of both figures; returns the PNGs."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        ranked = by_rank(diagnosis)
        if ranked is None:
            return []
        together = cumulative_of({f"{diagnosis.made['dataset']}: what is proposed beside the softmax": diagnosis})
        return [save(together, folder / "cumulative"), save(ranked, folder / "proposal_by_rank")]


def cumulative_of(panels: Mapping[str, Diagnosis]) -> "Figure":
    """Cumulative q against cumulative p over classes by decreasing p (the MIDX paper's comparison of proposals), a
    panel for each title."""
    figure, axes = new_figure(1, len(panels), width=5.4, height=4.4)
    for axis, (title, diagnosis) in zip(axes[0], panels.items(), strict=True):
        # One that avoids targets is held against the softmax of the others, which is another curve.
        shown = [entry for entry in shown_in_figures(diagnosis) if not entry.avoids_targets]
        if not shown:
            continue
        ends_G = np.array(shown[0].cumulative["rank_end"])
        axis.plot(ends_G, shown[0].cumulative["truth"], color="#000000", linewidth=3, alpha=0.85, label="softmax")
        for place, (entry, (colour, marker)) in enumerate(zip(shown, _looks(shown), strict=True)):
            every = max(1, len(ends_G) // 12)
            axis.plot(
                ends_G, entry.cumulative["proposal"], color=colour, linewidth=1.6, marker=marker, markersize=5,
                markevery=(place % every, every), label=entry.name,
            )  # fmt: skip
        axis.set(xscale="log", xlim=(1, ends_G[-1]), ylim=(0, 1.02), xlabel="classes, most probable first", title=title)
        plain_log_ticks(axis.xaxis)
    axes[0, 0].set_ylabel("cumulative probability, mean over rows")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure


def by_rank(diagnosis: Diagnosis) -> "Figure | None":
    """Probability of a class by its rank, a panel for each sampler; None where no sampler draws."""
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
        entry, (colour, marker) = shown[place], _looks(shown)[place]
        distribution_panel(axis, entry.distribution, colour, marker)
        axis.set_title(entry.name)
        axis.tick_params(labelsize=8, labelleft=place % columns == 0)
        axis.tick_params(labelbottom=place + columns >= len(shown))
    figure.supylabel("probability of a class", fontsize=10)
    figure.supxlabel("rank of the class by the model's logit", fontsize=10)
    title = f"{diagnosis.made['dataset']}: softmax (grey), proposal (colour), uniform (dashed)"
    figure.suptitle(title if columns > 2 else title.replace(": ", ":\n"), fontsize=11)
    return figure


def _looks(shown: Sequence[Entry]) -> list[tuple[str, Marker]]:
    looks = looks_of([entry.name for entry in shown])
    return [looks[entry.name] for entry in shown]


# ---------------------------------------------------------------- the folder


def read(folder: Path) -> Diagnosis | None:
    """What ``write`` left in the folder, or None."""
    found = read_json(folder / "diagnostics.json")
    if found is None:
        return None
    entries = tuple(Entry(**entry) for entry in found.pop("samplers"))
    return Diagnosis(made=found, entries=entries)


def write(diagnosis: Diagnosis, folder: Path) -> None:
    """Replace ``folder`` by diagnostics.md, .csv, .json and the figures: all of them or, on a kill, none."""
    partial = folder.parent / f".{folder.name}-partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        (partial / "diagnostics.md").write_text(to_markdown(diagnosis))
        (partial / "diagnostics.csv").write_text(as_frame(diagnosis.entries).to_csv(index=False))
        everything = {**diagnosis.made, "samplers": [vars(entry) for entry in diagnosis.entries]}
        (partial / "diagnostics.json").write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")
        draw(diagnosis, partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
