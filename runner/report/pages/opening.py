"""Open a page with the rule and the figure of ``conf/first_page.yaml``.

In pages that people write too, both stand between two comments, so that ``make generated`` can renew them.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from runner.errors import DataError
from runner.report.spec.first_page import FirstPage

BEGIN = "<!-- The rule and the figure: make generated writes them from conf/first_page.yaml; do not edit them. -->"
END = "<!-- The rule and the figure: end -->"
CAPTION = "Quality against seconds of training: up and to the left is better, but for perplexity down and to the left."
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_WIDTH = 120


@dataclass(frozen=True)
class Opening:
    """What a page opens with. ``picture``: of the figure, None if nothing was measured that it could show."""

    page: FirstPage
    picture: Path | None

    def rule(self) -> str:
        """Return the rule as a Markdown list."""
        return "\n".join(
            textwrap.fill(f"- {case}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for case in self.page.rule
        )

    def levels(self) -> str:
        """Return what the rule's numbers are shares of."""
        return textwrap.fill(self.page.levels, _WIDTH)

    def markdown(self) -> str:
        """Return both between the comments, for a page beside the picture."""
        return block(self, "" if self.picture is None else self.picture.name)


def block(opening: Opening, picture: str) -> str:
    """Return rule and figure between the comments; ``picture`` is where the figure is from the page, "" without one."""
    parts = [BEGIN, opening.rule(), opening.levels()]
    if picture:
        parts += [f"![Quality against seconds of training, by family of data]({picture})", CAPTION]
    return "\n\n".join([*parts, END])


def with_opening(text: str, opening: Opening, picture: str) -> str:
    """Return a page with its block renewed. Raises DataError if it has none."""
    found = _BLOCK.search(text)
    if found is None:
        raise DataError(f"no line '{BEGIN}' with its end below")
    return text[: found.start()] + block(opening, picture) + text[found.end() :]
