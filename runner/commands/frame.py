"""This is the frame of every command's ``main``: a parser with the module's docstring, errors as one line, exit codes.

A command ends with 0, with 2 for what the user can mend, or with 130 after Ctrl-C, as shells have it. An error of the
program shows its traceback and ends with 1, as Python has it.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from runner.config import explain, is_of_the_user
from runner.machine.terminal import fitted, print_anything

INTERRUPTED = 130


def parser_of(command: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows ``doc``, the module's docstring, as it is written.

    ``command`` is what a user types, such as ``python -m runner.runs``.
    """
    print_anything()
    return argparse.ArgumentParser(prog=command, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments ``run`` and ``results_dir``, which ``runner.runs.inventory.folder_of`` takes."""
    parser.add_argument("run", type=Path, metavar="RUN", help="its folder, its id or the end of its id")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="default: results")


def carry_out(work: Callable[[], int | None]) -> int:
    """Do a command's work and return its exit status, which ``work`` may choose; without a choice it is 0."""
    print_anything()
    try:
        status = work()
        sys.stdout.flush()  # so that a pipe without a reader is noticed here
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if not is_of_the_user(error):
            raise
        print(fitted(f"error: {explain(error)}", sys.stderr), file=sys.stderr)
        return 2
    return 0 if status is None else status
