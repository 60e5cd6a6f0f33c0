"""Panels have few lines, named beside their ends; more become facets over the same axes, and figures stay narrow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from runner.report.figures.panels import MOST_LINES, Line, Panel, Scale, abreast, facets, figure_of, shared_out
from runner.report.figures.style import Look, plain_number, save

X = np.array([1.0, 10, 100, 1000])


def line(name: str, *, end: float = 1.0, is_reference: bool = False, is_level: bool = False) -> Line:
    y_P = np.array([end]) if is_level else end * np.array([0.1, 0.5, 0.8, 1.0])
    return Line(
        label=name, look=Look("#123456", "o"), x_P=X[: len(y_P)], y_P=y_P, is_reference=is_reference, is_level=is_level
    )


def panel(count: int, title: str = "Toy", *, has_key: bool = False) -> Panel:
    """Return a panel of a reference line and ``count`` others, which end at 1, 2, 3..."""
    lines = [line("full", end=0.5, is_reference=True)]
    lines += [line(f"m{number}", end=float(number)) for number in range(1, count + 1)]
    x, y = Scale(label="seconds", is_log=True), Scale(label="P@1", low=0)
    return Panel(title=title, lines=tuple(lines), x=x, y=y, has_key=has_key)


def drawn(axis: Axes) -> list[str]:
    return [str(line.get_label()) for line in axis.get_lines() if not str(line.get_label()).startswith("_")]


@pytest.mark.parametrize(("count", "sizes"), [(3, [4]), (6, [7]), (7, [4, 5]), (12, [7, 7]), (13, [5, 5, 6])])
def test_facets_are_few_even_and_have_the_reference(count: int, sizes: list[int]) -> None:
    parts = facets(panel(count))
    assert sorted(len(part.lines) for part in parts) == sizes
    assert all(part.lines[0].label == "full" for part in parts)
    others = [line.label for part in parts for line in part.lines[1:]]
    assert others == [f"m{number}" for number in range(1, count + 1)], "every line once, in order"
    assert [part.title for part in parts] == (
        ["Toy"] if len(sizes) == 1 else [f"Toy ({place} of {len(sizes)})" for place in range(1, len(sizes) + 1)]
    )


def test_what_does_not_fit_abreast_goes_below() -> None:
    one, two = [panel(1)], [panel(1), panel(2)]
    assert [len(row) for row in abreast([one, one], 2)] == [2]
    assert [len(row) for row in abreast([one] * 5, 2)] == [2, 2, 1]
    assert [len(row) for row in abreast([two, two], 2)] == [2, 2]
    assert [len(row) for row in abreast([one, two], 2)] == [1, 2]
    assert [len(group) for group in shared_out(range(10), 4)] == [4, 3, 3]


def test_a_figure_of_many_lines_is_legible(tmp_path: Path) -> None:
    figure = figure_of([[panel(10), panel(10, "Other")]])
    axes = [axis for axis in figure.axes if axis.axison]
    assert len(axes) == 4
    for axis in axes:
        assert len(drawn(axis)) <= MOST_LINES
        assert sorted(text.get_text() for text in axis.texts) == sorted(drawn(axis)), "every line is named"
        assert not axis.get_legend()
        heights = sorted(text.get_position()[1] * axis.bbox.height * 72 / figure.dpi for text in axis.texts)
        assert min(np.diff(heights)) > 10, "names do not overlap"
    assert axes[0].get_ylim() == axes[1].get_ylim(), "facets compare"
    assert axes[0].get_ylim()[1] >= 10
    from PIL import Image

    with Image.open(save(figure, tmp_path / "toy")) as picture:
        assert picture.width < 2000


def test_names_may_be_a_key_and_levels_go_across() -> None:
    (axis,) = figure_of([[panel(3, has_key=True)]]).axes
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["m3", "m2", "m1", "full"], "the highest first"
    level = Panel(
        title="", lines=(line("a"), line("full", end=0.7, is_level=True)), x=Scale(label="K", ticks=(1, 1000)),
        y=Scale(label=""),
    )  # fmt: skip
    (axis,) = figure_of([[level]]).axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "1,000"]
    assert {text.get_text() for text in axis.texts} == {"a", "full"}


def test_panels_abreast_of_different_measures_both_say_what_they_show() -> None:
    one = panel(2)
    other = replace(one, y=Scale(label="NDCG@10"))
    assert [axis.get_ylabel() for axis in figure_of([[one, one]]).axes] == ["P@1", ""]
    assert [axis.get_ylabel() for axis in figure_of([[one, other]]).axes] == ["P@1", "NDCG@10"]


@pytest.mark.parametrize("is_log", [False, True])
def test_markers_of_long_lines_are_evenly_apart(is_log: bool) -> None:
    x_P = np.linspace(0 if is_log else 1, 1000, 500)
    long = Line(label="long", look=Look("#123456", "o"), x_P=x_P, y_P=x_P)
    scale = Scale(label="seconds", is_log=is_log)
    (axis,) = figure_of([[Panel(title="", lines=(long,), x=scale, y=Scale(label=""))]]).axes
    marked = x_P[axis.get_lines()[0].get_markevery()]
    gaps = np.diff(np.log(marked) if is_log else marked)
    assert 10 <= len(marked) <= 12
    assert gaps.max() < (1.9 if is_log else 1.1) * np.median(gaps)
    assert marked[-1] == 1000


def test_ticks_have_thousands() -> None:
    shown = [plain_number(value) for value in (0, 0.05, 1e-5, 1e-8, 2.5, 1000, 12_000, 1_000_000)]
    assert shown == ["0", "0.05", "0.00001", "1e-08", "2.5", "1,000", "12,000", "1,000,000"]
    (axis,) = figure_of([[panel(2)]]).axes
    axis.figure.draw_without_rendering()
    assert "1,000" in [tick.get_text() for tick in axis.get_xticklabels()]
