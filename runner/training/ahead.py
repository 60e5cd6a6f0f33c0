"""Compile the kernels of the usual runs ahead, so that the first run of each kind starts in seconds.

`make setup` does this in a checkout; after `pip install`, do it once in the folder in which you will make runs, because
compiled kernels are kept in its .numba_cache (or where the variable NUMBA_CACHE_DIR says). Kernels that are compiled
already, for this processor and the present sources, are not compiled again.

Processes side by side compile one kind of run each and take from the cache what another has compiled meanwhile.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from tqdm import tqdm

from runner.commands.frame import carry_out, parser_of
from runner.config import compose
from runner.training.compilation import compile_apart, kernel_count, marker_of

# Neighbours share few kernels, so that processes side by side seldom compile the same one.
USUAL_RUNS = (
    "sampler=lsh_label",
    "model=regression batch_sampler=lgd",
    "model=sasrec",
    "sampler=uniform",
    "model=lstm dataset=ptb",
    "sampler=full",
)
_MOST_AT_ONCE = 4  # a process takes about 0.7 GB


def compile_usual_runs() -> list[str]:
    """Compile what is missing, with a line of progress after each kind; return the runs for which that failed."""
    began, failed = time.perf_counter(), []
    configs = {words: compose(words.split()) for words in USUAL_RUNS}
    missing = [words for words in USUAL_RUNS if not marker_of(configs[words]).exists()]
    if missing:
        print("compiling the kernels of usual runs, which takes about a minute of two cores", flush=True)
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1)) as pool, kernel_count("kernels") as bar:
        running = {pool.submit(compile_apart, configs[words], bar): words for words in missing}
        try:
            for done, future in enumerate(as_completed(running), 1):
                words = running[future]
                if not future.result():
                    failed.append(words)
                    tqdm.write(f"could not compile ahead; the first run tries again: {words}", file=sys.stderr)
                tqdm.write(f"{done} of {len(missing)} kinds, {time.perf_counter() - began:.0f} s: {words}")
                sys.stdout.flush()
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    if not failed:
        print("the kernels of usual runs are compiled")
    return failed


def main() -> int:
    """Compile what is missing; return 1 if some of it could not be compiled."""
    parser_of("python -m runner.training.ahead", __doc__).parse_args()
    return carry_out(lambda: 1 if compile_usual_runs() else 0)


if __name__ == "__main__":
    sys.exit(main())
