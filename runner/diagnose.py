"""How far samplers are from the softmax of a run, finished or at its last checkpoint, and what that does to gradients.

python -m runner.diagnose results/runs/RUN
python -m runner.diagnose results/runs/RUN --sampler uniform unigram sampler.num_samples=100
python -m runner.diagnose results/runs/RUN --sampler all --rows 128 --draws 32

Any sampler can be put on the run's final weights, trained with it or not. The one the run used keeps the run's
settings and the tables it ended with; others have those of conf/sampler and are built anew. Each is measured with the
run's loss, or with the one of its own file where the run's does not go with it. sampler.KEY=VALUE changes a setting of
every sampler that has it; loss=NAME, loss.KEY=VALUE and hardware.threads=N can be set too (with --sampler all, a loss
is for those that it goes with).

Prints a Markdown table and, as its last line, the folder of everything: RUN/diagnostics (with --name NAME,
RUN/diagnostics-NAME), which is replaced.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.config import CONF, explain
from runner.errors import ConfigError, RunnerError, require

if TYPE_CHECKING:
    from runner.config import RunConfig
    from runner.contracts import Query
    from runner.diagnosis.figures import Entry
    from runner.diagnosis.measures import Tick, Truth
    from runner.losses import LossConfig
    from runner.network import ClassNetwork
    from runner.samplers import SamplerConfig
    from runner.training.run_folder import RunFolder

_LEARNING_ROWS = 256
_IS_THE_BATCH = "sampler {name}: the batch is the draw, and there is but one probe; name another by --sampler"


def parser() -> argparse.ArgumentParser:
    names = sorted(path.stem for path in (CONF / "sampler").glob("*.yaml"))
    front = argparse.ArgumentParser(
        prog="python -m runner.diagnose", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    front.add_argument("run_folder", type=Path, metavar="RUN_FOLDER", help="folder of a run")
    front.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, e.g. sampler.num_samples=100")
    front.add_argument(
        "--sampler", nargs="+", default=[], metavar="NAME",
        help=f"default: the run's own; all: every one that fits; or of {', '.join(names)}",
    )  # fmt: skip
    front.add_argument("--rows", type=int, default=64, help="test rows to measure on; default: 64")
    front.add_argument("--draws", type=int, default=16, help="draws that gradients are averaged over; default: 16")
    front.add_argument("--name", default="", help="results go to RUN/diagnostics-NAME instead of RUN/diagnostics")
    return front


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """``run_folder``, ``sampler`` names and ``overrides`` wherever they stood, ``rows``, ``draws``, ``name``."""
    arguments = parser().parse_intermixed_args(words)  # settings may stand anywhere
    # Overrides after --sampler NAME are taken for names by argparse.
    arguments.overrides += [word for word in arguments.sampler if "=" in word]
    arguments.sampler = [word for word in arguments.sampler if "=" not in word]
    return arguments


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What two measurements of the same folder must have in common to be the same."""
    return {
        "sampler": arguments.sampler,
        "overrides": sorted(arguments.overrides),
        "rows": arguments.rows,
        "draws": arguments.draws,
    }


def main() -> int:
    arguments = read_arguments()
    try:
        print(diagnose(arguments), flush=True)
    except KeyboardInterrupt:
        return 130
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    return 0


def diagnose(arguments: argparse.Namespace) -> Path:
    """Measure, print the tables, write the folder and return its path."""
    require(arguments.rows >= 1, "--rows must be at least 1")
    require(bool(re.fullmatch(r"[\w-]*", arguments.name)), "--name: letters, digits, - and _ only")
    require(arguments.draws >= 2, "--draws must be at least 2: one has no variance")
    from runner.training.run_folder import config_of, run_with_weights

    changes = parse(arguments.overrides)
    folder = run_with_weights(arguments.run_folder)
    config = config_of(folder)
    chosen = choose(config, arguments.sampler, changes)

    from runner.config import HardwareConfig, convert, set_threads
    from runner.diagnosis import figures
    from runner.training.run_folder import provenance

    hardware = {**dataclasses.asdict(config.hardware), **changes.get("hardware", {})}
    threads = set_threads(convert(HardwareConfig, hardware, "hardware.").threads)
    with folder.locked():
        made, entries = _measure(folder, config, chosen, arguments.rows, arguments.draws)
        origin = provenance(config, threads, str(folder.provenance().get("data_checksum")))
        command = " ".join(["python -m runner.diagnose", *sys.argv[1:]])
        done = figures.Diagnosis(
            made={**origin, **made, "run_id": folder.path.name, "command": command, "asked": asked(arguments)},
            entries=tuple(entries),
        )
        figures.write(done, folder.diagnostics_path(arguments.name))
    print(figures.to_markdown(done))
    return folder.diagnostics_path(arguments.name)


# ---------------------------------------------------------------- what is asked for


def parse(overrides: Iterable[str]) -> dict[str, dict[str, Any]]:
    """``{"sampler": {"K": 4}, "loss": {"name": "nce"}}``; ConfigError for what is not to be set here."""
    from omegaconf import OmegaConf
    from yaml import YAMLError

    out: dict[str, dict[str, Any]] = {}
    for word in overrides:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"cannot read '{word}': write KEY=VALUE, or --sampler NAME")
        group, _, field = key.partition(".")
        if key in ("sampler", "sampler.name"):
            raise ConfigError(f"a sampler is named by --sampler {text}")
        if key == "loss.name":
            raise ConfigError(f"a loss is named by loss={text}")
        if (group, bool(field)) not in (("sampler", True), ("loss", True), ("loss", False)) and key != (
            "hardware.threads"
        ):
            raise ConfigError(
                f"'{key}' can not be set here: the weights are the run's; "
                "valid: sampler.KEY, loss, loss.KEY, hardware.threads"
            )
        try:
            value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
        except YAMLError:
            raise ConfigError(f"cannot read the value of '{word}'") from None
        assert isinstance(value, dict)
        out.setdefault(group, {})[field or "name"] = value["value"]
    return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A sampler to measure. ``may_be_left_out``: nobody named it, so it needs not fit."""

    sampler: "SamplerConfig"
    loss: "LossConfig"
    may_be_left_out: bool


def choose(config: "RunConfig", names: Sequence[str], changes: Mapping[str, Mapping[str, Any]]) -> list[Choice]:
    """The samplers named (none: the run's own) with their settings, each with a loss that goes with it."""
    from runner.config import compose, convert, did_you_mean
    from runner.samplers import SAMPLERS

    everyone = "all" in names
    for name in names:
        if name not in SAMPLERS and name != "all":
            raise ConfigError(f"unknown sampler '{name}'{did_you_mean(name, [*SAMPLERS, 'all'])}")
    wanted = list(SAMPLERS) if everyone else list(dict.fromkeys(names)) or [config.sampler.name]
    for name in [name for name in wanted if SAMPLERS[name].is_the_batch]:
        if not everyone:
            raise ConfigError(_IS_THE_BATCH.format(name=name))
        _leave_out(name, ConfigError("the batch is the draw"))
        wanted.remove(name)
    fields = {name: {field.name for field in dataclasses.fields(SAMPLERS[name])} for name in wanted}
    of_samplers = changes.get("sampler", {})
    for key in of_samplers:
        if not any(key in known for known in fields.values()):
            raise ConfigError(f"unknown key 'sampler.{key}'{did_you_mean(key, set().union(*fields.values()))}")
    out = []
    for name in wanted:
        is_own = name == config.sampler.name
        preset = config if is_own else compose([f"sampler={name}"])
        mine = {key: value for key, value in of_samplers.items() if key in fields[name]}
        sampler = convert(SAMPLERS[name], {**dataclasses.asdict(preset.sampler), **mine}, "sampler.")
        usual = config.loss if config.loss.name in sampler.losses else preset.loss
        loss = _loss(usual, changes.get("loss", {}))
        try:
            sampler.check_loss(loss)
        except ConfigError:
            if not everyone:
                raise
            loss = usual  # of all samplers, those that the loss goes with have it
        out.append(Choice(sampler=sampler, loss=loss, may_be_left_out=everyone and not is_own))
    return out


def _loss(usual: "LossConfig", changes: Mapping[str, Any]) -> "LossConfig":
    """The usual loss with what ``loss=NAME`` and ``loss.KEY=VALUE`` say."""
    from runner.config import convert, did_you_mean
    from runner.losses import LOSSES

    if not changes:
        return usual
    asked = str(changes.get("name", usual.name))
    if asked not in LOSSES:
        raise ConfigError(f"unknown option 'loss={asked}'{did_you_mean(asked, LOSSES)}")
    of_same_name = dataclasses.asdict(usual) if asked == usual.name else {"name": asked}
    return convert(LOSSES[asked], {**of_same_name, **changes}, "loss.")


def _leave_out(name: str, error: Exception) -> None:
    print(f"left out: {name}: {explain(error)}", file=sys.stderr)


# ---------------------------------------------------------------- measuring


def _measure(
    folder: "RunFolder", config: "RunConfig", chosen: Sequence[Choice], rows: int, draws: int
) -> tuple[dict[str, Any], list["Entry"]]:
    """What was measured on which probe, and an entry for each sampler."""
    from tqdm import tqdm

    from runner.diagnosis.measures import Truth, query_of
    from runner.tasks.base import PROGRESS_BAR
    from runner.training.run import load_trained

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
    # The gradient that a loss estimates is that of the softmax it stands for: of the logits or of their magnitudes.
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
                _leave_out(choice.sampler.name, error)
            bar.update(sum(lengths[:index]) - bar.n)
    if not entries:
        raise RunnerError("no sampler fits")
    made = {
        "step": step,
        "dataset": task.data.name,
        "num_classes": num_classes,
        "rows": rows,
        "draws": draws,
    }
    return made, entries


def _entry(
    network: "ClassNetwork",
    truth: "Truth",
    choice: Choice,
    learning: "Query",
    *,
    first_step: int,
    draws: int,
    tick: "Tick",
) -> "Entry":
    """Measure one sampler, the network's own where the settings are the same. ``learning``: training rows for those
    that learn from hidden states."""
    from runner.diagnosis.figures import Entry
    from runner.diagnosis.measures import fresh_samplers, measure, proposal_against_truth

    config, layer, training = choice.sampler, network.head.layer, network.head.training
    seed = network.head.seed
    is_own = config == network.head.sampler_config
    with layer.table.frozen():
        sampler = network.head.sampler if is_own else config.build(layer=layer, training=training, seed=seed)
        if not is_own:
            sampler.learn(learning, first_step - 1)
    tables = "without tables"
    if sampler.state_dict():
        tables = "with the tables of the run" if is_own else "built anew on the final weights"
    fresh = fresh_samplers(config, layer, training, seed, draws)
    measures = measure(sampler, truth, choice.loss, first_step=first_step, draws=draws, fresh=fresh, tick=tick)
    return Entry(
        name=config.name,
        loss=choice.loss.name,
        settings=dataclasses.asdict(config),
        loss_settings=dataclasses.asdict(choice.loss),
        tables=tables,
        avoids_targets=sampler.avoids_targets,
        measures=measures.record(),
        cumulative=measures.curves(),
        distribution=proposal_against_truth(sampler, layer, truth.query, first_step, by_magnitude=truth.by_magnitude),
    )


if __name__ == "__main__":
    sys.exit(main())
