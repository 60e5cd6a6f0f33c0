"""Measure samplers of training examples on the weights of a regression run, finished or at its last checkpoint.

``runner.lgd.estimates`` defines the measures. Every sampler is built anew on these weights, with the run's
seed: hash tables, cells with the exact mean squares of their gradients, and the norms of all gradients.

Legend: X examples, R repeats, M draws of a repeat.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.config import compose
from runner.contracts import Examples
from runner.door.examples import build_example_sampler
from runner.errors import ConfigError, require
from runner.lgd import BATCH_SAMPLERS, ExampleSampler, ExampleSamplerConfig, estimates
from runner.lgd.hashed import Lgd
from runner.lgd.steps import LOGISTIC, SQUARED, loss_and_slope
from runner.lgd.task import RegressionView
from runner.machine.threads import set_threads
from runner.options.conversion import convert, did_you_mean
from runner.options.settings import HardwareConfig
from runner.report.diagnoses.example_folder import write
from runner.report.diagnoses.record import ExampleDiagnosis, ExampleEntry
from runner.report.spec.request import Request, parse
from runner.training.run import load_trained
from runner.training.run_folder import config_of, provenance, run_with_weights

SAMPLERS: Mapping[str, str] = {  # what is measured, by name, with its method in the catalogue
    "uniform": "uniform_examples",
    "lgd_printed": "lgd_printed",
    "lgd": "lgd",
    "lgd_strata": "lgd_strata",
    "norm_oracle": "norm_oracle",
}
_MOST_SAMPLES = 1000
_SAMPLES = np.unique(np.geomspace(1, _MOST_SAMPLES, 31).round().astype(np.int64))


def diagnose(run_folder: Path, request: Request, command: str) -> tuple[ExampleDiagnosis, Path]:
    """Measure what is asked for and write it into the run folder; return the diagnosis and its folder.

    ``command`` is recorded as the command that made it. Raises RunnerError if nothing can be measured.
    """
    require(request.rows is None, "--rows: only for runs that sample classes; this run's samplers draw examples")
    changes = parse(request.overrides, ("batch_sampler.KEY",))
    folder = run_with_weights(run_folder)
    config = config_of(folder)
    chosen = _choose(request.samplers, changes.get("batch_sampler", {}))
    hardware = {**dataclasses.asdict(config.hardware), **changes.get("hardware", {})}
    threads = set_threads(convert(HardwareConfig, hardware, "hardware.").threads)
    place = folder.diagnostics_path(request.name)
    with folder.locked():
        network, task, step = load_trained(config, folder)
        view = task.view(network)
        if not isinstance(view, RegressionView):
            raise ConfigError(
                f"model={config.model.name} cannot be diagnosed: it has no classes to sample, and only linear and"
                " logistic regression tell the gradients of all examples"
            )
        gradients = _gradients(view)
        print(
            f"{folder.path.name}: {len(gradients.norm_X):,} examples, {len(chosen)} samplers, {request.draws} repeats"
            f" of {_MOST_SAMPLES:,} draws",
            file=sys.stderr,
        )

        @functools.cache  # LGD's variants often have the same bits and sides, and the double sum takes long
        def lemma_of(bits: int, sides: int) -> estimates.Lemma:
            vectors_XD, query_D = view.examples.rows(), view.query_D
            return estimates.lemma(vectors_XD, query_D, gradients.norm_X, bits=bits, sides=sides, seed=config.seed)

        entries = tuple(
            _entry(
                name,
                sampler,
                view,
                gradients,
                lemma_of=lemma_of,
                seed=config.seed,
                first_step=step + 1,
                repeats=request.draws,
            )
            for name, sampler in chosen.items()
        )
        done = ExampleDiagnosis(
            made={
                **provenance(config, threads, str(folder.provenance().get("data_checksum"))),
                "run_id": folder.path.name,
                "command": command,
                "asked": request.record(),
                "step": step,
                "dataset": task.data.name,
                "num_examples": len(gradients.norm_X),
                "repeats": request.draws,
            },
            entries=entries,
        )
        write(done, place)
    return done, place


def _choose(names: Sequence[str], changes: Mapping[str, Any]) -> dict[str, ExampleSamplerConfig]:
    """Return the samplers named, or all, with the changed settings that they have. Raises ConfigError."""
    for name in names:
        if name not in SAMPLERS and name != "all":
            raise ConfigError(f"unknown sampler '{name}'{did_you_mean(name, [*SAMPLERS, 'all'])}")
    wanted = list(SAMPLERS) if not names or "all" in names else list(dict.fromkeys(names))
    usual = {name: compose(["model=regression", f"method={SAMPLERS[name]}"]).batch_sampler for name in wanted}
    fields = {name: {field.name for field in dataclasses.fields(config)} for name, config in usual.items()}
    for key in changes:
        if not any(key in known for known in fields.values()):
            raise ConfigError(f"unknown key 'batch_sampler.{key}'{did_you_mean(key, set().union(*fields.values()))}")
    return {
        name: convert(
            BATCH_SAMPLERS[config.name],
            {**dataclasses.asdict(config), **{key: value for key, value in changes.items() if key in fields[name]}},
            "batch_sampler.",
        )
        for name, config in usual.items()
    }


def _gradients(view: RegressionView) -> estimates.Gradients:
    """Return all gradients by the free coordinates of the query, which have the norms of those by the weights."""
    loss = SQUARED if view.by_magnitude else LOGISTIC
    vectors_XD, query_D = view.examples.rows(), view.query_D
    z_X = np.einsum("xd,d->x", vectors_XD, query_D)
    slope_X = np.array([loss_and_slope(loss, z)[1] for z in z_X])
    free = vectors_XD.shape[1] - 1 if view.by_magnitude else vectors_XD.shape[1]
    return estimates.Gradients.of(slope_X, vectors_XD[:, :free])


def _entry(
    name: str,
    config: ExampleSamplerConfig,
    view: RegressionView,
    gradients: estimates.Gradients,
    *,
    lemma_of: Callable[[int, int], estimates.Lemma],
    seed: int,
    first_step: int,
    repeats: int,
) -> ExampleEntry:
    """Measure one sampler; variances and norms are relative to those of uniform draws, the bias to |g|.

    ``lemma_of`` returns Lemma 1 for tables of so many bits that are asked for these sides.
    """
    count = len(gradients.norm_X)
    sampler = build_example_sampler(config, examples=Examples(count=count), batch_size=1, seed=seed)
    sampler.refresh(0, view)
    outcomes = _outcomes(sampler, view)
    uniform = estimates.moments(estimates.outcomes_of_chances(np.full(count, 1 / count)), gradients)
    found = estimates.moments(outcomes, gradients)
    draws = sampler.draws(first_step, repeats * _MOST_SAMPLES, view)
    assert draws.count_M is not None
    followed = estimates.course(
        draws.rows_M.reshape(repeats, -1), 1 / (count * draws.count_M.reshape(repeats, -1)), gradients, _SAMPLES
    )
    measures: dict[str, Any] = {
        "gradient_norm": _ratio(found.gradient_norm, uniform.gradient_norm),
        "variance": _ratio(found.variance, uniform.variance),
        "bias": _ratio(found.bias, float(np.linalg.norm(gradients.mean_F))),
    }
    if isinstance(sampler, Lgd):
        measures["empty"] = outcomes.empty
        measures |= lemma_of(sampler.buckets.bits, sampler.buckets.sides).record()
    return ExampleEntry(
        name=name,
        settings=dataclasses.asdict(config),
        measures=measures,
        course={
            "samples": _SAMPLES.tolist(),
            "similarity": followed.similarity_S.tolist(),
            "gradient_norm": (followed.norm_S / uniform.gradient_norm).tolist(),
        },
    )


def _outcomes(sampler: ExampleSampler, view: RegressionView) -> estimates.Outcomes:
    if isinstance(sampler, Lgd):
        return estimates.outcomes_of_buckets(sampler.buckets, view.examples.rows(), sampler.query_D)
    chance_X = sampler.chances()
    assert chance_X is not None, "every sampler of this module tells its chances"
    return estimates.outcomes_of_chances(chance_X)


def _ratio(value: float, to: float) -> float | None:
    """Return the quotient, or None if there is none: all gradients, or their mean, are 0."""
    return value / to if to > 0 else None
