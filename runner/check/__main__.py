"""Check that samplers keep their contract: what they promise about proposals, expected counts, tables and threads.

python -m runner.check uniform lsh_label
python -m runner.check my_sampler 'plugins=[my_module]'
python -m runner.check --all --draws 1000000
python -m runner.check uniform --engine torch

Each sampler is checked on the cases of its config class (``contract_cases``). The command prints a line for each check
and a last line, 'N passed, N failed'. It ends with status 1 if a check failed. 20,000 draws detect counts that are
wrong by about 15 %, a million draws by about 2 %. docs/contract.md explains each check.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence

# Some checks use two threads, even on one core, and where a cluster exports NUMBA_NUM_THREADS=1.
# Numba reads this variable when it is first imported.
if os.environ.get("NUMBA_NUM_THREADS", "1") in ("", "1"):
    os.environ["NUMBA_NUM_THREADS"] = str(max(2, os.cpu_count() or 1))

from runner.commands.frame import carry_out, parser_of
from runner.config import prepare_plugins
from runner.errors import ConfigError, require
from runner.options.conversion import did_you_mean


def main(words: Sequence[str] | None = None) -> int:
    """Check the named samplers; return 0, or 1 if a check failed, or 2 for a user's mistake."""
    parser = parser_of("python -m runner.check", __doc__)
    parser.add_argument("words", nargs="*", metavar="SAMPLER | plugins=[MODULE]", help="what to check")
    parser.add_argument("--all", action="store_true", help="check every sampler")
    parser.add_argument(
        "--engine", choices=("numba", "torch"), default="numba", help="what holds the class matrix; default: numba"
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where torch holds it; default: cpu")
    parser.add_argument("--draws", type=int, default=20_000, help="candidates drawn in each statistic; default: 20000")
    arguments = parser.parse_intermixed_args(words)
    return carry_out(lambda: _check(arguments))


def _check(arguments: argparse.Namespace) -> int:
    passed, failed = check_samplers(
        names_of(arguments.words, everyone=arguments.all), arguments.draws, arguments.engine
    )
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def names_of(words: Sequence[str], *, everyone: bool) -> list[str]:
    """Load plugins; return the names of the samplers to check. Raise ConfigError for an unknown name, or for none."""
    prepare_plugins(words)
    from runner.samplers import SAMPLERS

    names = [word for word in words if not word.startswith("plugins=")]
    for name in names:
        if name not in SAMPLERS:
            raise ConfigError(f"unknown sampler '{name}'{did_you_mean(name, SAMPLERS)}")
    require(bool(names) or everyone, "name samplers to check, or --all for every one")
    return list(SAMPLERS) if everyone else list(dict.fromkeys(names))


def check_samplers(names: Sequence[str], draws: int, engine: str = "numba", device: str = "cpu") -> tuple[int, int]:
    """Run every check on every case, and print a line for each; return how many passed and how many failed."""
    require(draws >= 1, "--draws must be at least 1")
    require(engine == "torch" or device == "cpu", "--device gpu needs --engine torch")
    if device == "gpu":
        require(torch_finds_a_gpu(), "--device gpu: torch finds no GPU that it can use")
    from runner.check.cases import cases_of
    from runner.check.checks import CHECKS, STATISTICS

    passed = failed = 0
    for name in names:
        for case in cases_of(name, engine, "cuda" if device == "gpu" else None).values():
            checks: dict[str, Callable[[], None]] = {what: _bind(check, case) for what, check in CHECKS.items()}
            checks |= {what: _bind(check, case, draws) for what, check in STATISTICS.items()}
            for what, check in checks.items():
                if what in STATISTICS and case.config.is_the_batch:
                    outcome = "not checked: the batch is the draw"
                else:
                    why = _why_it_fails(check)
                    outcome = f"failed: {why}" if why else "ok"
                    passed, failed = passed + (not why), failed + bool(why)
                print(f"{name} {case.name} {what.replace('_', ' ')}: {outcome}", flush=True)
    return passed, failed


def torch_finds_a_gpu() -> bool:
    """Tell whether there is a GPU that torch can use."""
    import torch

    return torch.cuda.is_available()


def _bind(check: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: check(*arguments)


def _why_it_fails(check: Callable[[], None]) -> str:
    """Return one line that says why the check fails, or '' if it passes. Any exception is the sampler's failure."""
    from runner.check.cases import Broken

    try:
        check()
    except Broken as error:
        return " ".join(str(error).split())
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())
        return f"{type(error).__name__} at {os.path.basename(frame.filename)}:{frame.lineno}: {text}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
