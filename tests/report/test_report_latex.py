"""Tables as LaTeX: numbers read back, fit a column of text, and compile where LaTeX is installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from runner.report.pages.latex import PACKAGES, latex_text, to_latex
from runner.report.pages.layout import Block, Document

FRAME = pd.DataFrame(
    {
        "Method": ["Full softmax", "LSH & <Label>", "NCE"],
        "P@1 (%)": ["**61.23 ± 0.41**", "failed", "1,026.00 ± 12.50"],
        "P@1 (%), published": ["37.5", "–", "x_1"],
        "P@1 (%), difference": ["+23.73", "–", "–"],
        "Seconds to 90 %": ["3.0", "Fail", "2.5 †"],
        "Speed-up": ["1.00x", "0.92 (0.10–1.80)", "3.20x"],
        "Runs": ["2bb6bc7341", "983f2161b3", "453c15d7f4"],
    }
)
WIDE = pd.DataFrame({"Method": ["Full"], **{f"stage number {place} (s)": ["12.34 ± 1.25"] for place in range(14)}})


def document(*frames: pd.DataFrame) -> Document:
    blocks = tuple(
        Block(title=f"Set {place}", caption="4 epochs, 5 % of it", frame=frame, footnotes=("† NCE: at an edge.",))
        for place, frame in enumerate(frames)
    )
    return Document(
        name="toy", title="Toy_table: P@1", made=("Made by `make`",), blocks=blocks, notes=("A `note` of 5 %.",),
        runs=pd.DataFrame(),
    )  # fmt: skip


def bodies(text: str) -> list[list[list[str]]]:
    """Return the cells of each tabular."""
    found = re.findall(r"\\midrule\n(.*?)\n\\bottomrule", text, flags=re.DOTALL)
    return [
        [[c.strip() for c in line.removesuffix(r"\\").split(" & ")] for line in body.splitlines()] for body in found
    ]


def test_cells_read_back() -> None:
    text = to_latex(document(FRAME))
    first, second = bodies(text)  # the second goes on below, with its first column again
    body = [[*one, *other[1:]] for one, other in zip(first, second, strict=True)]
    assert [row[0] for row in body] == ["Full softmax", r"LSH \& \textless{}Label\textgreater{}", "NCE"]
    assert [row[1] for row in body] == [r"\bfseries 61.23 \pm 0.41", "{failed}", r"1026.00 \pm 12.50"]
    assert [row[2] for row in body] == ["37.5", "{--}", r"{x\_1}"]
    assert [row[4] for row in body] == ["3.0", "{Fail}", r"2.5{\textsuperscript{$\dagger$}}"]
    assert [row[5] for row in body] == ["1.00", "{0.92 (0.10--1.80)}", "3.20"]
    assert "S[table-format=4.2(4)]" in text
    assert r"\multicolumn{3}{c}{P@1 (\%)}" in text
    assert "2bb6bc7341" not in text, "run ids are in the Markdown"
    assert r"\item $\dagger$ NCE: at an edge." in text
    assert text.count(r"\toprule") == text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2


def test_a_wide_table_goes_on_below() -> None:
    parts = bodies(to_latex(document(WIDE)))
    assert len(parts) > 1
    assert all(part[0][0] == "Full" for part in parts)
    assert sum(len(part[0]) - 1 for part in parts) == 14
    assert max(len(part[0]) for part in parts) <= 7


def test_text_is_escaped() -> None:
    assert latex_text("a_b 5 % $x$ {y} \\z ~ ^ `code_1` **bold**") == (
        r"a\_b 5 \% \$x\$ \{y\} \textbackslash{}z \textasciitilde{} \textasciicircum{} \texttt{code\_1} \textbf{bold}"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_it_compiles_and_fits(tmp_path: Path) -> None:
    (tmp_path / "toy.tex").write_text(to_latex(document(FRAME, WIDE)))
    packages = "".join(f"\\usepackage{{{name}}}" for name in PACKAGES)
    text = f"\\documentclass{{article}}{packages}\\begin{{document}}\\input{{toy}}\\end{{document}}"
    (tmp_path / "all.tex").write_text(text)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "not found" in done.stdout and ".sty" in done.stdout:
        pytest.skip("a LaTeX package is not installed")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "too large" not in done.stdout
