"""Rank the classes for new rows, the items for new users, or the next words of a text, by the weights of a run.

python -m runner.predict results/runs/RUN new_rows.txt -k 5
python -m runner.predict results/runs/RUN new_log.csv -k 10 --out ranked.tsv
python -m runner.predict 5c0d3c2a17 sentences.txt -k 3             the run by the end of its id

A run on rows (extreme classification) takes a file of rows. The ending of its name, before that of a compression, or
--layout says which form it has: XC text (xmc, the default), svmlight text whose indices begin at 1 (libsvm), `label |
feature:value` (vw), a sparse matrix of SciPy's save_npz with a column for each feature (npz), or a dense table with a
column for each feature, with or without a header (csv). Features must be numbered, and columns ordered, as in the
training rows; if both tables have a header, columns are found by their names instead. Labels are not used and may be
missing. In the three forms of text they must be numbers of classes where they stand (leave out others, such as -1 or
1.5); a column of a table that is called labels may hold anything. svmlight text whose indices begin at 0 is noticed
only if index 0 occurs.

A run on sequences (recommendation) takes a log, CSV or TSV with a header, and ranks the items that each of its users
may take next; items that the user took before are left out if the run was measured so (ranking.exclude_seen). Items
that the run never saw are left out of the log, and users of whom nothing is left get no lines.

A run on text takes a text in UTF-8, plain or compressed, and ranks the words that may follow each of its lines. Lines
are independent of each other; a blank line gets no words. If the model was trained with sentence ends, a line starts
after one, and <eos> among the words says that the line may end here. Words outside the vocabulary become <unk>. To
write on, there is python -m runner.generate.

The result is a table of tabs, with one line for each row, user or line and rank: row or line (its number in the file,
from 1) or user, rank, class, item or word, the name of the class if the data set has names, and the score. It is the
logit (its magnitude, if the loss was of magnitudes), and for a word the natural logarithm of its probability. The table
goes to --out, which appears when it is complete, or to standard output.

The weights are the best ones of a finished run, or those of the last checkpoint of an unfinished run. The run must have
kept its weights (keep_weights=true if they are large).

Legend: B rows ranked at the same time, K classes of a row, N classes, D hidden size, T tokens, U users of the log.
"""

import argparse
import contextlib
import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from runner.commands.frame import add_run, carry_out, parser_of
from runner.data.rows.files import FORMS, form_of, read_new_rows
from runner.errors import DataError, RunnerError, require

if TYPE_CHECKING:
    from runner.data import TextDataset

_ROWS_AT_ONCE = 1024
_TOKENS_AT_ONCE = 2**14  # whose hidden states are computed together
_TOKENS_KEPT = 2**20  # of lines that wait for being ranked
_NUMBERS_AT_ONCE = 2**24  # logits, or entries of the vectors of ranked classes
_WORD = re.compile(r"\S+", re.ASCII)  # other white space, such as U+00A0, is part of a word, as in training

Line = tuple[Any, ...]


def main() -> int:
    """Write the ranking; return the exit status (2 for a user's mistake, 130 after Ctrl-C)."""
    parser = parser_of("python -m runner.predict", __doc__)
    add_run(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="rows, a log or a text, plain or compressed")
    parser.add_argument(
        "-k", type=int, default=5, help="number of classes, items or words for each row, user or line; default: 5"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; default: standard output")
    parser.add_argument("--layout", choices=FORMS, help="form of a file of rows; default: by the ending of its name")
    for column in ("user", "item", "time"):
        parser.add_argument(f"--{column}", default=column, help=f"column of a log; default: {column}")
    arguments = parser.parse_args()
    return carry_out(lambda: predict(arguments))


def predict(arguments: argparse.Namespace) -> None:
    """Write the ranking of every row or user. Raises ConfigError, DataError or RunnerError (one line)."""
    require(arguments.k >= 1, "-k must be at least 1")
    require(arguments.file.is_file(), f"{arguments.file}: no such file")
    if arguments.out is not None:
        require(arguments.out.parent.is_dir(), f"--out: there is no folder {arguments.out.parent}; make it first")
    from runner.runs.inventory import folder_of
    from runner.training.run_folder import config_of, run_with_weights

    folder = run_with_weights(folder_of(arguments.run, arguments.results_dir))
    config = config_of(folder)
    if config.dataset.family not in _RANKINGS:
        raise RunnerError(
            f"{arguments.run}: {config.run_id} was trained on {config.dataset.family}, for which there are no"
            " classes to rank; give the folder of a run on rows, on sequences or on text"
        )
    if config.dataset.family == "rows" and config.sampler is None:
        raise RunnerError(
            f"{arguments.run}: model={config.model.name} has no class matrix, and this command ranks rows by"
            " one; give the folder of a run with a sampler"
        )
    from runner.machine.threads import set_threads
    from runner.training.run import load_trained

    set_threads(0)  # the run may come from a machine with more cores
    network, task, step = load_trained(config, folder)
    if not folder.is_finished():
        status = (folder.summary() or {}).get("status")
        print(f"the run is '{status}': these are its weights after step {step:,}", file=sys.stderr)
    lines = _RANKINGS[config.dataset.family](network, task, arguments)
    with _output(arguments.out) as out:
        for line in lines:
            out.write("\t".join(map(str, line)) + "\n")


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


# ---------------------------------------------------------------- rows


def _of_rows(network: Any, task: Any, arguments: argparse.Namespace) -> Iterator[Line]:
    """Yield the header and, for each row of the file, its best classes."""
    from runner.data.rows.batches import RowBatch

    data, form = task.data, arguments.layout or form_of(arguments.file)
    blocks = read_new_rows(arguments.file, form, task.num_features, data.feature_names())
    names = data.label_names()
    yield ("row", "rank", "class", *(("name",) if names else ()), "score")
    k = min(arguments.k, data.num_classes)
    at_once = _at_once(k, network)
    number = 0
    for block in blocks:
        indptr = np.concatenate([[0], np.cumsum(block.row_sizes)])
        for first in range(0, len(block.row_sizes), at_once):
            here = indptr[first : first + at_once + 1]
            batch = RowBatch(
                indptr=here - here[0],
                indices=block.indices[here[0] : here[-1]],
                values=block.values[here[0] : here[-1]],
                target_indptr=np.zeros(len(here), dtype=np.int64),
                targets=np.zeros(0, dtype=np.int32),
            )
            hidden_BD = network.encoder.encode(batch)
            top_BK = network.head.top(hidden_BD, k)
            score_BK = network.head.logits_of(hidden_BD, top_BK)
            for top_K, score_K in zip(top_BK.tolist(), score_BK.tolist(), strict=True):
                number += 1
                for rank, (class_id, score) in enumerate(zip(top_K, score_K, strict=True), start=1):
                    yield (number, rank, class_id, *((names[class_id],) if names else ()), f"{score:.6g}")


def _at_once(k: int, network: Any) -> int:
    """Return for how many rows the vectors of k classes each are held at the same time."""
    return max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // (k * network.encoder.dim)))


# ---------------------------------------------------------------- sequences


def _of_users(network: Any, task: Any, arguments: argparse.Namespace) -> Iterator[Line]:
    """Yield the header and, for each user of the log, the best items, in the order in which users first appear."""
    from runner.data.sequences.batches import order_by_length, windows_before
    from runner.kernels.ranks import hide_seen

    users, items_E, indptr_U1 = _read_log(arguments, task)
    names = task.data.item_names
    yield ("user", "rank", "item", "score")
    length, at_once = task.config.model.length, max(1, _NUMBERS_AT_ONCE // task.data.num_classes)
    # The event to predict comes after a user's last one, so the places below are those of the ends; targets are unused.
    padded_E = np.append(items_E, np.int32(0))
    for first in range(0, len(users), at_once):
        begin_B, place_B = indptr_U1[first : first + at_once + 1][:-1], indptr_U1[first + 1 : first + at_once + 1]
        order_B = order_by_length(begin_B, place_B, length)
        logits_BN = task.logits(network, windows_before(padded_E, begin_B, place_B, length))
        if task.config.ranking.exclude_seen:
            hide_seen(logits_BN, padded_E, begin_B[order_B], place_B[order_B])
        logits_BN = logits_BN[np.argsort(order_B)]
        for row, user in enumerate(users[first : first + at_once]):
            best_K = np.argsort(-logits_BN[row], kind="stable")[: arguments.k]
            for rank, item in enumerate(best_K.tolist(), start=1):
                if np.isfinite(logits_BN[row, item]):
                    yield (user, rank, names[item], f"{logits_BN[row, item]:.6g}")


def _read_log(arguments: argparse.Namespace, task: Any) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the users with events that count, their items in order of time, (E,) int32, and where users begin."""
    from runner.data.sequences.events import by_user
    from runner.data.sequences.logs import LogColumns, read_events

    columns = LogColumns(user=arguments.user, item=arguments.item, time=arguments.time, set_by="--{} COLUMN")
    read = read_events(arguments.file, columns, separator=None, header=True, quoted=True, min_rating=None)
    for note in read.notes:
        print(note, file=sys.stderr)
    events = read.events
    class_of = {name: number for number, name in enumerate(task.data.item_names)}
    known_I = np.array([class_of.get(name, -1) for name in events.items], dtype=np.int32)
    kept_E = known_I[events.item_E] >= 0
    if not kept_E.all():
        print(f"{np.count_nonzero(~kept_E):,} events of items that the run never saw are left out", file=sys.stderr)
    counting = by_user(events.take(kept_E))
    user_U, count_U = np.unique(counting.user_E, return_counts=True)
    if len(user_U) == 0:
        raise DataError(f"{arguments.file}: no event is of an item that the run knows")
    if missing := len(np.unique(events.user_E)) - len(user_U):
        print(f"{missing:,} users have no event that counts, and get no lines", file=sys.stderr)
    indptr_U1 = np.concatenate([[0], np.cumsum(count_U)]).astype(np.int64)
    return [events.users[user] for user in user_U], known_I[counting.item_E], indptr_U1


# ---------------------------------------------------------------- text


def _of_lines(network: Any, task: Any, arguments: argparse.Namespace) -> Iterator[Line]:
    """Yield the header and, for each line of the text, the likeliest next words."""
    data: TextDataset = task.data
    k = min(arguments.k, data.num_classes)
    at_once = min(_at_once(k, network), max(1, _TOKENS_AT_ONCE // task.config.windows.length))
    groups = _groups(_read_lines(arguments.file, data), at_once)
    first = next(groups)  # a file without a word is refused before anything is written
    yield ("line", "rank", "word", "score")
    for group in itertools.chain([first], groups):
        hidden_BD = task.hidden_after(network, [ids_T for _, ids_T in group])
        top_BK, score_BK = task.likeliest(network, hidden_BD, k)
        for (number, _), top_K, score_K in zip(group, top_BK.tolist(), score_BK.tolist(), strict=True):
            for rank, (word, score) in enumerate(zip(top_K, score_K, strict=True), start=1):
                yield (number, rank, data.vocabulary[word], f"{score:.6g}")


def _read_lines(path: Path, data: "TextDataset") -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the ids of each line that has a word, (T,) int32; say at the end how many were unknown.

    Lines end in LF and words are separated by ASCII white space, to which CR belongs, as in training. Raises DataError
    for a file without a word and for a line that is not UTF-8.
    """
    from runner.data.shared.files import blocks
    from runner.data.shared.tables import decoded
    from runner.data.text.dataset import UNK

    words = unknown = number = 0
    for piece, _ in blocks(path, lambda: number):  # noqa: B023  it must see the current value
        for line in piece.split(b"\n")[:-1]:
            number += 1
            of_line = _WORD.findall(decoded(path, number, line))
            if not of_line:
                continue
            words += len(of_line)
            unknown += sum(word not in data.ids for word in of_line)
            yield number, np.array(data.to_continue(of_line), dtype=np.int32)
    if words == 0:
        raise DataError(f"{path}: the file holds no word to go on from")
    if unknown:
        print(f"{unknown:,} of {words:,} words are not in the vocabulary, and are read as {UNK}", file=sys.stderr)


def _groups(lines: Iterator[tuple[int, np.ndarray]], at_once: int) -> Iterator[list[tuple[int, np.ndarray]]]:
    """Yield some lines at a time, so that neither lines nor tokens become too many."""
    group: list[tuple[int, np.ndarray]] = []
    tokens = 0
    for line in lines:
        group.append(line)
        tokens += len(line[1])
        if len(group) == at_once or tokens >= _TOKENS_KEPT:
            yield group
            group, tokens = [], 0
    if group:
        yield group


_RANKINGS = {"rows": _of_rows, "sequences": _of_users, "text": _of_lines}  # by family of data

if __name__ == "__main__":
    sys.exit(main())
