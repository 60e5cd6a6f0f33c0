"""Let pages show figures of results/, which lies beside docs/: mkdocs calls these functions when it builds the site.

In a repository the pages link to ``../results/...``, so that figures show there. The site gets a copy of every figure
that a page shows, under its own ``results/``.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
_FIGURE = re.compile(r"\]\(((?:\.\./)+)(results/[^)]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the figures that pages link to. A figure that is missing is left to mkdocs, which tells of the link."""
    pages = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    linked = {path for page in pages for _, path in _FIGURE.findall(page.read_text())}
    for path in sorted(linked):
        if (ROOT / path).is_file():
            files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links at the site's copies, which lie one folder nearer to the pages than the repository's."""
    return _FIGURE.sub(lambda link: f"]({link[1].removeprefix('../')}{link[2]})", markdown)
