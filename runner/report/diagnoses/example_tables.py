"""Make the table and the figure of a diagnosis of samplers of training examples."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from runner.methods.catalogue import known_methods
from runner.report.diagnoses.record import ExampleDiagnosis, ExampleEntry
from runner.report.figures.panels import Line, Panel, Scale, figure_of
from runner.report.figures.style import looks_of, styled
from runner.report.numbers.sweep import exact
from runner.report.pages.layout import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_SAMPLES = (1, 10, 100, 1000)
_COURSES = {
    "gradient_norm": Scale(label="gradient norm / uniform's", low=0),
    "similarity": Scale(label="similarity to the true gradient"),
}
NOTES = (
    "Gradient norm: the mean norm of the drawn examples' gradients, divided by that of uniform draws. Variance: the"
    " trace of the covariance of the estimate by one draw, given the tables, divided by that of a uniform draw. Both"
    " are exact, by listing every outcome of a draw.",
    "Bias: the norm of the difference of the mean estimate, given the tables, and the true gradient, relative to that"
    " of the true gradient. More draws do not lower it. The paper's estimate is unbiased only over the draw of the hash"
    " functions. Empty: share of the tables whose bucket for the query is empty.",
    "Similarity: 1 - arccos(cosine) / pi of the mean of so many draws and the true gradient, the mean over repeats; 0.5"
    " is no better than a random direction.",
    "Lemma 1: left side of equation 8 divided by its right side, which is LGD's second moment over the draw of dense"
    " normal hash functions, divided by uniform's. Below 1 the condition holds, and LGD should have less variance. For"
    " sparse projections nobody knows joint chances, so the numbers of both rows are those of dense ones.",
)


def label_of(name: str) -> str:
    """Return the printed name of a sampler, which is the catalogue's."""
    return known_methods()[_look(name)].label


def _look(name: str) -> str:
    return "uniform_examples" if name == "uniform" else name


def table(entries: Sequence[ExampleEntry]) -> pd.DataFrame:
    """Return a row per sampler, as text."""
    rows = []
    for entry in entries:
        measures, samples = entry.measures, entry.course["samples"]
        row = {
            "Sampler": label_of(entry.name),
            "Gradient norm": _text(measures["gradient_norm"], "x"),
            "Variance": _text(measures["variance"], "x"),
            "Bias": _text(measures["bias"]),
            "Empty": f"{measures['empty']:.1%}" if "empty" in measures else "–",
        }
        for count in _SHOWN_SAMPLES:
            row[f"Similarity, {count:,}"] = _text(entry.course["similarity"][samples.index(count)])
        if "lemma_left" in measures:
            ratio = measures["lemma_left"] / measures["lemma_right"] if measures["lemma_right"] > 0 else None
            row["Lemma 1"] = "–" if ratio is None else f"{ratio:.3f}: {'holds' if ratio < 1 else 'does not hold'}"
        else:
            row["Lemma 1"] = "–"
        rows.append(row)
    return pd.DataFrame(rows)


def _text(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.3f}{unit}"


def as_frame(entries: Sequence[ExampleEntry]) -> pd.DataFrame:
    """Return a row per sampler with every measure, and its similarity by number of samples."""
    return pd.DataFrame(
        {
            "sampler": entry.name,
            **entry.measures,
            **{
                f"similarity_{count}": value
                for count, value in zip(entry.course["samples"], entry.course["similarity"], strict=True)
                if count in _SHOWN_SAMPLES
            },
        }
        for entry in entries
    )


def made_line(diagnosis: ExampleDiagnosis) -> str:
    """Describe in one line the examples, weights and repeats, and the day, commit and machine."""
    made = diagnosis.made
    commit = str(made["commit"] or "unknown")[:10] + (" + changes" if made["patch"] else "")
    return (
        f"{made['num_examples']:,} training examples of {made['dataset']}, weights of {made['run_id']} after step"
        f" {made['step']:,}, {made['repeats']} repeats; {made['started'][:10]}; commit {commit}; {made['cpu']},"
        f" {made['threads']} of {made['cores']} cores"
    )


def settings(diagnosis: ExampleDiagnosis) -> str:
    """List each sampler's settings on a line of its own."""
    lines = []
    for entry in diagnosis.entries:
        listed = ", ".join(f"{key}={exact(value)}" for key, value in entry.settings.items() if key != "name")
        lines.append(
            f"- {label_of(entry.name)}: `batch_sampler={entry.settings['name']}`{', ' if listed else ''}{listed}"
        )
    return "\n".join(lines)


def to_markdown(diagnosis: ExampleDiagnosis) -> str:
    """Return the whole diagnosis as Markdown."""
    parts = [f"# Samplers of examples on {diagnosis.made['run_id']}"]
    parts.append(f"Made by `{diagnosis.made['command']}`  \n{made_line(diagnosis)}")
    parts += [markdown_table(table(diagnosis.entries)), "\n".join(f"- {note}" for note in NOTES)]
    return "\n\n".join([*parts, "## Settings", settings(diagnosis)]) + "\n"


def courses_of(panels: Mapping[str, ExampleDiagnosis]) -> "Figure":
    """Draw gradient norms and similarities by the number of samples, a row for each title (LGD paper, Figure 2)."""

    x = Scale(label="samples", is_log=True, ticks=_SHOWN_SAMPLES)
    rows = []
    for title, diagnosis in panels.items():
        looks = looks_of([_look(entry.name) for entry in diagnosis.entries])
        row = []
        for key, y in _COURSES.items():
            lines = tuple(
                Line(
                    label=label_of(entry.name), look=looks[_look(entry.name)],
                    x_P=np.array(entry.course["samples"], dtype=float), y_P=np.array(entry.course[key]),
                )
                for entry in diagnosis.entries
            )  # fmt: skip
            row.append(Panel(title=title, lines=lines, x=x, y=y))
        rows.append(row)
    with styled():
        return figure_of(rows)
