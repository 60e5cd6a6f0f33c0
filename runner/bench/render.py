"""Render the bench's reports as Markdown."""

from collections.abc import Sequence
from typing import Any

from runner.bench.measure import STAGES
from runner.bench.output_layer import flatness
from runner.machine.clock import STAGES as TRAINING_STAGES

_MEASURED = "measured"
_WHY_TOGETHER = "words are tied to classes or gradients are clipped, so that all weights take their step together"


def render(report: dict[str, Any]) -> str:
    """Return the whole report: how it was made, a section for each number of classes or text, and notes."""
    made = report["provenance"]
    shown = ("preset", "batch", "draws", "repetitions", "steps")
    settings = [f"{key} {report[key]}" for key in shown if key in report]
    if report["overrides"]:
        settings.append("overrides " + " ".join(report["overrides"]))
    commit = (made["commit"] or "unknown")[:12] + (
        f" with uncommitted changes {made['patch']}" if made["patch"] else ""
    )
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items() if name in ("torch", "numba"))
    lines = [
        f"# Bench: {report['name']}",
        "",
        f"{made['cpu']}, {made['threads']} threads{_compiled_for(made)}; {', '.join(settings)}; {versions}; "
        f"commit {commit}; "
        f"{made['started']}",
        "",
    ]
    sections = {
        "output_layer": _output_layer,
        "rows": _rows,
        "refresh": _refresh,
        "sampling": _sampling,
        "language_step": _language_step,
        "example_steps": _example_steps,
        "read_log": _read_log,
    }
    section = sections[report["kind"]]
    for size in report["sizes"]:
        lines += [*_head(size), "", *section(size), ""]
    unmeasured = set(report.get("examples", [])) - {size.get("examples") for size in report["sizes"]}
    lines += [f"{n:,} examples: not measured, the run ended before." for n in sorted(unmeasured)]
    unread = set(report.get("events", [])) - {size.get("events") for size in report["sizes"]}
    lines += [f"{n:,} events: not measured, the run ended before." for n in sorted(unread)]
    missing = [n for n in report.get("classes", []) if n not in [size["classes"] for size in report["sizes"]]]
    lines += [f"{n:,} classes: not measured, the run ended before." for n in missing]
    left = [text for text in report.get("texts", []) if text not in [size["text"] for size in report["sizes"]]]
    lines += [f"Text {text}: not measured, the run ended before." for text in left]
    if report["kind"] == "output_layer" and len(report["sizes"]) > 1:
        lines += ["## Growth with the number of classes", "", *_flat(report["sizes"]), ""]
    lines += [f"- {note}" for note in report["notes"]]
    return "\n".join(lines) + "\n"


def _compiled_for(made: dict[str, Any]) -> str:
    """Name the instruction sets that kernels and torch use, which may be fewer than the processor has."""
    names = made.get("compiled_for")  # reports of earlier versions have none
    return f"; kernels for {names['kernels']}; torch with {names['torch']}" if names else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose first column is text and whose other columns are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _head(size: dict[str, Any]) -> list[str]:
    lines = [f"## {title_of(size)}", ""]
    if "events" in size:
        return lines[:1]
    about = f"{size['dim']} dimensions, weights and moments {size['matrix_mb']:,.0f} MiB"
    if "trained" in size:
        about += f"; method {size['trained']}"
    if "load_average" not in size:
        return [*lines, about]
    before, after = size["load_average"]
    others = size["cores_busy_with_others"]
    bandwidth, products = size["bandwidth_gb_s"], size["products_gflop_s"]
    about += f"; load average {before:.2f} before, {after:.2f} after"
    about += f", {others:.2f} cores busy with others" if others is not None else ""
    about += f"; triad {bandwidth[0]:.1f} and {bandwidth[1]:.1f} GB/s before and after"
    scattered = size["row_bandwidth_gb_s"]
    about += f", scattered rows {scattered[0]:.1f} and {scattered[1]:.1f} GB/s"
    about += f", products {products[0]:.0f} and {products[1]:.0f} GFLOP/s"
    return [*lines, about]


def title_of(size: dict[str, Any]) -> str:
    """Return a title such as ``10,000 classes``, preceded by the text's name where there is one."""
    if "events" in size:
        return f"{size['events']:,} events"
    if "examples" in size:
        return f"{size['examples']:,} examples"
    name = size.get("text", "")
    return f"{size['classes']:,} classes" if not name or name.isdecimal() else f"{name}, {size['classes']:,} classes"


def _seconds(value: float) -> str:
    return f"{value:.4g}" if value < 10 else f"{value:.1f}"


def _span(spread: dict[str, float]) -> str:
    return f"{_seconds(spread['lowest'])}-{_seconds(spread['highest'])}"


def _or_blank(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _skipped(row: dict[str, Any], width: int) -> list[str]:
    return [row["method"], row["status"], *[""] * (width - 2)]


def _example_steps(size: dict[str, Any]) -> list[str]:
    head = ["method", "batch", "ns / example", "range", "times uniform", "range", "build s"]
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            rows.append(_skipped(row, len(head)))
            continue
        nanoseconds, ratio = row["ns_per_example"], row["times_uniform"]
        rows.append(
            [
                row["method"],
                str(row["batch_size"]),
                f"{nanoseconds['median']:,.0f}",
                f"{nanoseconds['lowest']:,.0f}-{nanoseconds['highest']:,.0f}",
                f"{ratio['median']:.2f}",
                f"{ratio['lowest']:.2f}-{ratio['highest']:.2f}",
                _seconds(row["build_seconds"]),
            ]
        )
    return table(head, rows)


def _output_layer(size: dict[str, Any]) -> list[str]:
    head = [
        "method", "s / 1,000 rows", "times full", "step", "range", "refresh", "refresh %", "one refresh s",
        "candidates a row", "class rows a step",
    ]  # fmt: skip
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            rows.append(_skipped(row, len(head)))
            continue
        refresh, step = row["refresh"], row["step_s_per_1k_rows"]
        rows.append(
            [
                row["method"],
                _seconds(row["s_per_1k_rows"]),
                _or_blank(row["times_full"], ".1f"),
                _seconds(step["median"]),
                _span(step),
                _seconds(refresh["s_per_1k_rows"]) if refresh else "",
                f"{row['refresh_percent']:.1f}" if refresh else "",
                f"{_seconds(refresh['seconds']['median'])} ({_span(refresh['seconds'])})" if refresh else "",
                f"{row['candidates_per_row']:,.0f}",
                f"{row['class_rows_per_step']:,.0f}",
            ]
        )
    lines = table(head, rows)
    schedule = [row["refresh"] for row in size["results"] if row["status"] == _MEASURED and row["refresh"]]
    if schedule:
        first = schedule[0]
        lines += [
            "",
            f"Refresh: measured after {first['interval_steps']} steps; {first['refreshes_in_schedule']} refreshes in "
            f"{first['schedule_steps']:,} training steps.",
        ]
    return [*lines, "", *_stages(size)]


def _stages(size: dict[str, Any]) -> list[str]:
    """Return the table of seconds by stage, closeness to the machine's limits, and memory."""
    head = [
        "method", *STAGES, "score: memory %", "score: products %", "update: memory %", "update: products %",
        "tables MiB", "tables / matrix %", "step's peak MiB", "peak / matrix %",
    ]  # fmt: skip
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            continue
        limits = row["limits"]
        near = [
            f"{limits[stage][share]:.0f}" if limits else ""
            for stage in ("score", "update")
            for share in ("memory_percent", "products_percent")
        ]
        rows.append(
            [
                row["method"],
                *(_seconds(row["stages_s_per_1k_rows"][stage]) for stage in STAGES),
                *near,
                f"{row['tables_mb']:,.0f}",
                f"{row['tables_percent']:.1f}",
                _or_blank(row["step_growth_mb"], ",.0f"),
                _or_blank(row["step_growth_percent"], ".1f"),
            ]
        )
    return table(head, rows)


def _rows(size: dict[str, Any]) -> list[str]:
    head = ["rows", "step", "range", "times touched", *STAGES, "one refresh s", "class rows a step"]
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            rows.append(_skipped(row, len(head)))
            continue
        step, refresh = row["step_s_per_1k_rows"], row["refresh"]
        rows.append(
            [
                row["method"],
                _seconds(step["median"]),
                _span(step),
                _or_blank(row["times_touched"], ".2f"),
                *(_seconds(row["stages_s_per_1k_rows"][stage]) for stage in STAGES),
                _seconds(refresh["seconds"]["median"]) if refresh else "",
                f"{row['class_rows_per_step']:,.0f}",
            ]
        )
    return table(head, rows)


def _refresh(size: dict[str, Any]) -> list[str]:
    head = ["tables", "classes that moved", "seconds", "range", "tables MiB", "classes re-hashed"]
    rows = []
    for row in size["results"]:
        share = "all" if row["share"] == 1 else f"{row['share']:.0%}"
        if row["status"] != _MEASURED:
            rows.append([row["tables"], share, row["status"], "", "", ""])
            continue
        rows.append(
            [
                row["tables"],
                share,
                _seconds(row["seconds"]["median"]),
                _span(row["seconds"]),
                f"{row['tables_mb']:,.0f}",
                f"{row['rehashed_rows']:,.0f}",
            ]
        )
    return table(head, rows)


def _read_log(size: dict[str, Any]) -> list[str]:
    head = ["users", "items", "file MB", "seconds", "CPU seconds", "peak memory MB"]
    row = [f"{size['users']:,}", f"{size['items']:,}", f"{size['file_mb']:,.0f}"]
    return table(head, [[*row, _seconds(size["seconds"]), _seconds(size["cpu_seconds"]), f"{size['peak_mb']:,.0f}"]])


def _sampling(size: dict[str, Any]) -> list[str]:
    published = any("published_ms" in row for row in size["results"])
    head = ["sampler", "candidates a row", "draws ms", "range", "loss ms", "range", "build s", "held MiB"]
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            rows.append(_skipped(row, len(head) + published))
            continue
        rows.append(
            [
                row["method"],
                f"{row['candidates']:,.0f}",
                _seconds(row["draw_ms"]["median"]),
                _span(row["draw_ms"]),
                _seconds(row["loss_ms"]["median"]),
                _span(row["loss_ms"]),
                _seconds(row["build_seconds"]),
                _or_blank(row["held_mb"], ",.0f"),
                *([_or_blank(row.get("published_ms"), "g")] if published else []),
            ]
        )
    lines = table([*head, "loss ms, published"] if published else head, rows)
    return [*lines, "", _settings(size)]


def _settings(size: dict[str, Any]) -> str:
    """Return one line with each measured method's own settings."""
    settings = {
        row["method"]: ", ".join(f"{key}={value}" for key, value in row["settings"].items() if key != "name")
        for row in size["results"]
        if row["status"] == _MEASURED
    }
    return "Settings: " + "; ".join(f"{name} ({text})" for name, text in settings.items() if text) + "."


def _language_step(size: dict[str, Any]) -> list[str]:
    printed = size["printed"]
    head = [
        "method", "ms a step", "range", "times full", "softmax layer ms", "range", "times full",
        *([f"times full, published ({printed})"] if printed else []),
        "tokens / s", "candidates a row", "steps timed",
    ]  # fmt: skip
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            rows.append(_skipped(row, len(head)))
            continue
        step, layer = row["step_ms"], row["softmax_ms"]
        rows.append(
            [
                row["method"],
                _seconds(step["median"]),
                _span(step),
                _or_blank(row["times_full"], ".2f"),
                _seconds(layer["median"]),
                _span(layer),
                _or_blank(row["softmax_times_full"], ".2f"),
                *([_or_blank(row["published_speedup"], "g")] if printed else []),
                f"{row['tokens_per_second']:,.0f}",
                f"{row['candidates_per_row']:,.0f}",
                f"{row['steps_timed']:,}",
            ]
        )
    lines = table(head, rows)
    if size["one_by_one"]:
        lines += ["", "Measured one method after the other: their networks do not fit into memory together."]
    if size["update_holds_encoder"]:
        lines += ["", f"Update, and with it the softmax layer, holds the encoder's updates: {_WHY_TOGETHER}."]
    return [*lines, "", *_language_stages(size), "", _settings(size)]


def _language_stages(size: dict[str, Any]) -> list[str]:
    """Return the table of milliseconds per step by stage, with the length of a refresh and the steps between two."""
    head = ["method", *(f"{stage} ms" for stage in TRAINING_STAGES), "one refresh ms", "steps a refresh"]
    rows = []
    for row in size["results"]:
        if row["status"] != _MEASURED:
            continue
        refresh = row["refresh"]
        rows.append(
            [
                row["method"],
                *(_seconds(row["stages_ms"][stage]) for stage in TRAINING_STAGES),
                _seconds(refresh["ms"]["median"]) if refresh and refresh["ms"] else "",
                _or_blank(refresh["steps"], ",.0f") if refresh else "",
            ]
        )
    return table(head, rows)


def _flat(sizes: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of growth with n, the number of classes.

    It has the step without refresh at each n, its ratio to the smallest n, and the exponent e of the best-fitting n^e.
    """
    found = flatness(sizes)
    classes = found[0]["classes"] if found else []
    head = [
        "method",
        *(f"{n:,} classes" for n in classes),
        *(f"{n / classes[0]:.3g} times n" for n in classes[1:]),
        "exponent of n",
    ]
    rows = []
    for row in found:
        steps = ["" if step is None else _seconds(step) for step in row["step_s_per_1k_rows"]]
        ratios = [_or_blank(ratio, ".2f") for ratio in row["ratio"][1:]]
        rows.append([row["method"], *steps, *ratios, _or_blank(row["exponent"], ".2f")])
    return [
        "Seconds per 1,000 rows of steps without refresh, and their ratio to those of the fewest classes.",
        "",
        *table(head, rows),
    ]
