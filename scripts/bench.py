"""Measure training steps of the output layer, or whole steps of a language model, with several methods side by side.

python scripts/bench.py output_layer                                   every method at 670,091 classes
python scripts/bench.py output_layer --classes 131072 670091 6700910   how its time grows with the classes
python scripts/bench.py rows --method lsh_embedding                    the row policies of the optimizer
python scripts/bench.py refresh --classes 670091                       rebuilding hash tables
python scripts/bench.py sampling --classes 10000 100000 500000         how long drawing takes, and its figure
python scripts/bench.py sampling --midx-codewords                      MIDX's draws by number of codewords
python scripts/bench.py sampling --rf-softmax                          RF-softmax Table 2 beside its printed numbers
python scripts/bench.py kernels                                        RF-softmax Table 1: errors, no times
python scripts/bench.py example_steps                                  steps of regression by sampler of examples
python scripts/bench.py read_log                                       preparing a log of up to ten million events
python scripts/bench.py language_step --texts ptb                      whole steps of a language model by sampler
python scripts/bench.py language_step --lsh-softmax                    LSH Softmax Table 2 beside its printed speed-ups

Each command writes results/bench/<what>.json and the same report as Markdown beside it. Nothing else should run on the
machine.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

Size = TypeVar("Size")
_QUIET = 0.5  # cores kept busy by others above which timings are doubtful
_LOOK_SECONDS = 0.1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, one subcommand for each kind of measurement."""
    from runner.bench.methods import ALL_METHODS, LANGUAGE_METHODS, METHODS, SAMPLERS

    every = argparse.ArgumentParser(add_help=False)
    every.add_argument("--threads", type=int, default=0, metavar="N", help="default: all cores of this process")
    every.add_argument("--repetitions", type=int, default=5, metavar="N", help="default: 5")
    every.add_argument("--overrides", nargs="*", default=[], metavar="KEY=VALUE", help="settings of every method")
    every.add_argument("--json", type=Path, metavar="PATH", help="default: results/bench/<what>.json")
    common = argparse.ArgumentParser(add_help=False, parents=[every])
    common.add_argument("--classes", type=int, nargs="+", metavar="N", help="default: 670091")
    steps = argparse.ArgumentParser(add_help=False)
    steps.add_argument("--batch", type=int, default=1024, metavar="N", help="rows of a batch (default: 1024)")
    steps.add_argument(
        "--steps", type=int, default=20, metavar="N",
        help="steps in a repetition; methods that read every class take a tenth as many (default: 20)",
    )  # fmt: skip
    steps.add_argument(
        "--schedule-steps", type=int, default=1000, metavar="N",
        help="number of training steps whose refreshes are spread evenly over their rows (default: 1000)",
    )  # fmt: skip
    front = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = front.add_subparsers(dest="what", required=True)
    layer = what.add_parser("output_layer", parents=[common, steps], help="measure the step of every method")
    layer.add_argument(
        "--methods", nargs="+", choices=ALL_METHODS, default=ALL_METHODS, metavar="METHOD",
        help=f"some of {', '.join(ALL_METHODS)} (default: all)",
    )  # fmt: skip
    rows = what.add_parser("rows", parents=[common, steps], help="measure one method under every row policy")
    rows.add_argument(
        "--method", choices=tuple(METHODS), default="lsh_embedding", metavar="METHOD",
        help=f"one of {', '.join(METHODS)} (default: lsh_embedding)",
    )  # fmt: skip
    what.add_parser("refresh", parents=[common], help="measure rebuilding hash tables")
    draws = what.add_parser("sampling", parents=[common], help="measure how long each sampler takes to draw")
    draws.add_argument("--batch", type=int, metavar="N", help="rows of a batch (default: 256)")
    draws.add_argument("--draws", type=int, metavar="N", help="draws per row (default: 100)")
    draws.add_argument("--dim", type=int, metavar="N", help="size of a class vector (default: 64)")
    draws.add_argument(
        "--methods", nargs="+", choices=tuple(SAMPLERS), metavar="SAMPLER",
        help=f"some of {', '.join(SAMPLERS)} (default: all but rff_D... and midx_..._C...)",
    )  # fmt: skip
    known = draws.add_mutually_exclusive_group()
    known.add_argument(
        "--midx-codewords", action="store_true",
        help="measure MIDX by its number of codewords, 256 rows, 100 draws, 64 dimensions, 100,000 classes",
    )  # fmt: skip
    known.add_argument(
        "--rf-softmax", action="store_true",
        help="measure RF-softmax Table 2: its samplers, 10 rows, 10 draws, 64 dimensions, 10,000 and 500,000 classes "
        "or one of these (--classes)",
    )  # fmt: skip
    kernels = what.add_parser("kernels", help="measure the errors of approximations of the softmax's kernel")
    kernels.add_argument("--draws", type=int, default=5, metavar="N", help="draws of the features (default: 5)")
    kernels.add_argument("--images", type=int, default=1797, metavar="N", help="number of digits (default: all 1797)")
    kernels.add_argument("--threads", type=int, default=0, metavar="N", help="default: all cores of this process")
    kernels.add_argument("--json", type=Path, metavar="PATH", help="default: results/bench/kernels.json")
    examples = what.add_parser("example_steps", help="measure steps of linear regression by sampler of examples")
    examples.add_argument(
        "--examples", type=int, nargs="+", metavar="N",
        help="numbers of training examples (default: 100000 1000000 10000000)",
    )  # fmt: skip
    examples.add_argument(
        "--batches", type=int, nargs="+", default=[1, 32], metavar="N", help="sizes of batches (default: 1 32)"
    )
    examples.add_argument("--threads", type=int, default=0, metavar="N", help="default: all cores of this process")
    examples.add_argument("--repetitions", type=int, default=5, metavar="N", help="default: 5")
    examples.add_argument("--json", type=Path, metavar="PATH", help="default: results/bench/example_steps.json")
    log = what.add_parser("read_log", help="measure the preparation of a log of events, and its memory")
    log.add_argument(
        "--events", type=int, nargs="+", metavar="N", help="numbers of events (default: 100000 1000000 10000000)"
    )
    log.add_argument("--json", type=Path, metavar="PATH", help="default: results/bench/read_log.json")
    language = what.add_parser(
        "language_step", parents=[every], help="measure whole training steps of a language model"
    )
    language.add_argument(
        "--texts", nargs="+", metavar="TEXT",
        help="names of prepared texts, or numbers of classes whose tokens follow Zipf's law (default: ptb)",
    )  # fmt: skip
    language.add_argument(
        "--methods", nargs="+", choices=tuple(LANGUAGE_METHODS), metavar="METHOD",
        help=f"some of {', '.join(LANGUAGE_METHODS)} (default: full softmaxes and those not in --lsh-softmax)",
    )  # fmt: skip
    language.add_argument(
        "--preset", metavar="NAME", help="preset of the model and its training (default: midx_lm_full)"
    )
    language.add_argument("--draws", type=int, metavar="N", help="draws per token (default: 20)")
    language.add_argument("--steps", type=int, default=20, metavar="N", help="steps in a repetition (default: 20)")
    language.add_argument(
        "--schedule-steps", type=int, default=1000, metavar="N",
        help="number of training steps in which refreshes are counted, as their intervals may grow (default: 1000)",
    )  # fmt: skip
    language.add_argument(
        "--lsh-softmax", action="store_true",
        help="measure LSH Softmax Table 2: its model and methods, its numbers of classes or some of them (--texts), "
        "batches of one token",
    )  # fmt: skip
    return front


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = parser().parse_args(argv)
    from runner.config import explain
    from runner.errors import RunnerError

    if arguments.what != "kernels" and (busy := busy_cores()) > _QUIET:
        print(f"warning: others keep {busy:.1f} cores busy: timings will be noisy", file=sys.stderr)
    try:
        print(measure(arguments))
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the report keeps every number of classes that was measured to the end", file=sys.stderr)
        return 130
    return 0


def busy_cores() -> float:
    """Return the cores that others keep busy at this moment; the load average where the system does not say.

    The load average counts what ran in the last minute, such as the runs of a plan that ends with measurements.
    """
    from runner.bench.machine import Company

    company = Company()
    time.sleep(_LOOK_SECONDS)
    cores = company.cores()
    return os.getloadavg()[0] if cores is None else cores


def measure(arguments: argparse.Namespace) -> str:
    """Measure what was asked and write the report; return its Markdown and its path. ConfigError for bad arguments."""
    if arguments.what == "kernels":
        return measure_kernels(arguments)
    if arguments.what == "example_steps":
        return measure_example_steps(arguments)
    if arguments.what == "language_step":
        return measure_language_steps(arguments)
    if arguments.what == "read_log":
        return measure_reading(arguments)
    from runner.bench import output_layer, refresh, rows, sampling
    from runner.bench.contenders import configuration
    from runner.bench.measure import Plan
    from runner.bench.report import write_report
    from runner.errors import require
    from runner.machine.threads import set_threads

    if arguments.what == "sampling":
        choose_sampling(arguments)
    arguments.classes = arguments.classes or [670_091]
    require(min(arguments.classes) >= 16, "--classes must be at least 16")
    require(arguments.repetitions >= 1, "--repetitions must be at least 1")
    config = configuration("lsh_embedding" if arguments.what == "refresh" else "full", arguments.overrides)
    threads = set_threads(arguments.threads or config.hardware.threads)
    head = {
        "name": arguments.what,
        "kind": arguments.what,
        "repetitions": arguments.repetitions,
        "overrides": arguments.overrides,
    }
    if arguments.what == "refresh":
        head["notes"] = refresh.NOTES
        one_size = partial(refresh.one_size, repetitions=arguments.repetitions, overrides=arguments.overrides)
    elif arguments.what == "sampling":
        head |= {"batch": arguments.batch, "draws": arguments.draws, "notes": sampling.NOTES}
        if arguments.rf_softmax:
            head |= {"name": "rf_softmax_table2", "notes": sampling.NOTES + sampling.RF_SOFTMAX_NOTES}
        if arguments.midx_codewords:
            head |= {"name": "midx_codewords_time"}
        one_size = partial(
            sampling.one_size, methods=arguments.methods, batch=arguments.batch, draws=arguments.draws,
            dim=arguments.dim, repetitions=arguments.repetitions, overrides=arguments.overrides,
            published=arguments.rf_softmax,
        )  # fmt: skip
    else:
        plan = Plan(
            batch=arguments.batch,
            repetitions=arguments.repetitions,
            steps=arguments.steps,
            schedule_steps=arguments.schedule_steps,
        )
        head |= {"batch": plan.batch, "steps": plan.steps, "schedule_steps": plan.schedule_steps}
        if arguments.what == "rows":
            head["notes"] = rows.NOTES
            one_size = partial(rows.one_size, method=arguments.method, plan=plan, overrides=arguments.overrides)
        else:
            head["notes"] = output_layer.NOTES
            one_size = partial(
                output_layer.one_size, methods=arguments.methods, plan=plan, overrides=arguments.overrides
            )
    path = arguments.json or Path("results/bench") / f"{head['name']}.json"
    text = write_report(path, head, one_size, sizes=arguments.classes, config=config, threads=threads)
    if arguments.what == "sampling" and (arguments.midx_codewords or len(arguments.classes) > 2):
        text += f"\n{sampling.draw_figure(json.loads(path.read_text()), path.with_suffix(''))}"
    return f"{text}\n{path}"


def measure_example_steps(arguments: argparse.Namespace) -> str:
    """Measure steps of linear regression and write the report; return its Markdown and its path."""
    from runner.bench import example_steps
    from runner.bench.report import write_report
    from runner.config import compose
    from runner.errors import require
    from runner.machine.threads import set_threads

    sizes = arguments.examples or list(example_steps.DEFAULT_SIZES)
    require(min(sizes) >= 16, "--examples must be at least 16")
    require(min(arguments.batches) >= 1, "--batches must be at least 1")
    require(arguments.repetitions >= 1, "--repetitions must be at least 1")
    head = {
        "name": arguments.what,
        "kind": arguments.what,
        "repetitions": arguments.repetitions,
        "overrides": [],
        "notes": example_steps.NOTES,
    }
    path = arguments.json or Path("results/bench/example_steps.json")
    text = write_report(
        path, head,
        lambda size: example_steps.one_size(size, arguments.batches, arguments.repetitions),
        sizes=sizes, size_key="examples", config=compose(["model=regression"]), threads=set_threads(arguments.threads),
    )  # fmt: skip
    return f"{text}\n{path}"


def measure_reading(arguments: argparse.Namespace) -> str:
    """Measure the preparation of logs of events and write the report; return its Markdown and its path."""
    from runner.bench import read_log
    from runner.bench.report import write_report
    from runner.config import compose
    from runner.errors import require

    sizes = arguments.events or list(read_log.DEFAULT_SIZES)
    require(min(sizes) >= 100, "--events must be at least 100")
    head = {"name": arguments.what, "kind": arguments.what, "overrides": [], "notes": read_log.NOTES}
    path = arguments.json or Path("results/bench/read_log.json")
    config = compose(["model=popularity"])
    text = write_report(path, head, read_log.one_size, sizes=sizes, size_key="events", config=config, threads=1)
    return f"{text}\n{path}"


def choose_sampling(arguments: argparse.Namespace) -> None:
    """Fill in arguments that were not given; raise ConfigError for those that contradict the table asked for."""
    from runner.bench import sampling
    from runner.bench.methods import BY_CODEWORDS, DEFAULT_SAMPLERS
    from runner.errors import require

    if arguments.midx_codewords:
        require(arguments.methods is None, "--midx-codewords has its own --methods: give one or the other, not both")
        several = "--midx-codewords takes one number of classes, because codewords are the axis of its figure"
        require(len(arguments.classes or [0]) == 1, several)
        arguments.methods = tuple(BY_CODEWORDS)
        arguments.classes = arguments.classes or [sampling.CODEWORDS_CLASSES]
    if arguments.rf_softmax:
        given = [key for key in ("batch", "draws", "dim", "methods") if getattr(arguments, key) is not None]
        require(not given, f"--rf-softmax has its own --{', --'.join(given)}: give one or the other, not both")
        arguments.classes = some_of("rf-softmax", "classes", arguments.classes, sampling.RF_SOFTMAX_CLASSES)
        arguments.batch, arguments.draws, arguments.dim = sampling.RF_SOFTMAX_SIZES
        arguments.methods = sampling.RF_SOFTMAX_METHODS
        arguments.overrides = ["output.normalize=true", *arguments.overrides]
    for key, usual in (("batch", 256), ("draws", 100), ("dim", 64), ("methods", DEFAULT_SAMPLERS)):
        if getattr(arguments, key) is None:
            setattr(arguments, key, usual)
    for key in ("batch", "draws", "dim"):
        require(getattr(arguments, key) >= 1, f"--{key} must be at least 1")


def some_of(table: str, option: str, given: Sequence[Size] | None, printed: Sequence[Size]) -> Sequence[Size]:
    """Return the sizes of a printed table that are given, or all; raise ConfigError for one that it does not have."""
    from runner.errors import require

    known = ", ".join(map(str, printed))
    require(set(given or ()) <= set(printed), f"--{table} has its own --{option}: give some of {known}, or none")
    return given or printed


def measure_language_steps(arguments: argparse.Namespace) -> str:
    """Measure steps of a language model and write the report; return its Markdown and the paths."""
    from runner.bench import language_step
    from runner.bench.report import write_report
    from runner.machine.threads import set_threads

    choose_language_steps(arguments)
    plan = language_step.LanguagePlan(
        preset=arguments.preset, draws=arguments.draws, repetitions=arguments.repetitions, steps=arguments.steps,
        schedule_steps=arguments.schedule_steps, overrides=arguments.overrides,
    )  # fmt: skip
    texts = {name: language_step.open_text(name, plan) for name in arguments.texts}
    config = language_step.configuration(arguments.methods[0], next(iter(texts.values())), plan)
    threads = set_threads(arguments.threads or config.hardware.threads)
    printed = language_step.LSH_SOFTMAX_TEXTS if arguments.lsh_softmax else {}
    name = "lsh_softmax_table2_speed" if arguments.lsh_softmax else arguments.what
    head = {
        "name": name,
        "kind": arguments.what,
        "preset": plan.preset,
        "repetitions": plan.repetitions,
        "steps": plan.steps,
        "schedule_steps": plan.schedule_steps,
        "overrides": plan.overrides,
        "notes": language_step.notes(plan, published=arguments.lsh_softmax),
    }
    if not arguments.lsh_softmax:
        head["draws"] = plan.draws
    path = arguments.json or Path("results/bench") / f"{name}.json"
    text = write_report(
        path, head,
        lambda asked: language_step.one_text(texts[asked], arguments.methods, plan, printed.get(asked)),
        sizes=list(texts), size_key="texts", config=config, threads=threads,
    )  # fmt: skip
    picture = language_step.draw_figure(json.loads(path.read_text()), path.with_suffix(""))
    return "\n".join([text, *([str(picture)] if picture else []), str(path)])


def choose_language_steps(arguments: argparse.Namespace) -> None:
    """Fill in arguments that were not given; raise ConfigError for those that contradict the table asked for."""
    from runner.bench import language_step
    from runner.bench.methods import DEFAULT_LANGUAGE_METHODS, LSH_SOFTMAX_METHODS
    from runner.errors import require

    if arguments.lsh_softmax:
        given = [key for key in ("methods", "preset", "draws") if getattr(arguments, key) is not None]
        require(not given, f"--lsh-softmax has its own --{', --'.join(given)}: give one or the other, not both")
        arguments.texts = some_of("lsh-softmax", "texts", arguments.texts, tuple(language_step.LSH_SOFTMAX_TEXTS))
        arguments.methods = LSH_SOFTMAX_METHODS
        arguments.preset = "lsh_softmax_lm_full"
        arguments.overrides = [*language_step.LSH_SOFTMAX_OVERRIDES, *arguments.overrides]
    usual = {"texts": ["ptb"], "methods": DEFAULT_LANGUAGE_METHODS, "preset": "midx_lm_full", "draws": 20}
    for key, value in usual.items():
        if getattr(arguments, key) is None:
            setattr(arguments, key, value)


def measure_kernels(arguments: argparse.Namespace) -> str:
    """Measure the errors of kernel approximations and write the report; return its Markdown and its path."""
    from runner.bench import kernel_error
    from runner.bench.contenders import configuration
    from runner.bench.report import write_report
    from runner.errors import require
    from runner.machine.threads import set_threads

    most = kernel_error.NUM_IMAGES
    require(arguments.draws >= 2, "--draws must be at least 2, because one has no deviation")
    require(2 <= arguments.images <= most, f"--images must lie in [2, {most}], got {arguments.images}")
    config = configuration("full", [])
    path = arguments.json or Path("results/bench/kernels.json")
    head = {
        "name": arguments.what, "kind": arguments.what, "draws": arguments.draws, "pairs": kernel_error.NUM_PAIRS,
        "overrides": [], "notes": kernel_error.notes(arguments.draws, arguments.images),
    }  # fmt: skip
    text = write_report(
        path, head, lambda size: kernel_error.one_size(size, arguments.draws),
        sizes=[arguments.images], size_key="images", config=config,
        threads=set_threads(arguments.threads or config.hardware.threads),
    )  # fmt: skip
    return f"{text}\n{path}"


if __name__ == "__main__":
    sys.exit(main())
