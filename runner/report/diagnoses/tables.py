"""Make the tables of a diagnosis: proposals compared with the softmax, and errors of gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from runner.report.diagnoses.record import Diagnosis, Entry
from runner.report.numbers.sweep import exact
from runner.report.pages.layout import markdown_table

_NOTES = (
    "p: full softmax; q: the sampler's expected counts, normalised over all classes. Divergences in nats.",
    "`inf`: some class with p > 0 cannot be drawn; the reachable mass is the share of p that can be drawn.",
    "Effective sample size: (sum w)^2 / sum w^2 of the candidates' weights w = exp(logit) / expected count.",
    "Covered mass: softmax probability of the distinct candidates and targets together.",
    "Recall of the nearest 10: share of the ten most likely classes that are among a draw's candidates.",
    "Gradients are those of the loss named; errors are relative to the norm of full softmax's gradient. Bias: the "
    "error of the mean of all draws, whose own noise is the noise floor. Without noise: the bias with that noise "
    "subtracted, over all rows at once (a value far below the floor may well be no bias at all). Deviation: the "
    "standard deviation of one draw.",
    "Mean ± standard deviation over test rows. Samplers that share candidates between rows saw all rows as one batch.",
)
_FRESH_NOTE = (
    "Fresh tables: each draw has its own hash functions, with tables built on the final weights; samplers without "
    "random tables have no such numbers."
)
_TARGETS_NOTE = "{name} never draws a row's own targets, which the loss adds: divergences are over the other classes."


def _text(value: Any, decimals: int) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,.{decimals}f}"


def _cell(measures: Mapping[str, Any], name: str, decimals: int) -> str:
    """Return ``mean ± deviation``, a status, or – if the measure does not apply."""
    value, deviation = measures.get(name), measures.get(f"{name}_deviation")
    text = _text(value, decimals)
    return text if deviation is None or isinstance(value, str) else f"{text} ± {deviation:.{decimals}f}"


def proposal_table(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return the table, as text, that compares each sampler's proposal with the softmax."""
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
            "Recall of the nearest 10": _cell(entry.measures, "recall", 3),
        }
        for entry in entries
    )


def gradient_table(entries: Sequence[Entry], what: str) -> pd.DataFrame:
    """Return the table, as text, of gradient errors with regard to ``what``: ``hidden`` or ``classes``."""
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
    """Return the notes that say how to read the tables."""
    entries = diagnosis.entries
    out = [*_NOTES]
    if any("fresh_hidden_bias" in entry.measures for entry in entries):
        out.append(_FRESH_NOTE)
    # If some class with p > 0 cannot be drawn in a few rows only, the mean is infinite all the same: say in how many.
    for entry in entries:
        rows, missed = entry.measures["rows"], entry.measures["rows_out_of_reach"]
        if entry.avoids_targets:
            out.append(_TARGETS_NOTE.format(name=entry.name))
        if 0 < missed < rows:
            out.append(f"{entry.name}: some class is out of reach in {missed} of {rows} rows.")
    return out


def settings(diagnosis: Diagnosis) -> str:
    """List each sampler's settings on a line of its own."""
    return "\n".join(
        f"- `{entry.name}`: "
        + ", ".join(f"{key}={exact(value)}" for key, value in entry.settings.items() if key != "name")
        + "".join(f", loss.{key}={exact(value)}" for key, value in entry.loss_settings.items() if key != "name")
        + f" ({entry.tables})"
        for entry in diagnosis.entries
    )


def made_line(diagnosis: Diagnosis) -> str:
    """Describe in one line the probe, weights and draws, and the day, commit and machine."""
    made = diagnosis.made
    commit = str(made["commit"] or "unknown")[:10] + (" + changes" if made["patch"] else "")
    return (
        f"{made['rows']} test rows of {made['dataset']} ({made['num_classes']:,} classes), weights of {made['run_id']} "
        f"after step {made['step']:,}, {made['draws']} draws; {made['started'][:10]}; commit {commit}; "
        f"{made['cpu']}, {made['threads']} of {made['cores']} cores"
    )


def tables(diagnosis: Diagnosis) -> dict[str, pd.DataFrame]:
    """Return the tables by caption; they hold text only."""
    return {
        "Proposal": proposal_table(diagnosis.entries),
        "Gradient with regard to the hidden state": gradient_table(diagnosis.entries, "hidden"),
        "Gradient with regard to the class vectors": gradient_table(diagnosis.entries, "classes"),
    }


def to_markdown(diagnosis: Diagnosis) -> str:
    """Return the whole diagnosis as Markdown."""
    parts = [f"# Diagnostics of {diagnosis.made['run_id']}"]
    parts.append(f"Made by `{diagnosis.made['command']}`  \n{made_line(diagnosis)}")
    for caption, frame in tables(diagnosis).items():
        parts += [f"## {caption}", markdown_table(frame)]
    listed = "\n".join(f"- {note}" for note in notes(diagnosis))
    return "\n\n".join([*parts, listed, "## Settings", settings(diagnosis)]) + "\n"


def as_frame(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return a row per sampler with every measure; measures that do not apply are empty."""
    return pd.DataFrame({"sampler": entry.name, "loss": entry.loss, **entry.measures} for entry in entries)


def curves_frame(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return the points of the figures' curves, those of ``shown_in_figures``: a row per sampler and group of ranks.

    ``rank_end`` is the last rank of the group, by decreasing probability. ``softmax`` and ``proposal`` are the
    cumulative probabilities of all ranks up to it, means over rows. The softmax that a sampler is compared with leaves
    the targets out if the sampler avoids them.
    """
    keys = ("rank_end", "truth", "proposal")
    return pd.DataFrame(
        {"sampler": entry.name, "rank_end": end, "softmax": truth, "proposal": proposal}
        for entry in entries
        for end, truth, proposal in zip(*(entry.cumulative[key] for key in keys), strict=True)
    )
