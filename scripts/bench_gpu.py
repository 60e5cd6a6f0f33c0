"""Check and measure the torch engine on a GPU, in at most ten minutes.

python scripts/bench_gpu.py                 results in results/bench/gpu
python scripts/bench_gpu.py --minutes 5     stops what is not done by then

It runs three commands one after another: every sampler's contract on the GPU; the output layer's step of every method
at 131,072, 670,091 and 6,700,910 classes beside PyTorch's own; and training on synthetic data of Amazon-670K's size, a
run for each method of LNS Table 3, compared in a table. What is skipped, fails or runs out of time is named in the end.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SIZES = "131072,670091,6700910"
METHODS = "full,full_bf16,uniform,log_uniform,nce,topk,lsh_embedding_shared"
STEPS = 200
"""Training steps of a run: enough for seconds of a step; P@1 after them is of a model that has just begun."""


def commands(folder: Path) -> dict[str, tuple[float, list[str]]]:
    """Return the share of the time and the command of each part, by name."""
    runs = folder / "results"
    return {
        "contract": (0.25, ["-m", "runner.check", "--all", "--engine", "torch", "--device", "gpu"]),
        "bench": (
            0.35,
            [
                "scripts/bench.py", "output_layer", f"classes={SIZES}", "overrides=[hardware=gpu]",
                "methods=full,full_bf16,log_uniform,topk,lsh_embedding_shared,torch_full,torch_sampled,torch_naive,cce,liger",
                "repetitions=3", "--json", str(folder / "output_layer.json"),
            ],
        ),
        "table3": (
            0.40,
            [
                "-m", "runner", "-m", f"method={METHODS}", "dataset=synthetic_xc", "dataset.like=amazon670k",
                "hardware=gpu", "batch_size=1024", f"max_steps={STEPS}", "keep_weights=false", f"results_dir={runs}",
            ],
        ),
        "compare": (0.02, ["-m", "runner.compare", "--results-dir", str(runs), "--csv", str(folder / "table3.csv")]),
    }  # fmt: skip


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
        allowed = min(left, max(60 * arguments.minutes * share, left if part == "compare" else 0))
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
        try:
            code = subprocess.run(
                [sys.executable, *command], cwd=REPOSITORY, stdout=file, stderr=subprocess.STDOUT, timeout=seconds,
                check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s"
    took = time.monotonic() - begin
    return f"ok after {took:.0f} s" if code == 0 else f"failed with exit code {code} after {took:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
