"""Choose the samplers that a diagnosis measures, with their settings and losses."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.config import explain
from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.options.settings import RunConfig
    from runner.output.losses import LossConfig
    from runner.samplers import SamplerConfig

_IS_THE_BATCH = "sampler {name}: its draw is the batch itself, and a diagnosis has one batch; name another by --sampler"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A sampler to measure, with its loss. ``may_be_left_out`` marks one that was not named and may not fit."""

    sampler: "SamplerConfig"
    loss: "LossConfig"
    may_be_left_out: bool


def choose(config: "RunConfig", names: Sequence[str], changes: Mapping[str, Mapping[str, Any]]) -> list[Choice]:
    """Return the samplers named (without names, the run's own) with their settings, each with a loss that fits it.

    Raises ConfigError for an unknown sampler or key, and for a named sampler that cannot be measured.
    """
    from runner.config import compose
    from runner.options.conversion import convert, did_you_mean
    from runner.samplers import SAMPLERS

    everyone = "all" in names
    for name in names:
        if name not in SAMPLERS and name != "all":
            raise ConfigError(f"unknown sampler '{name}'{did_you_mean(name, [*SAMPLERS, 'all'])}")
    wanted = list(SAMPLERS) if everyone else list(dict.fromkeys(names)) or [config.sampler.name]
    for name in [name for name in wanted if SAMPLERS[name].is_the_batch]:
        if not everyone:
            raise ConfigError(_IS_THE_BATCH.format(name=name))
        leave_out(name, ConfigError("its draw is the batch itself"))
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
            loss = usual  # with --sampler all, only the samplers that the asked loss fits are measured with it
        out.append(Choice(sampler=sampler, loss=loss, may_be_left_out=everyone and not is_own))
    return out


def _loss(usual: "LossConfig", changes: Mapping[str, Any]) -> "LossConfig":
    """Return the usual loss, changed by ``loss=NAME`` and ``loss.KEY=VALUE``."""
    from runner.options.conversion import convert, did_you_mean
    from runner.output.losses import LOSSES

    if not changes:
        return usual
    asked = str(changes.get("name", usual.name))
    if asked not in LOSSES:
        raise ConfigError(f"unknown option 'loss={asked}'{did_you_mean(asked, LOSSES)}")
    of_same_name = dataclasses.asdict(usual) if asked == usual.name else {"name": asked}
    return convert(LOSSES[asked], {**of_same_name, **changes}, "loss.")


def leave_out(name: str, error: Exception) -> None:
    """Report on standard error that a sampler is not measured, and why."""
    print(f"left out: {name}: {explain(error)}", file=sys.stderr)
