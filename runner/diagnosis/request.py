"""Read a request for a diagnosis (samplers, settings, rows and draws) and choose the samplers to measure."""

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.config import explain
from runner.errors import ConfigError, require

if TYPE_CHECKING:
    from runner.options.settings import RunConfig
    from runner.output.losses import LossConfig
    from runner.samplers import SamplerConfig

_PROBE_ROWS = 64
_IS_THE_BATCH = "sampler {name}: its draw is the batch itself, and a diagnosis has one batch; name another by --sampler"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of ``python -m runner.diagnose`` after the run folder.

    ``samplers`` are names or ``all``; if empty, the run's own is measured. ``overrides`` are settings as KEY=VALUE.
    ``rows`` is the number of test rows of the probe (None: 64), and ``draws`` the number of draws that gradients are
    averaged over. Samplers of examples have no probe, and none named are all of them. With a ``name``, results go to
    RUN/diagnostics-NAME.
    """

    samplers: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    rows: int | None = None
    draws: int = 16
    name: str = ""

    def __post_init__(self) -> None:
        require(self.rows is None or self.rows >= 1, "--rows must be at least 1")
        require(bool(re.fullmatch(r"[\w-]*", self.name)), "--name: use only letters, digits, - and _")
        require(self.draws >= 2, "--draws must be at least 2, because one has no variance")

    @property
    def probe_rows(self) -> int:
        """Return the number of test rows to measure samplers of classes on."""
        return _PROBE_ROWS if self.rows is None else self.rows

    def record(self) -> dict[str, Any]:
        """Return what is asked, as it is stored; two requests with equal records have the same result."""
        return {
            "sampler": list(self.samplers),
            "overrides": sorted(self.overrides),
            "rows": self.probe_rows,
            "draws": self.draws,
        }


_OF_CLASSES = ("sampler.KEY", "loss", "loss.KEY")


def parse(overrides: Iterable[str], valid: Sequence[str] = _OF_CLASSES) -> dict[str, dict[str, Any]]:
    """Parse overrides into a mapping such as ``{"sampler": {"K": 4}, "loss": {"name": "nce"}}``.

    ``valid``: what may be set besides the number of threads, where KEY stands for any key of that group. Raises
    ConfigError for a key that cannot be set here and for a value that cannot be read.
    """
    from omegaconf import OmegaConf
    from yaml import YAMLError

    out: dict[str, dict[str, Any]] = {}
    for word in overrides:
        key, equals, text = word.partition("=")
        if key == "plugins":
            continue  # which the command has loaded
        if not equals or not key:
            raise ConfigError(f"cannot read '{word}': write KEY=VALUE, or --sampler NAME")
        group, _, field = key.partition(".")
        if key in ("sampler", "sampler.name", "batch_sampler", "batch_sampler.name"):
            raise ConfigError(f"'{key}' cannot be set here: name the sampler by --sampler {text}")
        if key == "loss.name":
            raise ConfigError(f"'{key}' cannot be set here: name the loss by loss={text}")
        if (f"{group}.KEY" if field else group) not in valid and key != "hardware.threads":
            raise ConfigError(
                f"'{key}' cannot be set here, because the weights are the run's; "
                f"valid: {', '.join(valid)}, hardware.threads, plugins"
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
