"""Tests of the catalogue of methods, and of grids that take rows from it or extend another grid."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from runner.errors import ConfigError
from runner.methods.catalogue import Marker, known_methods
from runner.report.figures.panels import MOST_LINES, Line, Panel, Scale, facets
from runner.report.figures.style import Look, look_of_value, looks_of, looks_of_rows
from runner.report.spec.grids import Grid, expand, grid_names, load_grid
from runner.report.spec.tables import load_table, table_names
from runner.report.spec.yaml_files import TABLES
from runner.samplers import SAMPLERS

BASE = """
fixed: [epochs=4]
baseline: full
methods:
  - {method: full, published: exact}
  - {method: uniform, label: Uniform (NS), per_row: true, overrides: [sampler.num_samples=30]}
datasets: [{name: wordnet_hypernym, label: WordNet hypernyms}]
profiles:
  small:
    seeds: [0]
    datasets:
      - name: wordnet_hypernym
        overrides: [batch_size=64]
        tuned: [{methods: [uniform], overrides: [sampler.num_samples=40]}]
  medium: {seeds: [0], datasets: [{name: wordnet_hypernym}]}
  paper: {seeds: [0], datasets: [{name: wordnet_hypernym}]}
"""
EXTENDING = """
extends: base
methods: [uniform, {method: full}]
profiles:
  small:
    seeds: [3, 4]
    datasets: [{name: wordnet_hypernym, tuned: [{methods: [uniform], overrides: [optimizer.lr=0.5]}]}]
"""
Load = Callable[..., Grid]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write both grids, and load one of them."""

    def write(name: str, *, base: str = BASE, extending: str = EXTENDING) -> Grid:
        (tmp_path / "grid").mkdir(exist_ok=True)
        (tmp_path / "grid" / "base.yaml").write_text(base)
        (tmp_path / "grid" / "extending.yaml").write_text(extending)
        return load_grid(name, tmp_path)

    return write


# ---------------------------------------------------------------- the catalogue


def luminance(colour: str) -> float:
    """Return the relative luminance of #RRGGBB (WCAG 2): 0 is black, 1 is white."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_sampler_has_a_method_of_its_own_name() -> None:
    assert set(SAMPLERS) <= set(known_methods())


def test_labels_colours_and_markers_are_all_different_and_seen_on_white() -> None:
    methods = known_methods()
    for values in zip(*((m.label, m.colour.upper(), m.marker) for m in methods.values()), strict=True):
        assert len(set(values)) == len(methods)
    for name, method in methods.items():
        assert 1.05 / (luminance(method.colour) + 0.05) > 2.5, f"{name}: {method.colour} is too light on white"


SHAPES = {  # markers that one takes for another where they are small
    "round": ("o", "8", (20, 0, 0), (7, 0, 0)), "hexagon": ("h", "H", (6, 0, 0)),
    "pentagon": ("p", (5, 0, 0), (5, 0, 36)),
    "square": ("s", (4, 0, 45)), "diamond": ("D", "d", (4, 0, 0)), "up": ("^", (3, 0, 0)), "down": ("v", (3, 0, 180)),
    "plus": ("P", "+", (4, 1, 0)), "cross": ("X", "x", (4, 1, 45)),
    "star": ("*", (5, 1, 36), (6, 1, 0), (7, 1, 0), (8, 1, 0)),
}  # fmt: skip


def shape(marker: Marker) -> Marker:
    return next((name for name, markers in SHAPES.items() if marker in markers), marker)


def panels() -> Iterator[tuple[str, list[str]]]:
    """Return every panel of the figures of conf/table that draw methods, with the methods' names in the catalogue."""
    for name in table_names():
        spec = load_table(name)
        drawn = [
            (method.look_name, method.name == spec.grid.baseline and spec.kind != "frontier")
            for method in spec.grid.methods
        ]
        if spec.kind in ("curves", "effect"):
            yield from ((name, names) for names in in_facets(drawn))
        elif spec.kind == "frontier":
            yield name, [name for name, _ in drawn]
    samplers = [("full", True)] + [(name, False) for name in SAMPLERS if name not in ("full", "exact", "in_batch")]
    yield from (("diagnosis", names) for names in in_facets(samplers))


def in_facets(drawn: Sequence[tuple[str, bool]]) -> list[list[str]]:
    """Return the names of each facet of a panel with these lines, of which some are in every facet."""
    point, scale = np.ones(1), Scale(label="")
    lines = tuple(
        Line(label=name, look=Look("#000000", "s"), x_P=point, y_P=point, is_reference=always) for name, always in drawn
    )
    return [[line.label for line in part.lines] for part in facets(Panel(title="", lines=lines, x=scale, y=scale))]


def test_methods_that_meet_in_a_panel_are_told_apart_in_colour_and_in_grey() -> None:
    """Their markers have different shapes, and their lightness in grey differs, or else their lines do."""
    known = known_methods()
    shown = list(panels())
    assert len(shown) > 12
    for figure, names in shown:
        assert len(names) <= MOST_LINES
        assert set(names) <= set(known), f"{figure}: {set(names) - set(known)} are not in the catalogue"
        looks = looks_of(names)
        assert len(looks) == len(names), f"{figure}: a method is drawn twice with one look"
        for (one, a), (other, b) in itertools.combinations(looks.items(), 2):
            assert shape(a.marker) != shape(b.marker), f"{figure}: {one} and {other} have like markers"
            light, dark = sorted((luminance(a.colour), luminance(b.colour)), reverse=True)
            in_grey = (light + 0.05) / (dark + 0.05) > 1.4
            assert in_grey or a.linestyle != b.linestyle, f"{figure}: {one} and {other} look alike in grey"


def test_values_of_a_swept_setting_are_told_apart_in_grey() -> None:
    for count in range(2, MOST_LINES + 1):
        looks = [look_of_value(place, count) for place in range(count)]
        assert len({look.marker for look in looks}) == count
        for a, b in itertools.pairwise(looks):
            assert luminance(a.colour) > luminance(b.colour), "the later the darker"
            assert a.linestyle != b.linestyle


def test_a_method_has_one_label_everywhere() -> None:
    """A grid may extend the catalogue's label (by its paper's name or its own setting), but must not replace it.

    A row of a grid's own name, which borrows a look, has no other method's label.
    """
    known = known_methods()
    labels = {method.label for method in known.values()}
    for name in grid_names(TABLES):
        for method in load_grid(name, TABLES).methods:
            if method.look_name in known:
                label = known[method.look_name].label
                extends = method.label == label or method.label.startswith(f"{label} (")
                own = method.name not in known and method.look_name != method.name and method.label not in labels
                assert extends or own, f"{name}: {method.label}"


# ---------------------------------------------------------------- rows of a grid


def test_a_row_is_the_catalogues_method_with_what_the_grid_adds(load: Load) -> None:
    full, uniform = load("base").methods
    assert (full.name, full.label, full.published_name) == ("full", "Full softmax", "exact")
    assert (uniform.name, uniform.label, uniform.published_name) == ("uniform", "Uniform (NS)", "uniform")
    drawn = ("method=uniform", "sampler.shared=false", "sampler.unique=false", "sampler.num_samples=30")
    assert uniform.overrides == drawn
    assert looks_of_rows((full, uniform))["uniform"].colour == known_methods()["uniform"].colour


def test_an_extending_grid_replaces_what_it_says(load: Load, tmp_path: Path) -> None:
    base, grid = load("base"), load("extending")
    assert [method.name for method in grid.methods] == ["uniform", "full"]
    assert grid.methods[0] == base.methods[1]
    assert grid.methods[1].published == "", "a method of the catalogue, not the row of the grid extended"
    assert (grid.fixed, grid.baseline, grid.datasets) == (base.fixed, base.baseline, base.datasets)
    assert grid.profile("medium") == base.profile("medium")
    runs = {(run.method, run.seed): run.config for run in expand(grid, "small", tmp_path)}
    assert set(runs) == {(method, seed) for method in ("uniform", "full") for seed in (3, 4)}
    tuned = runs["uniform", 3]
    assert (tuned.batch_size, tuned.sampler.num_samples, tuned.optimizer.lr) == (64, 40, 0.5)


def test_a_data_set_that_an_extending_profile_leaves_out_is_not_run(load: Load) -> None:
    extending = EXTENDING.replace("{name: wordnet_hypernym, ", "{name: wordnet_related, ")
    both = BASE.replace("label: WordNet hypernyms}", "label: WordNet hypernyms}, {name: wordnet_related, label: R}")
    (dataset,) = load("extending", base=both, extending=extending).profile("small").datasets
    assert (dataset.name, dataset.overrides) == ("wordnet_related", ())


@pytest.mark.parametrize(("where", "wrong", "right", "message"), [
    ("base", "method: uniform", "method: unifrom", "base.yaml: methods[1].method: unknown 'unifrom'; did you mean"),
    ("base", "per_row:", "perrow:", "base.yaml: unknown key 'methods[1].perrow'; did you mean 'per_row'"),
    ("base", "per_row: true", "per_row: yes please", "base.yaml: methods[1].per_row: expected bool"),
    ("base", "{method: full, published: exact}", "full", "base.yaml: methods[0]: 'full' alone is a row of the grid"),
    ("extending", "[uniform,", "[unifrom,", "extending.yaml: methods[0]: unknown 'unifrom'; did you mean 'uniform'"),
    ("extending", "extends: base", "extends: bass", "extends: no 'bass' to extend; did you mean 'base'"),
])  # fmt: skip
def test_a_mistake_is_one_line(where: str, wrong: str, right: str, message: str, load: Load) -> None:
    texts = {"base": BASE, "extending": EXTENDING}
    assert wrong in texts[where]
    with pytest.raises(ConfigError) as error:
        load("extending" if where == "extending" else "base", **{where: texts[where].replace(wrong, right)})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_grids_extend_grids_that_extend_others(load: Load, tmp_path: Path) -> None:
    middle = load("extending")
    (tmp_path / "grid" / "third.yaml").write_text("extends: extending\nsweep: []\n")
    third = load_grid("third", tmp_path)
    assert [method.name for method in third.methods] == [method.name for method in middle.methods]
    assert third.profile("small") == middle.profile("small")


def test_methods_that_a_grid_leaves_out_lose_their_settings(load: Load, tmp_path: Path) -> None:
    load("extending")
    others = (
        "extends: base\nmethods: [full]\nprofiles: {small: {datasets: [{name: wordnet_hypernym, lengths: [MORE]}]}}\n"
    )
    file = tmp_path / "grid" / "third.yaml"
    file.write_text(others.replace("MORE", "{methods: [full], overrides: [epochs=2]}"))
    (of_third,) = load_grid("third", tmp_path).profile("small").datasets
    assert of_third.overrides_of("full") == ("batch_size=64", "epochs=2")
    assert of_third.tuned == (), "uniform's settings are left out with it"
    swept = "sweep: [{key: seed, values: [1], methods: [uniform]}, {key: epochs, values: [4]}]"
    load("extending", base=f"{BASE}{swept}\n")
    assert [item.key for item in load_grid("third", tmp_path).sweep] == ["epochs"]
    file.write_text(others.replace("MORE", "{methods: [uniform], overrides: [epochs=2]}"))
    with pytest.raises(ConfigError, match=r"lengths\.methods: unknown 'uniform'"):
        load_grid("third", tmp_path)


@pytest.mark.parametrize("circle", ["third", "fourth"])
def test_no_grid_extends_itself(circle: str, load: Load, tmp_path: Path) -> None:
    load("extending")
    (tmp_path / "grid" / "third.yaml").write_text(f"extends: {circle}\n")
    (tmp_path / "grid" / "fourth.yaml").write_text("extends: third\n")
    with pytest.raises(ConfigError, match=r"extends: no '(third|fourth)' to extend"):
        load_grid("third", tmp_path)
