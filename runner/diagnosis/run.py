"""Measure samplers on the weights of a run, finished or at its last checkpoint."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from runner.contracts import Query
from runner.diagnosis.choices import Choice, choose, leave_out
from runner.door.samplers import build_sampler
from runner.errors import RunnerError
from runner.machine.threads import set_threads
from runner.measures.divergence import Tick, fresh_samplers, measure_divergence
from runner.measures.truth import Truth, query_of
from runner.network import ClassNetwork
from runner.options.conversion import convert
from runner.options.settings import HardwareConfig, RunConfig
from runner.report.diagnoses.folder import write
from runner.report.diagnoses.record import Diagnosis, Entry
from runner.report.spec.request import Request, parse
from runner.tasks.base import PROGRESS_BAR
from runner.training.run import load_trained
from runner.training.run_folder import RunFolder, config_of, provenance, run_with_weights

_LEARNING_ROWS = 256


def diagnose(run_folder: Path, request: Request, command: str) -> tuple[Diagnosis, Path]:
    """Measure what is asked for and write it into the run folder; return the diagnosis and its folder.

    ``command`` is recorded as the command that made it. Raises RunnerError if nothing can be measured.
    """
    changes = parse(request.overrides)
    folder = run_with_weights(run_folder)
    config = config_of(folder)
    chosen = choose(config, request.samplers, changes)
    hardware = {**dataclasses.asdict(config.hardware), **changes.get("hardware", {})}
    threads = set_threads(convert(HardwareConfig, hardware, "hardware.").threads)
    place = folder.diagnostics_path(request.name)
    with folder.locked():
        made, entries = _measure(folder, config, chosen, request.probe_rows, request.draws)
        origin = provenance(config, threads, str(folder.provenance().get("data_checksum")))
        done = Diagnosis(
            made={**origin, **made, "run_id": folder.path.name, "command": command, "asked": request.record()},
            entries=tuple(entries),
        )
        write(done, place)
    return done, place


def _measure(
    folder: RunFolder, config: RunConfig, chosen: Sequence[Choice], rows: int, draws: int
) -> tuple[dict[str, Any], list[Entry]]:
    """Measure the chosen samplers; return a description of the probe, and an entry for each sampler."""
    network, task, step = load_trained(config, folder)
    probe = task.probe(rows)
    rows, num_classes = probe.num_rows, network.head.layer.num_classes
    print(
        f"{folder.path.name}: {rows} test {task.unit}s, {num_classes:,} classes, "
        f"{len(chosen)} sampler{'s' if len(chosen) > 1 else ''} of {draws} draws",
        file=sys.stderr,
    )
    query = query_of(network, probe)
    learning = query_of(network, task.probe(_LEARNING_ROWS, split="train"))
    # A loss estimates the gradient of one of two softmaxes: that of the logits or that of their magnitudes.
    truths = {
        by_magnitude: Truth.of(network.head.layer, query, by_magnitude=by_magnitude)
        for by_magnitude in {choice.loss.by_magnitude for choice in chosen}
    }
    lengths = [rows + draws * (2 if choice.sampler.random_tables else 1) for choice in chosen]
    entries = []
    with tqdm(total=sum(lengths), unit="part", **PROGRESS_BAR) as bar:
        for index, choice in enumerate(chosen, start=1):
            bar.set_description(choice.sampler.name)
            try:
                truth = truths[choice.loss.by_magnitude]
                entry = _entry(network, truth, choice, learning, first_step=step + 1, draws=draws, tick=bar.update)
                entries.append(entry)
            except RunnerError as error:
                if not choice.may_be_left_out:
                    raise
                leave_out(choice.sampler.name, error)
            bar.update(sum(lengths[:index]) - bar.n)
    if not entries:
        raise RunnerError("no sampler fits this run; the lines above say why each was left out")
    made = {
        "step": step,
        "dataset": task.data.name,
        "num_classes": num_classes,
        "rows": rows,
        "draws": draws,
    }
    return made, entries


def _entry(
    network: ClassNetwork,
    truth: Truth,
    choice: Choice,
    learning: Query,
    *,
    first_step: int,
    draws: int,
    tick: Tick,
) -> Entry:
    """Measure one sampler; the network's own one is used if the settings are the same.

    ``learning`` holds training rows for samplers that learn from hidden states.
    """
    config, layer, training = choice.sampler, network.head.layer, network.head.training
    seed = network.head.seed
    is_own = config == network.head.sampler_config
    with layer.table.frozen():
        sampler = network.head.sampler
        if not is_own:
            sampler = build_sampler(config, layer=layer, training=training, seed=seed)
        if not is_own:
            sampler.learn(learning, first_step - 1)
    tables = "without tables"
    if sampler.state_dict():
        tables = "with the tables of the run" if is_own else "built anew on the final weights"
    fresh = fresh_samplers(config, layer, training, seed, draws)
    divergence = measure_divergence(
        sampler, truth, choice.loss, first_step=first_step, draws=draws, fresh=fresh, tick=tick
    )
    return Entry(
        name=config.name,
        loss=choice.loss.name,
        settings=dataclasses.asdict(config),
        loss_settings=dataclasses.asdict(choice.loss),
        tables=tables,
        avoids_targets=sampler.avoids_targets,
        measures=divergence.record(),
        cumulative=divergence.curves(),
    )
