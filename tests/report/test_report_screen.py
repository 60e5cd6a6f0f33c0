"""On a terminal, tables and long lines fit its width; elsewhere they stay as they are, for logs and other programs."""

import io

import pandas as pd
import pytest

from runner.machine.terminal import fitted
from runner.report.pages.layout import markdown_table
from runner.report.pages.screen import screen_table, wrapped_table

RUNS = pd.DataFrame(
    {
        "method": ["Unigram", "LSH Label"],
        "settings": ["sampler.num_samples=100", "–"],
        "P@1, %": ["9.97", "–"],
        "seconds an epoch": ["8.30", "–"],
        "status": ["finished, 4 runs at once, whose seconds are longer", "diverged"],
        "runs": ["c00e7b3890", "3210765526"],
    }
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", "80")
    return 80


def test_a_table_is_wrapped_only_on_a_terminal_that_is_too_narrow(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert screen_table(RUNS, io.StringIO()) == markdown_table(RUNS)
    assert screen_table(RUNS, Terminal()) == wrapped_table(RUNS, columns)
    monkeypatch.setenv("COLUMNS", "200")
    assert screen_table(RUNS, Terminal()) == markdown_table(RUNS)


def test_titles_are_wrapped_before_cells_and_cells_between_words() -> None:
    assert wrapped_table(RUNS, 90).splitlines() == [
        "method     settings                 P@1,  seconds  status                       runs",
        "                                       %       an",
        "                                            epoch",
        "---------  -----------------------  ----  -------  ---------------------------  ----------",
        "Unigram    sampler.num_samples=100  9.97     8.30  finished, 4 runs at once,    c00e7b3890",
        "                                                   whose seconds are longer",
        "LSH Label  –                           –        –  diverged                     3210765526",
    ]


def test_a_name_of_a_setting_is_wrapped_at_its_dots_and_a_number_stays_whole() -> None:
    lines = wrapped_table(RUNS, 65).splitlines()
    assert max(map(len, lines)) <= 65
    assert any(line.startswith("Unigram    sampler. ") and " 9.97 " in line for line in lines)
    assert any(line.startswith("           num_samples=100") for line in lines)


def test_what_cannot_be_wrapped_is_a_block_for_each_row() -> None:
    assert wrapped_table(RUNS, 50).splitlines() == [
        "Unigram",
        "    settings: sampler.num_samples=100; P@1, %:",
        "    9.97; seconds an epoch: 8.30; status:",
        "    finished, 4 runs at once, whose seconds are",
        "    longer; runs: c00e7b3890",
        "LSH Label",
        "    status: diverged; runs: 3210765526",
    ]


def test_a_long_line_goes_on_below_on_a_terminal(columns: int) -> None:
    line = "error: " + ", ".join(f"lsh_label_{number}" for number in range(12))
    assert fitted(line, io.StringIO()) == line
    first, *more = fitted(f"short\n{line}", Terminal()).split("\n")
    assert first == "short"
    assert len(more) > 1
    assert all(len(part) <= columns for part in more)
    assert " ".join(part.strip() for part in more) == line
