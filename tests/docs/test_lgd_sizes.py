"""LGD Figure 4, the paper's only printed table, stands beside the counts of our cards."""

import math

import pandas as pd
from command_lines import ROOT

from runner.data.shared.cards import load_card

UNDER = "### Sizes that LGD prints"
ORDER = ["yearmsd", "slice", "ujiindoorloc", "mrpc", "rte"]
COUNTS = {"train": "num_train", "test": "num_test", "dimension": "num_features"}


def shown(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:,.0f}"


def test_the_page_has_the_printed_sizes_beside_those_of_the_cards() -> None:
    printed = pd.read_csv(ROOT / "results" / "published" / "lgd.csv").pivot(
        index="dataset", columns="metric", values="value"
    )
    assert set(printed.index) == set(ORDER)
    rows = [
        [
            load_card(name).title,
            *(
                shown(value)
                for metric, key in COUNTS.items()
                for value in (printed.loc[name, metric], getattr(load_card(name).expected, key, None))
            ),
        ]
        for name in ORDER
    ]
    table = (ROOT / "docs" / "deviations.md").read_text().partition(UNDER)[2].partition("\n\n|")[2]
    lines = table.partition("\n\n")[0].splitlines()[2:]
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines] == rows
