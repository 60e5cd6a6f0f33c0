"""Write the C code of the Linux kernel as three texts: this module states what a word of code is.

The texts are all `.c` files, in the order of the archive. A file is a line, so that `<eos>` ends a file. Which text it
is in depends on its path and a seed alone: of a hundred files about ninety are in the training text, five each in the
others, and a file that several versions have is in the same text of each.

Words are names and keywords, operators (the longest that C has there, brackets included), directives such as
`#define`, and headers such as `<linux/list.h>`. Comments are left out. A string is the word `""`, a character `''`, and
a number `0`.
"""

import contextlib
import hashlib
import re
from pathlib import Path

from runner.data.shared.c_functions import NO_CODE, joined
from runner.data.shared.linux_sources import LinuxSources
from runner.data.text.words import TextPart
from runner.errors import DataError

_SEED = 0
_VALID_SHARE = _TEST_SHARE = 0.05
_STANDS_FOR = {ord("/"): b" ", ord('"'): b' "" ', ord("'"): b" '' "}
_NUMBER = re.compile(rb"(?<![\w.])\.?+\d[\w.]*+")
_WORD = re.compile(
    rb"[A-Za-z_]\w*+|0|\"\"|''|<(?=[\w/.+-]*\.h>)[\w/.+-]++>"
    rb"|\#(?:define|elif|else|endif|error|ifdef|ifndef|if|include|line|pragma|undef|warning)\b"
    rb"|\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|&&|\|\||\#\#|[-+*/%&|^=!<>]=|[-!#$%&()*+,./:;<=>?@\[\\\]^`{|}~]"
)


def words_of_code(source: bytes) -> list[bytes]:
    """Return the words of a C source in their order."""
    code = NO_CODE.sub(lambda match: _STANDS_FOR[match[0][0]], joined(source))
    return _WORD.findall(re.sub(rb"#[ \t]++", b"#", _NUMBER.sub(b"0", code)))


def split_of(path: str) -> str:
    """Return the split that the file of a path is in: a number in [0, 1) that is the hash of seed and path tells."""
    digest = hashlib.sha256(f"{_SEED}:{path}".encode("utf-8", "surrogateescape")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if place < _TEST_SHARE else "valid" if place < _TEST_SHARE + _VALID_SHARE else "train"


def write_words(sources: LinuxSources, folder: Path) -> dict[str, TextPart]:
    """Write the words of each split to a file of the folder; return the texts by the names of the splits.

    Raises DataError for a damaged archive, and if a split has no file.
    """
    paths = {split: folder / f"{split}.txt" for split in ("train", "valid", "test")}
    with contextlib.ExitStack() as stack:
        files = {split: stack.enter_context(path.open("wb")) for split, path in paths.items()}
        for name, source in sources:
            if words := words_of_code(source):
                files[split_of(name)].write(b" ".join(words) + b"\n")
    for split, path in paths.items():
        if not path.stat().st_size:
            raise DataError(f"{sources.archive}: no C code is in the {split} split; is this the whole kernel?")
    return {split: TextPart(paths=(path,)) for split, path in paths.items()}
