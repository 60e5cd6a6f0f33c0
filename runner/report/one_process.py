"""Make many short runs in one process, because starting a process takes longer than such a run.

The command lines come on standard input, one JSON list of overrides a line. A line on standard output follows each run,
with its exit code: 0, 1 or 2 as of ``python -m runner``. Whatever else is printed goes to standard error.
"""

import json
import os
import sys
from collections.abc import Iterable
from typing import TextIO

from runner.config import compose, exit_code, forget_failures, register_failure
from runner.training.run import run


def main(lines: Iterable[str], answers: TextIO) -> int:
    """Make the runs; return 0, or 130 after Ctrl-C, which saves a checkpoint of the present run."""
    for line in lines:
        forget_failures()
        try:
            config = compose(json.loads(line))
            run(config, compiles_apart=True)
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            register_failure(error)
        print(exit_code(), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    try:
        with os.fdopen(os.dup(1), "w") as answers:
            os.dup2(2, 1)
            sys.exit(main(sys.stdin, answers))
    except KeyboardInterrupt:  # between two runs
        sys.exit(130)
