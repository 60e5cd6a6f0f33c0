"""Make a text of what every Python contains: the topics of its interactive `help()` (`pydoc_data.topics`).

Use it only for smoke runs where nothing can be downloaded. It has some 80 topics of the reference manual, about 100,000
words and punctuation marks, and differs between releases of Python. Its perplexities compare neither with published
numbers nor between machines with different Pythons. The variant names the release; the checksum depends on the text.

Rule. Topics are taken in the order of their titles. Of every eight topics the fourth goes to valid, the eighth to test
and the others to train. Text is put in lower case. A word is a run of letters, digits and underscores, or one other
character that is not white space. Sentences are the lines that have a word of the first kind. The vocabulary follows
`runner/data/text/words.py`, without a limit.
"""

import hashlib
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from runner.data.shared.base import DatasetConfig
from runner.data.text.dataset import TextDataset
from runner.errors import DataError

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class PythonTopicsConfig(DatasetConfig):
    """Take the help topics of the Python that runs this, about 100,000 words and punctuation marks; for smoke runs
    only.

    Nothing is downloaded.
    """

    family: ClassVar[str] = "text"

    kind: str = "python_topics"
    name: str = "python_topics"

    def build(self) -> TextDataset:
        """Prepare the topics of this Python and open them; the same text is prepared once.

        Raises DataError if this Python has no topics.
        """
        from runner.data.shared.manifests import Origin
        from runner.data.shared.places import prepared_dir
        from runner.data.shared.store import load_once_filled
        from runner.data.text.convert import convert_parts
        from runner.data.text.dataset import TextManifest
        from runner.data.text.words import TextPart

        texts = split_topics(_topics())
        release = "python-" + platform.python_version()
        key = hashlib.sha256("\0".join([release, *texts.values()]).encode()).hexdigest()[:16]

        def fill(folder: Path) -> TextManifest:
            written = folder / "text"
            written.mkdir()
            for split, text in texts.items():
                (written / f"{split}.txt").write_text(text, encoding="utf-8", newline="\n")
            try:
                return convert_parts(
                    {split: TextPart(paths=(written / f"{split}.txt",)) for split in texts},
                    folder,
                    Origin(name=self.name, variant=release, sources={"pydoc_data.topics": ""}),
                    end_of_line=True,
                    most_types=None,
                )
            finally:
                shutil.rmtree(written)

        folder = prepared_dir("python_topics", key)
        return load_once_filled(folder, TextDataset, self.name, fill, says=f"preparing the help topics of {release}")


def split_topics(topics: dict[str, str]) -> dict[str, str]:
    """Return the text of each split, one sentence per line, by the rule at the head of this module.

    `topics`: the text of each topic by its title.
    """
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
            "dataset=python_topics: this Python has no module pydoc_data.topics; use your own text:"
            " dataset=text dataset.path=DIR"
        ) from None
    return topics
