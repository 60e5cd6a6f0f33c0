"""Rank the classes for new rows, or the items for new users, by the weights of a run.

python -m runner.predict results/runs/RUN new_rows.txt -k 5
python -m runner.predict results/runs/RUN new_log.csv -k 10 --out ranked.tsv

A run on rows (extreme classification) takes a file of rows, plain or compressed: XC text (--layout xmc, the default),
svmlight without the header (libsvm), or `label | feature:value` (vw). Labels may be missing; they are not used. A run
on sequences (recommendation) takes a log, CSV or TSV with a header, and ranks the items that each of its users may take
next; items that the user took before are left out if the run was measured so (ranking.exclude_seen). Items that the run
never saw are left out of the log, and users of whom nothing is left get no lines. For text there is python -m
runner.generate.

The result is a table of tabs, with one line for each row or user and rank: row (its number in the file, from 1) or
user, rank, class or item, the name of the class if the data set has names, and the score, which is the logit (its
magnitude, if the loss was of magnitudes). It goes to --out, which appears when it is complete, or to standard output.

The weights are the best ones of a finished run, or those of the last checkpoint of an unfinished run. The run must have
kept its weights (keep_weights=true if they are large).

Legend: B rows ranked at the same time, K classes of a row, N classes, D hidden size, U users of the log.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from runner.commands.frame import carry_out, parser_of
from runner.errors import DataError, RunnerError, require

if TYPE_CHECKING:
    from runner.data.readers import Block
    from runner.heads.output_layer import OutputLayer

_ROWS_AT_ONCE = 1024
_LOGITS_AT_ONCE = 2**24
_LAYOUTS = {"xmc": (0, 0), "libsvm": (1, 0), "vw": (1, 0)}  # the smallest feature and label of a file

Line = tuple[Any, ...]


def main() -> int:
    """Write the ranking; return the exit status (2 for a user's mistake, 130 after Ctrl-C)."""
    parser = parser_of("python -m runner.predict", __doc__)
    parser.add_argument("run_folder", type=Path, metavar="RUN_FOLDER", help="folder of a finished or interrupted run")
    parser.add_argument("file", type=Path, metavar="FILE", help="rows or a log, plain, .gz, .xz or .bz2")
    parser.add_argument("-k", type=int, default=5, help="number of classes for each row; default: 5")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; default: standard output")
    parser.add_argument("--layout", choices=tuple(_LAYOUTS), default="xmc", help="layout of rows; default: xmc")
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
    from runner.training.run_folder import config_of, run_with_weights

    folder = run_with_weights(arguments.run_folder)
    config = config_of(folder)
    if config.dataset.family not in ("rows", "sequences"):
        other = "; python -m runner.generate continues a text" if config.dataset.family == "text" else ""
        raise RunnerError(
            f"{arguments.run_folder}: {config.run_id} was trained on {config.dataset.family}, for which there are no"
            f" classes to rank; give the folder of a run on rows or on sequences{other}"
        )
    if config.dataset.family == "rows" and config.sampler is None:
        raise RunnerError(
            f"{arguments.run_folder}: model={config.model.name} has no class matrix, and this command ranks rows by"
            " one; give the folder of a run with a sampler"
        )
    from runner.machine.threads import set_threads
    from runner.training.run import load_trained

    set_threads(0)  # the run may come from a machine with more cores
    network, task, step = load_trained(config, folder)
    if not folder.is_finished():
        status = (folder.summary() or {}).get("status")
        print(f"the run is '{status}': these are its weights after step {step:,}", file=sys.stderr)
    if config.dataset.family == "rows":
        lines = _of_rows(network, task, arguments)
    else:
        lines = _of_users(network, task, arguments)
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
    from runner.data.batches import RowBatch

    blocks, data = _read_rows(arguments.file, arguments.layout, task.num_features), task.data
    names = data.label_names()
    weights_ND = network.head.layer.class_vectors()  # once: they are computed if the layer is normalised
    yield ("row", "rank", "class", *(("name",) if names else ()), "score")
    k = min(arguments.k, data.num_classes)
    number = 0
    for block in blocks:
        indptr = np.concatenate([[0], np.cumsum(block.row_sizes)])
        for first in range(0, len(block.row_sizes), _ROWS_AT_ONCE):
            here = indptr[first : first + _ROWS_AT_ONCE + 1]
            batch = RowBatch(
                indptr=here - here[0],
                indices=block.indices[here[0] : here[-1]],
                values=block.values[here[0] : here[-1]],
                target_indptr=np.zeros(len(here), dtype=np.int64),
                targets=np.zeros(0, dtype=np.int32),
            )
            hidden_BD = network.encoder.encode(batch)
            top_BK = network.head.top(hidden_BD, k)
            score_BK = scores_of(network.head.layer, weights_ND, hidden_BD, top_BK)
            if network.head.loss.by_magnitude:
                score_BK = np.abs(score_BK)
            for top_K, score_K in zip(top_BK.tolist(), score_BK.tolist(), strict=True):
                number += 1
                for rank, (class_id, score) in enumerate(zip(top_K, score_K, strict=True), start=1):
                    yield (number, rank, class_id, *((names[class_id],) if names else ()), f"{score:.6g}")


def _read_rows(path: Path, layout: str, num_features: int) -> "list[Block]":
    """Read all rows of a file, with or without labels. Raises DataError, naming the line, for what is no row."""
    from runner.data.readers import TextFormat, progress_bar, read_rows

    first_feature, first_label = _LAYOUTS[layout]
    text = TextFormat(layout=layout, feature_start=first_feature, label_start=first_label)
    blocks: list[Block] = []
    with progress_bar(path) as progress:
        read_rows(path, text, blocks.append, keep_unlabelled=True, progress=progress)
    largest = max((int(block.indices.max()) for block in blocks if len(block.indices)), default=-1)
    if largest >= num_features:
        raise DataError(
            f"{path}: feature {largest + first_feature} is beyond the {num_features:,} features that the run was"
            " trained with; prepare these rows as its training rows were"
        )
    return blocks


def scores_of(layer: "OutputLayer", weights_ND: np.ndarray, hidden_BD: np.ndarray, class_BK: np.ndarray) -> np.ndarray:
    """Return the logits of some classes of each row, (B, K) float32.

    ``weights_ND``: what the layer's ``class_vectors`` returned.
    """
    logit_BK = np.einsum("bd,bkd->bk", layer.query_vectors(hidden_BD), weights_ND[class_BK])
    bias_N = layer.table.bias_view
    return np.asarray(logit_BK + bias_N[class_BK], dtype=np.float32)


# ---------------------------------------------------------------- sequences


def _of_users(network: Any, task: Any, arguments: argparse.Namespace) -> Iterator[Line]:
    """Yield the header and, for each user of the log, the best items, in the order in which users first appear."""
    from runner.data.sequence_batches import order_by_length, windows_before
    from runner.kernels.ranks import hide_seen

    users, items_E, indptr_U1 = _read_log(arguments, task)
    names = task.data.item_names
    yield ("user", "rank", "item", "score")
    length, at_once = task.config.model.length, max(1, _LOGITS_AT_ONCE // task.data.num_classes)
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
    from runner.data.events import by_user
    from runner.data.read_events import LogColumns, read_events

    columns = LogColumns(user=arguments.user, item=arguments.item, time=arguments.time, set_by="--{} COLUMN")
    read = read_events(arguments.file, columns, separator=None, header=True, quoted=True, min_rating=None)
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


if __name__ == "__main__":
    sys.exit(main())
