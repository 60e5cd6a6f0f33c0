"""Be one rank of a measurement of collectives; torchrun starts it: ``torchrun ... -m runner.bench.collectives OUT``.

Rank 0 writes the median seconds of an all_reduce of some sizes, as a split run calls it.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

SMALL, LARGE = 4 * 1024, 2**23  # bytes: a number for each row of a batch, and enough to forget the latency
_TIMES = 40


def main(out: Path) -> None:
    """Measure and write. Raises RunnerError if a rank is missing."""
    import torch

    from runner.errors import require
    from runner.machine.group import meet
    from runner.machine.threads import set_threads
    from runner.output.ranks import Ranks

    group = meet(60.0)
    require(group is not None, "torchrun starts this program, in two processes or more")
    assert group is not None
    set_threads(1)
    across, found = Ranks(group, torch.device("cpu")), {}
    for size in (SMALL, LARGE):
        values, seconds = np.ones(size // 4, dtype=np.float32), []
        for _ in range(_TIMES):
            across.wait()
            begin = time.perf_counter()
            across.sum(values)
            seconds.append(time.perf_counter() - begin)
        found[str(size)] = statistics.median(seconds)
    if across.leads:
        out.write_text(json.dumps(found))
    across.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
