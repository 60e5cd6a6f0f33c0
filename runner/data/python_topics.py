"""A text that every Python brings along: the help topics of its interactive `help()` (`pydoc_data.topics`).

For smoke runs where nothing can be downloaded, and for nothing else: some 80 topics of reference manual, 100,000 words
and marks of one style, and another text in every release of Python. Its perplexities compare with no published number,
nor between machines with different Pythons (the release is in the variant and the text in the checksum).

Rule. Topics in the order of their titles; of each eight the fourth goes to valid, the eighth to test, the others to
train. A word is a run of letters, digits and underscores, or one other character that is not white space, in lower
case; the lines that have a word of the first kind are the sentences. The vocabulary is that of `runner/data/words.py`,
without a limit.
"""

import hashlib
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from runner.data.text import TextDataset
from runner.errors import DataError

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class PythonTopicsConfig:
    """It has nothing to choose."""

    family: ClassVar[str] = "text"

    kind: str = "python_topics"
    name: str = "python_topics"

    def build(self) -> TextDataset:
        """Prepare the topics of this Python (cached by their text) and open them. DataError where it ships none."""
        from runner.data.convert_text import convert_parts
        from runner.data.places import prepared_dir
        from runner.data.store import TextManifest, fill_folder, load_text
        from runner.data.words import TextPart

        texts = split_topics(_topics())
        release = "python-" + platform.python_version()
        key = hashlib.sha256("\0".join([release, *texts.values()]).encode()).hexdigest()[:16]

        def fill(folder: Path) -> TextManifest:
            print(f"preparing the help topics of {release} (once)", file=sys.stderr)
            written = folder / "text"
            written.mkdir()
            for split, text in texts.items():
                (written / f"{split}.txt").write_text(text, encoding="utf-8", newline="\n")
            try:
                return convert_parts(
                    {split: TextPart(paths=(written / f"{split}.txt",)) for split in texts},
                    folder,
                    name=self.name,
                    variant=release,
                    end_of_line=True,
                    most_types=None,
                    sources={"pydoc_data.topics": ""},
                )
            finally:
                shutil.rmtree(written)

        folder = prepared_dir("python_topics", key)
        fill_folder(folder, fill)
        return load_text(folder)


def split_topics(topics: dict[str, str]) -> dict[str, str]:
    """Text of each split, a sentence a line, by the rule of the module."""
    lines: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for number, title in enumerate(sorted(topics)):
        split = {3: "valid", 7: "test"}.get(number % 8, "train")
        sentences = (line.lower() for line in topics[title].splitlines() if re.search(r"\w", line))
        lines[split] += [" ".join(_WORD.findall(sentence)) for sentence in sentences]
    return {split: "".join(line + "\n" for line in sentences) for split, sentences in lines.items()}


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError(
            "python_topics: this Python ships no pydoc_data.topics; use your own text, dataset=text dataset.path=DIR"
        ) from None
    return topics
