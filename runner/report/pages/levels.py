"""Make tables of levels, with a figure for each data set, from run folders or from committed curves.

The committed tables are made from committed curves (``scripts/make_levels.py``), so that they never say anything else.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from runner.options.settings import RunConfig
from runner.report.figures.data import as_csv, figure_data
from runner.report.figures.levels import levels_figure, short_labels, value_of
from runner.report.figures.style import save, styled
from runner.report.numbers.cells import runs_table
from runner.report.numbers.columns import within_a_sentence
from runner.report.numbers.group import of_other_data
from runner.report.numbers.learning import why_not_learnt
from runner.report.numbers.levels import PERCENTS, Cost, Courses, Goal, Reached, as_frame
from runner.report.numbers.records import FINISHED, NOT_RUN, record_of, status_of
from runner.report.numbers.yardstick import Yardstick
from runner.report.pages.latex import to_latex
from runner.report.pages.layout import Block, Document, how_made, to_markdown
from runner.report.spec.grids import PlannedRun, baseline_config
from runner.report.spec.tables import TableSpec
from runner.training.files import write_atomically

_POINTS = ["method", "seed", "run_id", "epoch", "step", "train_seconds", "value"]
_NO_RUNS = pd.DataFrame()


@dataclass(frozen=True, kw_only=True)
class Levels:
    """A table of levels: the courses of its data sets, how it was made, and the runs behind it."""

    spec: TableSpec
    courses: tuple[Courses, ...]
    made: tuple[str, ...]
    runs: pd.DataFrame

    @property
    def labels(self) -> dict[str, str]:
        """The printed name of each method."""
        return {method.name: method.label for method in self.spec.grid.methods}


# ---------------------------------------------------------------- where courses come from


def levels_of_runs(spec: TableSpec, runs: Sequence[PlannedRun], profile: str, command: str) -> Levels:
    """Read the run folders. Numbers are those of the CSV of the curves, whose digits they have."""
    frame = figure_data(spec, runs)
    points = pd.read_csv(io.StringIO(as_csv(frame))) if len(frame) else frame
    other = of_other_data(map(record_of, runs))
    statuses = {run: other.get(run.run_id) or status_of(run) for run in runs}
    for run in runs:
        if statuses[run] == FINISHED:
            statuses[run] = why_not_learnt(record_of(run)) or FINISHED
    found = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        here = {(run.method, run.seed): status for run, status in statuses.items() if run.dataset == dataset}
        found.append(_courses(spec, profile, dataset, points, here))
    with_folder = [run for run in runs if record_of(run).status != NOT_RUN]
    return Levels(
        spec=spec, courses=tuple(found), made=how_made([record_of(run) for run in with_folder], command),
        runs=runs_table(spec.grid, with_folder),
    )  # fmt: skip


def levels_of_csv(spec: TableSpec, profile: str, curves: Path, command: str) -> Levels:
    """Read the CSV of the table's figure of curves; planned runs that it lacks are not run."""
    points = pd.read_csv(curves)
    found = []
    plan = spec.grid.profile(profile)
    for dataset in plan.datasets:
        mine = points[points["dataset"] == dataset.name]
        finished = set(zip(mine["method"], mine["seed"], strict=True))
        here = {
            (method.name, seed): FINISHED if (method.name, seed) in finished else NOT_RUN
            for method in spec.grid.methods_on(dataset)
            for seed in plan.seeds_on(dataset)
        }
        found.append(_courses(spec, profile, dataset.name, points, here))
    runs = points["run_id"].nunique()
    made = (
        f"Made by `{command}`",
        f"From the curves of {runs} runs in `{curves.name}`, by `make generated`; the page of that figure names commits"
        " and machines",
    )
    return Levels(spec=spec, courses=tuple(found), made=made, runs=_NO_RUNS)


def _courses(
    spec: TableSpec, profile: str, dataset: str, points: pd.DataFrame, statuses: Mapping[tuple[str, int], str]
) -> Courses:
    config = baseline_config(spec.grid, profile, dataset)
    yardstick = Yardstick.planned(config)
    kept = [key for key, status in statuses.items() if status == FINISHED]
    if len(points):
        points = points[points["dataset"] == dataset]
        points = points[[key in kept for key in zip(points["method"], points["seed"], strict=True)]]
    points = points.reindex(columns=_POINTS).reset_index(drop=True)
    examples, unit = _examples_of_a_step(config)
    return Courses(
        dataset=dataset, baseline=spec.grid.baseline, metric=yardstick.curve, measure=yardstick.headline,
        points=points, statuses=statuses, examples_per_step=examples, unit=unit,
    )  # fmt: skip


def _examples_of_a_step(config: RunConfig) -> tuple[int, str]:
    """Return how many examples a step takes, and what they are called."""
    family = config.dataset.family
    if family == "text":
        return config.batch_size * config.windows.length, "tokens"
    return config.batch_size, "sequences" if family == "sequences" else "rows"


# ---------------------------------------------------------------- printing


def document(levels: Levels, pictures: Iterable[Path] = ()) -> Document:
    """Lay the table out: for each data set who is first, and what every method paid until each level."""
    blocks: list[Block] = []
    missing = []
    for courses in levels.courses:
        if courses.bests:
            blocks += _blocks(levels, courses)
        else:
            label = levels.spec.grid.dataset(courses.dataset).label
            missing.append(f"{label}: {next(iter(courses.statuses.values()))}.")
    return Document(
        name=levels.spec.name, title=levels.spec.title, made=levels.made, blocks=tuple(blocks),
        notes=(*missing, *levels.spec.notes), runs=levels.runs, pictures=tuple(pictures),
    )  # fmt: skip


def _blocks(levels: Levels, courses: Courses) -> list[Block]:
    label = levels.spec.grid.dataset(courses.dataset).label
    names = short_labels(levels.spec.grid, [method for method, _ in courses.bests])
    seeds = courses.seeds(courses.baseline)
    caption = f"{_capital(quality(courses))}; seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    if absent := [levels.labels[method] for method in courses.methods if _is_not_run(courses, method)]:
        caption += f"; not run: {', '.join(absent)}"
    blocks = [Block(title=f"{label}: who is first", caption=caption, frame=_firsts(levels, courses))]
    asked: list[tuple[Cost, Goal]] = [("seconds", "full"), ("seconds", "all"), ("steps", "full"), ("examples", "full")]
    if courses.clock == "steps":
        asked = [("steps", "full"), ("steps", "all"), ("examples", "full")]
    for cost, goal in asked:
        if goal == "all" and courses.best_method == courses.baseline:
            continue
        whose = names[courses.baseline] if goal == "full" else f"{names[courses.best_method]}, which ends best"
        what = courses.unit if cost == "examples" else cost
        title = f"{label}: {what} to levels of {within_a_sentence(whose)}"
        blocks.append(Block(title=title, caption="", frame=_table(levels, courses, cost, goal)))
    return blocks


def quality(courses: Courses) -> str:
    """Return what levels are of, such as ``validation P@1, %``."""
    found = Yardstick(measures=(courses.measure,), watched=courses.metric.partition("/")[0], unit="")
    return found.label_with_unit(courses.metric)


def level_text(courses: Courses, percent: int) -> str:
    """Return a level as a heading: ``90 %``, or ``+10 %`` of what is better the lower it is."""
    return f"{percent} %" if courses.measure.higher_is_better else f"+{100 - percent} %"


def _firsts(levels: Levels, courses: Courses) -> pd.DataFrame:
    rows = []
    heading = _capital(f"{courses.measure.label} ({courses.measure.unit})".removesuffix(" ()"))
    for percent in PERCENTS:
        value = value_of(courses, percent)
        ranking = courses.ranking(percent)[:2]
        row = {"Level": level_text(courses, percent), heading: f"{value:.{courses.measure.decimals}f}"}
        for place, word in enumerate(("First", "Second")):
            method, paid = ranking[place] if place < len(ranking) else (None, None)
            row[word] = levels.labels[method] if method else "nobody with every seed" if not place else "nobody else"
            row[f"{word}, {courses.clock}"] = amount(paid, courses.clock) if paid else "–"
        rows.append(row)
    return pd.DataFrame(rows)


def _table(levels: Levels, courses: Courses, cost: Cost, goal: Goal) -> pd.DataFrame:
    best = {percent: ranked[0][1].mean for percent in PERCENTS if (ranked := courses.ranking(percent, goal, cost))}
    rows = []
    for method in courses.methods:
        if _is_not_run(courses, method):
            continue
        row = {"Method": levels.labels[method]}
        for percent in PERCENTS:
            paid = courses.reached(method, cost, percent, goal)
            text = amount(paid, cost)
            row[level_text(courses, percent)] = f"**{text}**" if paid.each and paid.mean == best[percent] else text
        rows.append(row)
    return pd.DataFrame(rows)


def _is_not_run(courses: Courses, method: str) -> bool:
    return all(courses.statuses[method, seed] == NOT_RUN for seed in courses.seeds(method))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def amount(paid: Reached, cost: Cost, *, with_deviation: bool = True) -> str:
    """Return what was paid as text, with the deviation over seeds, or the status of a method that has no number.

    Examples have three digits and no deviation, since steps say the same more exactly.
    """
    if not paid.each:
        return paid.status.partition(":")[0]
    if cost == "examples":
        return f"{float(f'{paid.mean:.3g}'):,.0f}"
    shown = [paid.mean, *([paid.deviation] if with_deviation and len(paid.each) > 1 else [])]
    decimals = 0 if cost != "seconds" else 2 if paid.mean < 1 else 1
    return " ± ".join(f"{number:,.{decimals}f}" for number in shown)


# ---------------------------------------------------------------- writing


def write(levels: Levels, folder: Path) -> tuple[list[Path], Document]:
    """Write NAME.md, NAME.tex, NAME.csv and a figure for each data set, NAME_DATASET.png and .svg.

    Returns the paths, those of pictures as PNG alone, and the document.
    """
    name = levels.spec.name
    pictures = []
    with styled():
        for courses in levels.courses:
            figure = levels_figure(courses, levels.spec.grid, quality(courses)) if courses.bests else None
            if figure is not None:
                pictures.append(save(figure, folder / f"{name}_{courses.dataset}"))
    doc = document(levels, pictures)
    paths = []
    for suffix, text in texts(levels, doc).items():
        paths.append(folder / f"{name}.{suffix}")
        write_atomically(paths[-1], text)
    return [*paths, *pictures], doc


def texts(levels: Levels, doc: Document) -> dict[str, str]:
    """Return the text of each file of the table, by its suffix."""
    return {
        "md": to_markdown(doc),
        "tex": to_latex(doc),
        "csv": as_csv(as_frame(levels.spec.name, levels.courses)),
    }
