"""The tables of a diagnosis: proposals beside the softmax, and errors of gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from runner.diagnosis.record import Diagnosis, Entry
from runner.report.layout import markdown_table

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
