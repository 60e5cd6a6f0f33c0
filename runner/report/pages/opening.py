"""Open a page with the rule and the figure of ``conf/first_page.yaml``.

In pages that people write, the rule stands between two comments, so that ``make generated`` can renew it.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from runner.errors import DataError
from runner.report.spec.first_page import FirstPage

BEGIN = "<!-- rule: make generated writes it from conf/first_page.yaml -->"
END = "<!-- rule: end -->"
TITLE = "Quality against seconds of training, by family of data"
CAPTION = "Quality against seconds of training: left is sooner; up is better, and for perplexity down."
_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a page opens with: the rule, and the figure as ``picture``, None if there is none yet.

    ``is_committed``: the figure is not of the runs that the page shows, but lies beside the committed tables.
    """

    page: FirstPage
    picture: Path | None
    is_committed: bool = False

    def markdown(self) -> str:
        """Return rule and figure as Markdown, for a page in the folder of a profile."""
        parts = [block(self.page)]
        if self.picture is not None:
            place = f"../../tables/{self.picture.name}" if self.is_committed else self.picture.name
            parts += [f"![{TITLE}]({place})", CAPTION]
        return "\n\n".join(parts)


def block(page: FirstPage) -> str:
    """Return the rule as a Markdown list, and what its levels are, between the comments."""
    cases = (_lines(f"- {case}", indent="  ") for case in page.rule)
    return "\n\n".join([BEGIN, "\n".join(cases), _lines(page.levels), END])


def _lines(text: str, indent: str = "") -> str:
    """Break between words alone, so that no command is broken at a hyphen."""
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def with_rule(text: str, page: FirstPage) -> str:
    """Return a page with its rule renewed. Raises DataError if it has none."""
    return _renewed(text, BEGIN, END, block(page))


def with_part(text: str, name: str, content: str) -> str:
    """Return a page with what stands between its two comments of that name renewed. Raises DataError without them."""
    begin, end = f"<!-- {name}: make generated writes it -->", f"<!-- {name}: end -->"
    return _renewed(text, begin, end, "\n\n".join([begin, content, end]))


def _renewed(text: str, begin: str, end: str, content: str) -> str:
    found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.DOTALL)
    if found is None:
        raise DataError(f"no line '{begin}' with '{end}' below it")
    return text[: found.start()] + content + text[found.end() :]
