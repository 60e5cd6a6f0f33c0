"""Put a check behind the methods of an object that a plugin made, so that nobody who calls them has to check."""

import functools
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from runner.door.arrays import Wrong
from runner.errors import PluginError, RunnerError

T = TypeVar("T")
_OWN = "runner."  # modules of this package; what others hand over is checked
_OF_THE_MACHINE = (RunnerError, OSError, MemoryError)  # they say in one line what is wrong, and it is not the plugin


def is_from_outside(thing: object) -> bool:
    """Tell whether an object's class, or this class, was defined outside this package."""
    cls = thing if isinstance(thing, type) else type(thing)
    return not cls.__module__.startswith(_OWN)


@dataclass(frozen=True)
class Guard:
    """Check what one plugin hands over. ``who`` names it as the command line does, ``more`` says where to read on."""

    who: str
    module: str
    more: str = "docs/extending.md says what it must be"

    @classmethod
    def of(cls, config: object, group: str, name: str) -> "Guard":
        """Return the guard of what ``group=name`` chose; the class of ``config`` tells which module it comes from."""
        module = (config if isinstance(config, type) else type(config)).__module__
        who = f"{group}={name}"
        if group != "sampler":
            return cls(who, module)
        return cls(who, module, f"python -m runner.check {name}{_plugins(module)} says more")

    def error(self, problem: str, step: int | None = None) -> PluginError:
        """Return what is wrong as an error of one line."""
        return PluginError(self.who, problem, self.more, step)

    def check(self, check: Callable[[], object], step: int | None = None) -> None:
        """Let a check raise ``Wrong``, and tell in one line who made what is wrong."""
        try:
            check()
        except Wrong as wrong:
            raise self.error(str(wrong), step) from None

    def made(self, make: Callable[[], T], step: int | None = None) -> T:
        """Let the plugin make something; an error of its own code is told in one line that names the place."""
        try:
            return make()
        except _OF_THE_MACHINE:
            raise
        except Wrong as wrong:  # found inside, in what one part of the plugin handed to another
            raise self.error(str(wrong), step) from None
        except Exception as error:
            raise self.error(_in_one_line(error, self.module), step) from error

    def watch(self, owner: Any, method: str, check: Callable[..., object], step: str | int | None = None) -> None:
        """Let ``check(what it returned, *arguments)`` follow every call of a method.

        ``step``: the place of the step among the arguments, from which errors name it.
        """
        real = getattr(owner, method)

        @functools.wraps(real)
        def watched(*arguments: Any, **named: Any) -> Any:
            at = named.get("step", arguments[step] if isinstance(step, int) and len(arguments) > step else None)
            made = self.made(lambda: real(*arguments, **named), at)
            try:
                check(made, *arguments, **named)
            except Wrong as wrong:
                raise self.error(str(wrong), at) from None
            return made

        try:
            object.__setattr__(owner, method, watched)  # frozen dataclasses forbid the usual way
        except AttributeError:
            raise self.error(f"{type(owner).__name__} must not have __slots__") from None


def _plugins(module: str) -> str:
    """Return the word of the command line that names a plugin's module or file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or "." in module:
        return f" 'plugins=[{module}]'"
    path = Path(file)
    return f" 'plugins=[{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}]'"


def _in_one_line(error: Exception, module: str) -> str:
    """Return an error with the last line of the plugin that led to it; without one, the line that raised it."""
    own = getattr(sys.modules.get(module), "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1])
    text = " ".join(str(error).split())
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {text}"
