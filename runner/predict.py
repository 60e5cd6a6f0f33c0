"""Rank the classes for new rows, the items for new users, or the next words of a text, by the weights of a run.

python -m runner.predict results/runs/RUN new_rows.txt -k 5
python -m runner.predict results/runs/RUN new_log.csv -k 10 --out ranked.tsv
python -m runner.predict 5c0d3c2a17 sentences.txt -k 3             the run by the end of its id
python -m runner.predict results/runs/RUN new_texts.csv --threshold 0.2
echo "a text" | python -m runner.predict results/runs/RUN -        texts from standard input, one in a line

A run on rows (extreme classification) takes a file of rows. The ending of its name, before that of a compression, or
--layout says which form it has: XC text (xmc, the default), svmlight text whose indices begin at 1 (libsvm), `label |
feature:value` (vw), a sparse matrix of SciPy's save_npz with a column for each feature (npz), or a dense table with a
column for each feature, with or without a header (csv). Features must be numbered, and columns ordered, as in the
training rows; if both tables have a header, columns are found by their names instead. Labels are not used and may be
missing. In the three forms of text they must be numbers of classes where they stand (leave out others, such as -1 or
1.5); a column of a table that is called labels may hold anything. svmlight text whose indices begin at 0 is noticed
only if index 0 occurs.

A run on texts with labels (dataset=xmc dataset.text=COLUMN) takes texts: a table with a column of that name, or of
--text (CSV, TSV, JSON lines or Parquet, by the ending), or a text in each line of any other file or of standard input,
whose name is -. A text becomes a row as in training; words outside the vocabulary do not count.

A run on sequences (recommendation) takes a log, CSV or TSV, and ranks the items that each of its users
may take next; items that the user took before are left out if the run was measured so (ranking.exclude_seen). Items
that the run never saw are left out of the log, and users of whom nothing is left get no lines. --user, --item and
--time name the columns, as dataset.user, dataset.item and dataset.time did for training, which are their defaults;
--time null takes the order of the file, and --columns names those of a log without a header.

A run on text takes a text in UTF-8, plain or compressed, and ranks the words that may follow each of its lines. Lines
are independent of each other; a blank line gets no words. If the model was trained with sentence ends, a line starts
after one, and <eos> among the words says that the line may end here. Words outside the vocabulary become <unk>. To
write on, there is python -m runner.generate.

The result is a table of tabs, with one line for each row, user or line and rank: row or line (its number in the file,
from 1) or user, rank, class, item or word, the name of the class if the data set has names, score and probability. The
score is the logit (its magnitude, if the loss was of magnitudes), and for a word the natural logarithm of its
probability. The probability is that of the softmax over all classes, or over the items that are ranked; if the loss
takes each class as a problem of its own (negative_sampling, gbce), it is sigmoid(logit). Probabilities are those that
the model learnt, which need not be the frequencies of what is right. --threshold leaves out what is less probable. The
table goes to --out, which appears when it is complete, or to standard output.

The weights are the best ones of a finished run, or those of the last checkpoint of an unfinished run. The run must have
kept its weights (keep_weights=true if they are large). The folder of a finished run is enough: names and vocabulary lie
beside them.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from runner.commands.frame import add_run, carry_out, parser_of
from runner.data.rows.files import FORMS
from runner.data.shared.files import STDIN
from runner.errors import require


def main() -> int:
    """Write the ranking; return the exit status (2 for a user's mistake, 130 after Ctrl-C)."""
    parser = parser_of("python -m runner.predict", __doc__)
    add_run(parser)
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="rows, texts, a log or a text, plain or compressed; -: standard input"
    )
    parser.add_argument(
        "-k", type=int, default=5, help="number of classes, items or words for each row, user or line; default: 5"
    )
    parser.add_argument("--threshold", type=float, default=0.0, metavar="P", help="least probability; default: 0")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; default: standard output")
    parser.add_argument("--layout", choices=FORMS, help="form of a file of rows; default: by the ending of its name")
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts in a table; default: that of training")
    for column in ("user", "item", "time"):
        parser.add_argument(f"--{column}", metavar="COLUMN", help="column of a log; default: that of training")
    parser.add_argument("--columns", metavar="NAMES", help="those of a log without a header, such as user,item,time")
    arguments = parser.parse_args()
    return carry_out(lambda: predict(arguments))


def predict(arguments: argparse.Namespace) -> None:
    """Write the ranking of every row or user. Raises ConfigError, DataError or RunnerError (one line)."""
    if str(arguments.file) == "-":
        arguments.file = STDIN
    require(arguments.k >= 1, "-k must be at least 1")
    require(0 <= arguments.threshold <= 1, f"--threshold must lie in [0, 1], got {arguments.threshold}")
    require(arguments.file is STDIN or arguments.file.is_file(), f"{arguments.file}: no such file")
    if arguments.out is not None:
        require(arguments.out.parent.is_dir(), f"--out: there is no folder {arguments.out.parent}; make it first")
    from runner.ranking.loaded import LoadedRun

    run = LoadedRun(arguments.run, arguments.results_dir)
    lines = run.ranked(_SOURCES[run.config.dataset.family](run, arguments), arguments.k, arguments.threshold)
    with _output(arguments.out) as out:
        for line in lines:
            out.write("\t".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in line) + "\n")


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Open the file to write, which takes its name only when it is complete; None: standard output."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print(path, file=sys.stderr)


def _rows(run: Any, arguments: argparse.Namespace) -> Any:
    from runner.ranking.rows import rows_of_file

    return rows_of_file(run.task, arguments.file, layout=arguments.layout, column=arguments.text)


def _log(run: Any, arguments: argparse.Namespace) -> Any:
    from runner.data.sequences.logs import LogColumns, has_header
    from runner.ranking.users import histories_of_log

    trained, used = run.config.dataset, {}
    for column in ("user", "item", "time"):
        used[column] = getattr(arguments, column) or getattr(trained, column, column)
    if used["time"] == "null":
        used["time"] = None
    names = getattr(trained, "names", None)
    if arguments.columns is not None:
        names = tuple(arguments.columns.split(","))
    elif has_header(arguments.file, LogColumns(**used)):
        names = None
    return histories_of_log(run.task, arguments.file, LogColumns(**used, names=names, set_by="--{} COLUMN"))


def _lines(run: Any, arguments: argparse.Namespace) -> Any:
    from runner.ranking.lines import lines_of_file

    return lines_of_file(run.task, arguments.file)


_SOURCES = {"rows": _rows, "sequences": _log, "text": _lines}  # by family of data

if __name__ == "__main__":
    sys.exit(main())
