"""Predict the seconds of a step and the memory of a rank of a split run, by formulas with a few measured rates.

A step computes, then waits for its collectives; nothing overlaps, as in the program. An all_reduce of n bytes takes
2 (R - 1) messages one after the other, each of n / R bytes (a ring, as in gloo). A gather of n bytes from each rank
takes R - 1 messages of n bytes. Every message has a latency, and every collective an overhead.

Legend: N classes, R ranks, B rows of a batch in all, D hidden size, M distinct candidates that a batch shares, K hashes
of each of L tables, U classes that moved since the last refresh, E parameters of an encoder.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

FULL, LOG_UNIFORM, LSH = "full", "log_uniform", "lsh_embedding_shared"
METHODS = (FULL, LOG_UNIFORM, LSH)
ROWS = 1024  # of the batches whose rates are measured
_FLOAT = 4  # bytes


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Hold what a rank's processor does with a method.

    ``flops``: operations a second of its products, with all that goes with them, such as Adam. ``pair_seconds``: of the
    loss, for a row and a candidate. ``draw_seconds``: of the draw for a batch of ROWS. ``index_seconds``: of a refresh,
    for each of the N classes.
    """

    flops: float
    pair_seconds: float = 0.0
    draw_seconds: float = 0.0
    index_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Network:
    """Hold the rate at which a rank sends, and the seconds of a message and of a collective beside that.

    ``tree``: messages go along a tree, log2 R of them one after the other where a ring has R - 1.
    """

    bytes_per_second: float
    latency: float
    overhead: float
    tree: bool = False


@dataclass(frozen=True)
class Collective:
    """An operation of all ranks, ``sum``, ``max``, ``gather`` or ``scatter``, and the bytes that a rank hands to it."""

    kind: str
    bytes: float

    def seconds(self, ranks: int, network: Network) -> float:
        """Return how long it takes; nothing for one rank."""
        if ranks == 1:
            return 0.0
        others = ranks - 1
        once = math.ceil(math.log2(ranks)) if network.tree else others
        messages, sent = {
            "gather": (once, others * self.bytes),
            "scatter": (once, others * self.bytes / ranks),
        }.get(self.kind, (2 * once, 2 * others * self.bytes / ranks))
        return network.overhead + messages * network.latency + sent / network.bytes_per_second


@dataclass(frozen=True, kw_only=True)
class Split:
    """Describe a step of a split run.

    ``parallel``: ranks encode a part of the batch each; otherwise all of them encode all of it. ``candidates``: M.
    ``share``: of the batch's candidates and targets, that of the rank with the most; None: 1 / R, as if ids had nothing
    to do with frequencies. ``refresh_steps``: steps between two refreshes of hash tables; ``moved``: U. ``tile``: full
    softmax pads its batch to a multiple of so many rows.
    """

    method: str
    classes: int
    ranks: int
    rows: int = ROWS
    dim: int = 128
    parallel: bool = False
    candidates: float = 0.0
    share: float | None = None
    refresh_steps: float = math.inf
    moved: float = 0.0
    tables: int = 50
    hashes: int = 9
    encoder: int = 0
    threads: int = 1
    tile: int = 32

    @property
    def held(self) -> int:
        """Return the classes of the largest block."""
        return -(-self.classes // self.ranks)

    def refreshed(self, every: float) -> "Split":
        """Return the step with refreshes after so many steps, each of which moves its targets and candidates."""
        moved = min(self.classes, (self.rows + self.candidates) * every)
        return replace(self, refresh_steps=every, moved=moved)

    def step_collectives(self) -> list[Collective]:
        """Return what the ranks exchange to score a batch, take its loss and update the classes."""
        rows, numbers = self.rows, _FLOAT * self.rows
        if self.method == FULL:
            padded = _FLOAT * self.tile * -(-rows // self.tile)
            of_rows = [Collective("max", padded), Collective("sum", padded), Collective("sum", 2 * numbers)]
        else:
            of_rows = [Collective("max", numbers), Collective("sum", numbers), Collective("sum", numbers)]
        hidden = numbers * self.dim
        if not self.parallel:
            return [*of_rows, Collective("sum", hidden)]
        own = 1 / self.ranks
        first = [Collective("gather", own * hidden), Collective("gather", own * numbers)]  # hidden states, targets
        encoder = [Collective("sum", _FLOAT * self.encoder)] if self.encoder else []
        return [*first, *of_rows, Collective("scatter", hidden), *encoder]

    def refresh_collectives(self) -> list[Collective]:
        """Return what a refresh of hash tables exchanges: codes of the classes that moved, or of all if most did.

        Before all are hashed, their mean is taken, in float64. The torch engine always hashes all.
        """
        if self.method != LSH:
            return []
        if 2 * self.moved > self.classes:
            return [Collective("sum", 8 * self.dim), Collective("gather", self.tables * self._code * self.held)]
        return [Collective("gather", self.tables * self._code * self.moved / self.ranks)]

    @property
    def _code(self) -> int:
        """Return the bytes of a class's code in a table."""
        return 2 if self.hashes <= 16 else 4

    def traffic(self) -> Counter[str]:
        """Return the bytes that a rank hands to each kind of operation in a step, refreshes left out."""
        sent: Counter[str] = Counter()
        for collective in self.step_collectives():
            sent[collective.kind] += int(collective.bytes)
        return sent

    def communication(self, network: Network) -> float:
        """Return the seconds of a step's collectives, with those of refreshes spread over all steps."""
        agreement = Collective("max", 12)  # whether to stop, to evaluate and to save, in every step
        step = sum(c.seconds(self.ranks, network) for c in (*self.step_collectives(), agreement))
        refresh = sum(c.seconds(self.ranks, network) for c in self.refresh_collectives())
        return step + refresh / self.refresh_steps

    def computation(self, rates: Rates) -> float:
        """Return the seconds that the rank with the most to do computes for the output layer in a step."""
        if self.method == FULL:  # logits twice, and both gradients: four products
            return 8 * self.rows * self.held * self.dim / rates.flops
        share = 1 / self.ranks if self.share is None else self.share
        pairs = self.rows * (self.candidates + 1) * share
        # Hash tables are asked for every row of the batch, by every rank; a fixed distribution only once.
        seconds = rates.draw_seconds * (self.rows / ROWS if self.method == LSH else 1)
        seconds += pairs * (6 * self.dim / rates.flops + rates.pair_seconds)
        if self.method == LSH:
            seconds += self.classes * rates.index_seconds / self.refresh_steps
        return seconds

    def seconds(self, rates: Rates, network: Network) -> float:
        """Return the seconds of a step of the output layer."""
        return self.computation(rates) + self.communication(network)

    def memory(self) -> dict[str, int]:
        """Return the bytes that a rank holds, by what they are.

        ``rows``: vectors, biases and Adam's moments of its classes. ``counts``: labels of each class. ``sampler``: what
        it keeps of every class. ``gathered``: copies of all codes while hash tables are built. ``checkpoint``: two
        copies of the rows while several ranks write them (torch.distributed.checkpoint).
        """
        classes, sampler, gathered = self.classes, 0, 0
        if self.method == LOG_UNIFORM:
            sampler = (12 + self.threads) * classes  # chances and aliases of slots, log counts; marks of drawn classes
        elif self.method == LSH:
            # Codes and members of buckets; an order and its inverse, last steps, and counts of hits for each thread.
            sampler = (self.tables * (self._code + 4) + 8 + self.threads) * classes
            sampler += self.tables * (2**self.hashes + 1) * 4
            gathered = 3 * self.tables * self._code * classes if self.ranks > 1 else 0
        rows = self.held * (12 * self.dim + 16)
        checkpoint = 2 * rows if self.ranks > 1 else 0
        return {"rows": rows, "counts": 8 * classes, "sampler": sampler, "gathered": gathered, "checkpoint": checkpoint}

    def peak(self) -> int:
        """Return the most bytes that a rank holds at a time: no hash tables are built while it writes a checkpoint."""
        held = self.memory()
        return sum(held.values()) - min(held["gathered"], held["checkpoint"])


def on(split: Split, ranks: int) -> Split:
    """Return the same step on another number of ranks.

    A batch that is divided grows with them, and so does what its rows retrieve from hash tables.
    """
    if not split.parallel:
        return replace(split, ranks=ranks)
    times = ranks / split.ranks
    retrieved = times if split.method == LSH else 1.0
    return replace(
        split,
        ranks=ranks,
        rows=round(split.rows * times),
        candidates=min(split.classes, split.candidates * retrieved),
        moved=min(split.classes, split.moved * times),
    )


def least_ranks(holds: Callable[[int], bool], most: int = 2**20) -> int | None:
    """Return the least number of ranks, from 2 to ``most``, for which ``holds`` is true; None if there is none.

    What holds for a number of ranks must hold for all larger ones.
    """
    high = 2
    while not holds(high):
        if high >= most:
            return None
        high *= 2
    low = max(2, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def talks_half_from(split: Split, rates: Rates, network: Network) -> int | None:
    """Return from how many ranks on communication is more than half of a step."""

    def talks(ranks: int) -> bool:
        there = on(split, ranks)
        return there.communication(network) > there.computation(rates)

    return least_ranks(talks)


def full_is_as_fast_from(full: Split, sampled: Split, rates: Mapping[str, Rates], network: Network) -> int | None:
    """Return from how many ranks on full softmax takes no longer than the sampled step on as many."""

    def seconds(split: Split, ranks: int) -> float:
        return on(split, ranks).seconds(rates[split.method], network)

    return least_ranks(lambda ranks: seconds(full, ranks) <= seconds(sampled, ranks))
