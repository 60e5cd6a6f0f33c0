"""Check and measure the torch engine on a GPU, in at most ten minutes.

python scripts/bench_gpu.py                 results in results/bench/gpu
python scripts/bench_gpu.py --minutes 5     stops what is not done by then

It runs these one after another: every sampler's contract on the GPU; the output layer's step of every method
at 131,072, 670,091 and 6,700,910 classes beside PyTorch's own; and training on synthetic data of Amazon-670K's size, a
run for each method of LNS Table 3, compared in a table. What is skipped, fails or runs out of time is named in the end.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SIZES = {131_072: 0.15, 670_091: 0.2, 6_700_910: 0.2}
"""Numbers of classes, each with its share of the time."""
METHODS = "full,full_bf16,uniform,log_uniform,nce,topk,midx_rq,lsh_embedding_shared"
STEPS = 200
"""Training steps of a run: enough for seconds of a step; P@1 after them is of a model that has just begun."""
_LIBRARIES = "torch_full,torch_sampled,torch_naive,cce,liger"


def commands(folder: Path) -> dict[str, tuple[float, list[str]]]:
    """Return the share of the time and the command of each part, by name."""
    runs = folder / "results"
    parts = {"contract": (0.2, ["-m", "runner.check", "--all", "--engine", "torch", "--device", "gpu"])}
    for classes, share in SIZES.items():
        methods = "full,full_bf16,log_uniform,topk" + (",lsh_embedding_shared" if classes < 10**6 else "")
        settings = [
            f"classes={classes}",
            "overrides=[hardware=gpu]",
            f"methods={methods},{_LIBRARIES}",
            "repetitions=3",
        ]
        report = folder / f"output_layer_{classes}.json"
        parts[f"bench_{classes}"] = (
            share,
            ["scripts/bench.py", "output_layer", *settings, "repetitions=3", "--json", str(report)],
        )
    data = ["dataset=synthetic_xc", "dataset.like=amazon670k", "batch_size=1024", f"max_steps={STEPS}"]
    place = ["hardware=gpu", "keep_weights=false", f"results_dir={runs}"]
    parts["table3"] = (0.25, ["-m", "runner", "-m", f"method={METHODS}", *data, *place])
    table = folder / "table3.csv"
    parts["compare"] = (0.0, ["-m", "runner.compare", "--results-dir", str(runs), "--csv", str(table)])
    return parts


def main() -> int:
    """Run the parts; return 0 if all of them ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.5, help="for all parts together; default: 9.5")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "results" / "bench" / "gpu", help="of the results")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("error: torch finds no GPU that it can use", file=sys.stderr)
        return 2
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name()
    lines = [f"# The torch engine on {name}", "", f"torch {torch.__version__}, CUDA {torch.version.cuda}", ""]
    ends = time.monotonic() + 60 * arguments.minutes
    for part, (share, command) in commands(folder).items():
        left = ends - time.monotonic()
        allowed = min(left, 60 * arguments.minutes * share) if share else left
        status = run(command, folder / f"{part}.log", allowed)
        lines.append(f"- {part}: {status}; {folder.name}/{part}.log")
        print(lines[-1], flush=True)
    (folder / "README.md").write_text("\n".join(lines) + "\n")
    print(folder)
    return 0 if all(": ok" in line for line in lines[4:]) else 1


def run(command: list[str], log: Path, seconds: float) -> str:
    """Run a command of this Python, its output into a file; return how it ended."""
    if seconds <= 0:
        return "skipped: no time left"
    begin = time.monotonic()
    with log.open("w") as file:
        # A session of its own, so that what the command started ends with it and leaves the GPU to the next part.
        child = subprocess.Popen(
            [sys.executable, *command], cwd=REPOSITORY, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"stopped after {seconds:.0f} s"
    took = time.monotonic() - begin
    return f"ok after {took:.0f} s" if code == 0 else f"failed with exit code {code} after {took:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
