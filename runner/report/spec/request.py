"""Read what a diagnosis is asked for: samplers, settings, rows and draws."""

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import ConfigError, require
from runner.home import CONF

COMMAND = "python -m runner.diagnose"
_PROBE_ROWS = 64


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what follows the run folder in ``python -m runner.diagnose``."""
    names = sorted(path.stem for path in (CONF / "sampler").glob("*.yaml"))
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, e.g. sampler.num_samples=100")
    parser.add_argument(
        "--sampler", nargs="+", default=[], metavar="NAME",
        help=f"default: the run's own; all: every sampler that fits; or some of {', '.join(names)}",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, help="number of test rows to measure samplers of classes on; default: 64")
    parser.add_argument("--draws", type=int, default=16, help="draws that gradients are averaged over; default: 16")
    parser.add_argument("--name", default="", help="results go to RUN/diagnostics-NAME instead of RUN/diagnostics")


def request_of(arguments: argparse.Namespace) -> Request:
    """Return the request of parsed arguments; settings and names of samplers may come in any order."""
    # argparse takes overrides that follow --sampler NAME for names of samplers.
    return Request(
        samplers=tuple(word for word in arguments.sampler if "=" not in word),
        overrides=(*arguments.overrides, *(word for word in arguments.sampler if "=" in word)),
        rows=arguments.rows,
        draws=arguments.draws,
        name=arguments.name,
    )


def read_request(words: Sequence[str]) -> Request:
    """Return the request that is typed as ``words`` after the run folder."""
    parser = argparse.ArgumentParser(prog=f"{COMMAND} RUN", add_help=False)
    add_arguments(parser)
    return request_of(parser.parse_intermixed_args(words))


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
