"""Lay out a report of the bench (JSON, ``runner.bench.report``) as a document, as tables of runs are.

``TABLES`` has the tables of each kind of report, and ``document`` makes a block of each, for each number of classes,
text or other size that was measured.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from runner.machine.clock import STAGES
from runner.report.pages.layout import Block, Document

Part = Mapping[str, Any]  # of the JSON
Form = str | Callable[[Any], str]  # as ``format`` takes it, or a function

MEASURED, PREDICTED = "measured", "predicted"
GIGABITS = ("10", "100", "400")  # a second, of networks for which steps are predicted
TAUS = ("1", "4", "11.1")  # of RF-softmax Table 1, as reports name them
LAYER_STAGES = ("sample", "score", "loss", "update")
_SIZES = {"classes": "classes", "texts": "text", "examples": "examples", "events": "events", "images": "images"}
_SHOWN = ("preset", "batch", "draws", "repetitions", "steps")
_WHY_TOGETHER = "words are tied to classes or gradients are clipped, so that all weights take their step together"


def _seconds(value: float) -> str:
    return f"{value:.4g}" if value < 10 else f"{value:.1f}"


def _text(value: Any, form: Form) -> str:
    if value is None:
        return ""
    return format(value, form) if isinstance(form, str) else form(value)


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, the place of its value in a row of the report, dots between keys, and its form.

    A function may stand for the place. A value that is null, or lies in what is null, is a blank. An ``optional``
    column is left out where no row has it.
    """

    title: str
    place: str | Callable[[Part], Any]
    form: Form = ""
    optional: bool = False

    def text(self, row: Part) -> str:
        """Return the cell of a row that was measured."""
        if callable(self.place):
            return _text(self.place(row), self.form)
        value: Any = row
        for key in self.place.split("."):
            value = None if value is None else value[key]
        return _text(value, self.form)


def _with_range(title: str, place: str, form: Form = _seconds) -> tuple[Column, Column]:
    """Return columns of the median and of the lowest and highest of repetitions."""
    return Column(title, f"{place}.median", form), Column("range", place, lambda spread: _range(spread, form))


def _range(spread: Part, form: Form = _seconds) -> str:
    return f"{_text(spread['lowest'], form)}-{_text(spread['highest'], form)}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns, of which the first ``names`` tell rows apart. Rows without numbers show their status after these.

    ``lines`` returns sentences below the table. ``only_measured`` leaves out rows without numbers.
    """

    columns: tuple[Column, ...]
    names: int = 1
    only_measured: bool = False
    lines: Callable[[Part], Iterable[str]] = lambda size: ()

    def frame(self, size: Part) -> pd.DataFrame:
        """Return the table of a size as text."""
        results = size.get("results", [size])
        shown = [
            column for column in self.columns if not column.optional or any(column.place in row for row in results)
        ]
        rows = []
        for row in results:
            status = row.get("status", MEASURED)
            if status in (MEASURED, PREDICTED):
                rows.append([column.text(row) for column in shown])
            elif not self.only_measured:
                names = [column.text(row) for column in shown[: self.names]]
                rows.append([*names, status, *[""] * (len(shown) - self.names - 1)])
        return pd.DataFrame(rows, columns=[column.title.format(**size) for column in shown])


# ---------------------------------------------------------------- the tables of each kind


def _schedule(size: Part) -> Iterator[str]:
    """Yield a sentence on the first method that refreshes tables."""
    for row in size["results"]:
        if row["status"] == MEASURED and (refresh := row["refresh"]):
            yield (
                f"Refresh: measured after {refresh['interval_steps']} steps; {refresh['refreshes_in_schedule']} "
                f"refreshes in {refresh['schedule_steps']:,} training steps."
            )
            return


def _settings(size: Part) -> Iterator[str]:
    """Yield a line with each measured method's own settings."""
    settings = {
        row["method"]: ", ".join(f"{key}={value}" for key, value in row["settings"].items() if key != "name")
        for row in size["results"]
        if row["status"] == MEASURED
    }
    yield "Settings: " + "; ".join(f"{name} ({text})" for name, text in settings.items() if text) + "."


def _how_measured(size: Part) -> Iterator[str]:
    if size["one_by_one"]:
        yield "Measured one method after the other: their networks do not fit into memory together."
    if size["update_holds_encoder"]:
        yield f"Update, and with it the softmax layer, holds the encoder's updates: {_WHY_TOGETHER}."


def _error_at(tau: str) -> Callable[[Part], Any]:
    return lambda row: row["mse"][tau]


def _mean_and_deviation(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.0e}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1e}{spread}"


def _each(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


def _collectives(size: Part) -> Iterator[str]:
    """Yield a sentence for each number of ranks whose collectives were measured."""
    for ranks, found in size["collectives"].items():
        yield (
            f"An all_reduce of {ranks} ranks over the loopback: {found['small_us']:.0f} µs for 4 KiB, "
            f"{found['large_ms']:.1f} ms for 8 MiB, {found['gigabits']:.1f} Gbit/s between them."
        )


_METHOD = Column("method", "method")
_LAYER_STAGES = tuple(Column(stage, f"stages_s_per_1k_rows.{stage}", _seconds) for stage in LAYER_STAGES)

TABLES: Mapping[str, tuple[Table, ...]] = {
    "output_layer": (
        Table(
            columns=(
                _METHOD,
                Column("s / 1,000 rows", "s_per_1k_rows", _seconds),
                Column("times full", "times_full", ".1f"),
                *_with_range("step", "step_s_per_1k_rows"),
                Column("refresh", "refresh.s_per_1k_rows", _seconds),
                Column("refresh %", lambda row: row["refresh_percent"] if row["refresh"] else None, ".1f"),
                Column("one refresh s", "refresh.seconds", lambda s: f"{_seconds(s['median'])} ({_range(s)})"),
                Column("candidates a row", "candidates_per_row", ",.0f"),
                Column("class rows a step", "class_rows_per_step", ",.0f"),
            ),
            lines=_schedule,
        ),
        Table(
            columns=(
                _METHOD,
                *_LAYER_STAGES,
                *(
                    Column(f"{stage}: {limit} %", f"limits.{stage}.{limit}_percent", ".0f")
                    for stage in ("score", "update")
                    for limit in ("memory", "products")
                ),
                Column("tables MiB", "tables_mb", ",.0f"),
                Column("tables / matrix %", "tables_percent", ".1f"),
                Column("step's peak MiB", "step_growth_mb", ",.0f"),
                Column("peak / matrix %", "step_growth_percent", ".1f"),
            ),
            only_measured=True,
        ),
    ),
    "rows": (
        Table(
            columns=(
                Column("rows", "method"),
                *_with_range("step", "step_s_per_1k_rows"),
                Column("times touched", "times_touched", ".2f"),
                *_LAYER_STAGES,
                Column("one refresh s", "refresh.seconds.median", _seconds),
                Column("class rows a step", "class_rows_per_step", ",.0f"),
            ),
        ),
    ),
    "refresh": (
        Table(
            columns=(
                Column("tables", "tables"),
                Column("classes that moved", "share", lambda share: "all" if share == 1 else f"{share:.0%}"),
                *_with_range("seconds", "seconds"),
                Column("tables MiB", "tables_mb", ",.0f"),
                Column("classes re-hashed", "rehashed_rows", ",.0f"),
            ),
            names=2,
        ),
    ),
    "sampling": (
        Table(
            columns=(
                Column("sampler", "method"),
                Column("candidates a row", "candidates", ",.0f"),
                *_with_range("draws ms", "draw_ms"),
                *_with_range("loss ms", "loss_ms"),
                Column("build s", "build_seconds", _seconds),
                Column("held MiB", "held_mb", ",.0f"),
                Column("loss ms, published", "published_ms", "g", optional=True),
            ),
            lines=_settings,
        ),
    ),
    "language_step": (
        Table(
            columns=(
                _METHOD,
                *_with_range("ms a step", "step_ms"),
                Column("times full", "times_full", ".2f"),
                *_with_range("softmax layer ms", "softmax_ms"),
                Column("times full", "softmax_times_full", ".2f"),
                Column("times full, published ({printed})", "published_speedup", "g", optional=True),
                Column("tokens / s", "tokens_per_second", ",.0f"),
                Column("candidates a row", "candidates_per_row", ",.0f"),
                Column("steps timed", "steps_timed", ","),
            ),
            lines=_how_measured,
        ),
        Table(
            columns=(
                _METHOD,
                *(Column(f"{stage} ms", f"stages_ms.{stage}", _seconds) for stage in STAGES),
                Column("one refresh ms", "refresh.ms.median", _seconds),
                Column("steps a refresh", "refresh.steps", ",.0f"),
            ),
            only_measured=True,
            lines=_settings,
        ),
    ),
    "example_steps": (
        Table(
            columns=(
                _METHOD,
                Column("batch", "batch_size"),
                *_with_range("ns / example", "ns_per_example", ",.0f"),
                *_with_range("times uniform", "times_uniform", ".2f"),
                Column("build s", "build_seconds", _seconds),
            ),
        ),
    ),
    "read_log": (
        Table(
            columns=(
                Column("users", "users", ","),
                Column("items", "items", ","),
                Column("file MB", "file_mb", ",.0f"),
                Column("seconds", "seconds", _seconds),
                Column("CPU seconds", "cpu_seconds", _seconds),
                Column("peak memory MB", "peak_mb", ",.0f"),
            ),
        ),
    ),
    "ranks": (
        Table(
            columns=(
                Column("ranks", "ranks"),
                Column("threads each", "threads"),
                Column("classes", "classes", ","),
                Column("ms a step", "step_ms", _seconds),
                Column("predicted", "predicted_ms", _seconds),
                Column("measured / predicted", "of_predicted", ".2f"),
                Column("of it communication, predicted", "communication_ms", _seconds),
                Column("outside the output layer", "outside_ms", _seconds),
                Column("others took, %", "others_percent", ".0f"),
                Column("peak MiB of each rank", "peak_mb", _each),
                Column("predicted MiB", "predicted_mb", ",.0f"),
                Column("CPU seconds of each", lambda row: [rank["cpu_seconds"] for rank in row["of_ranks"]], _each),
            ),
            names=3,
            lines=_collectives,
        ),
    ),
    "scale": (
        Table(
            columns=(
                _METHOD,
                Column("batch", "batch"),
                Column("ranks", "ranks", ","),
                Column("GiB a rank", "memory_gib", _seconds),
                Column("of it rows", "rows_gib", _seconds),
                Column("computing s", "compute_seconds", _seconds),
                *(Column(f"s a step, {gigabits} Gbit/s", f"seconds.{gigabits}", _seconds) for gigabits in GIGABITS),
                Column("by trees, 100 Gbit/s", "tree_seconds.100", _seconds),
            ),
        ),
    ),
    "kernels": (
        Table(
            columns=(
                Column("Kernel", "method"),
                Column("D", "features"),
                *(Column(f"tau {tau}", _error_at(tau), _mean_and_deviation) for tau in TAUS),
                Column("published: USPS, tau not printed", "published", ".1e"),
            ),
        ),
    ),
}


# ---------------------------------------------------------------- the document


def document(report: Part) -> Document:
    """Return a report as a document: how it was made, blocks for each size, and notes.

    Raises KeyError, TypeError, ValueError or AttributeError for what is no report.
    """
    blocks = [block for size in report["sizes"] for block in _blocks(report["kind"], size)]
    if report["kind"] == "output_layer" and len(report["sizes"]) > 1:
        blocks.append(growth(report["sizes"]))
    return Document(
        name=report["name"],
        title=f"Bench: {report['name']}",
        made=(_made(report),),
        blocks=tuple(blocks),
        notes=(*_not_measured(report), *report["notes"]),
        runs=pd.DataFrame(),
    )


def _made(report: Part) -> str:
    """Return a line with the machine, what code was compiled for, settings, versions, commit and time."""
    made = report["provenance"]
    settings = [f"{key} {report[key]}" for key in _SHOWN if report.get(key) is not None]
    if report["overrides"]:
        settings.append("overrides " + " ".join(report["overrides"]))
    changes = f" with uncommitted changes {made['patch']}" if made["patch"] else ""
    # Kernels and torch may use fewer instruction sets than the processor has; reports of earlier versions lack them.
    built = made.get("compiled_for")
    parts = [
        f"{made['cpu']}, {made['threads']} threads",
        *([f"kernels for {built['kernels']}", f"torch with {built['torch']}"] if built else []),
        *([", ".join(settings)] if settings else []),
        ", ".join(f"{name} {number}" for name, number in made["versions"].items() if name in ("torch", "numba")),
        f"commit {(made['commit'] or 'unknown')[:12]}{changes}",
        made["started"],
    ]
    return "; ".join(parts)


def _not_measured(report: Part) -> Iterator[str]:
    for sizes, key in _SIZES.items():
        done = {str(size.get(key)) for size in report["sizes"]}
        for size in report.get(sizes, []):
            if str(size) not in done:
                name = f"Text {size}" if sizes == "texts" else f"{size:,} {sizes}"
                yield f"{name}: not measured, the run ended before."


def _blocks(kind: str, size: Part) -> Iterator[Block]:
    """Yield a block for each table of a size; the first one has the title."""
    title, caption = title_of(size), _about(size)
    for table in TABLES[kind]:
        frame = table.frame(size)
        if len(frame):
            yield Block(title=title, caption=caption, frame=frame, footnotes=tuple(table.lines(size)))
        title = caption = ""


def title_of(size: Part) -> str:
    """Return a title such as ``10,000 classes``, preceded by the text's name where there is one."""
    if "classes_a_rank" in size:
        return f"{size['method']}, {size['classes_a_rank']:,} classes a rank"
    name = size.get("text", "")
    unit = next(key for key in _SIZES.values() if key in size and key != "text")
    return ("" if not name or name.isdecimal() else f"{name}, ") + f"{size[unit]:,} {unit}"


def _about(size: Part) -> str:
    """Return what the caption tells of a size and of the machine's state while it was measured."""
    if "matrix_mb" not in size:
        return ""
    about = f"{size['dim']} dimensions, weights and moments {size['matrix_mb']:,.0f} MiB"
    if "trained" in size:
        about += f"; method {size['trained']}"
    if "load_average" not in size:
        return about
    before, after = size["load_average"]
    others = size["cores_busy_with_others"]
    bandwidth, products = size["bandwidth_gb_s"], size["products_gflop_s"]
    about += f"; load average {before:.2f} before, {after:.2f} after"
    about += f", {others:.2f} cores busy with others" if others is not None else ""
    about += f"; triad {bandwidth[0]:.1f} and {bandwidth[1]:.1f} GB/s before and after"
    scattered = size["row_bandwidth_gb_s"]
    about += f", scattered rows {scattered[0]:.1f} and {scattered[1]:.1f} GB/s"
    return about + f", products {products[0]:.0f} and {products[1]:.0f} GFLOP/s"


# ---------------------------------------------------------------- growth with the number of classes n


def growth(sizes: Sequence[Part]) -> Block:
    """Compare each method's step without refresh across n: seconds, their ratio to the smallest n, the exponent."""
    ordered = sorted(sizes, key=lambda size: int(size["classes"]))
    classes = [size["classes"] for size in ordered]
    found = [{row["method"]: row for row in size["results"]} for size in ordered]
    rows = []
    for method in dict.fromkeys(name for results in found for name in results):
        steps = [_step_of(results.get(method)) for results in found]
        ratios = [step / steps[0] if step and steps[0] else None for step in steps[1:]]
        texts = [_text(step, _seconds) for step in steps] + [_text(ratio, ".2f") for ratio in ratios]
        rows.append([method, *texts, _text(exponent(classes, steps), ".2f")])
    titles = [f"{n:,} classes" for n in classes] + [f"{n / classes[0]:.3g} times n" for n in classes[1:]]
    return Block(
        title="Growth with the number of classes",
        caption="Seconds per 1,000 rows of steps without refresh, and their ratio to those of the fewest classes.",
        frame=pd.DataFrame(rows, columns=["method", *titles, "exponent of n"]),
    )


def _step_of(row: Part | None) -> float | None:
    """Return the median seconds of a method's step per 1,000 rows, or None if it was not measured."""
    is_measured = row is not None and row["status"] == MEASURED
    return float(row["step_s_per_1k_rows"]["median"]) if row is not None and is_measured else None


def exponent(classes: Sequence[int], steps: Sequence[float | None]) -> float | None:
    """Return the slope of log seconds against log n: 0 means flat in n, 1 proportional to n.

    None when fewer than two sizes were measured.
    """
    pairs = [(np.log(n), np.log(step)) for n, step in zip(classes, steps, strict=True) if step]
    if len(pairs) < 2:
        return None
    x, y = np.array(pairs).T
    return float(np.polyfit(x, y, 1)[0])
