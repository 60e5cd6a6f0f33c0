"""Define errors that a user can act on: each message is one line that names the file, line or key and the way out."""

from pathlib import Path


class RunnerError(Exception):
    """This is the base class of errors that the command line reports as a single line, without a traceback."""


class ConfigError(RunnerError):
    """A configuration key, type, option or value is wrong."""


class DataError(RunnerError):
    """A data file is missing, damaged, or not in the format that its card states."""


class DataNotPrepared(DataError):
    """The data set is known but not yet on this machine; tables show this as a status, never as a number."""


class ProcessorLacks(RunnerError):
    """A setting needs instructions that the processor does not have; tables and benches show ``status``."""

    def __init__(self, instructions: str, message: str) -> None:
        super().__init__(message)
        self.status = f"skipped: needs {instructions}"


class NotInstalled(RunnerError):
    """A library of an optional extra is not installed; tables show ``status``. The message says how to install it."""

    def __init__(self, library: str, extra: str, message: str) -> None:
        super().__init__(message)
        self.status = f"skipped: {library} is not installed (pip install '.[{extra}]')"


class Diverged(RunnerError):
    """The training diverged: a loss or a weight is no longer a finite number, or an output is too large to mean any."""


class DamagedRun(RunnerError):
    """A file of a run folder is missing or is not as the run wrote it. ``path``: that file."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}; the run's command with force=true starts it again")
        self.path, self.why = path, why


class PluginError(RunnerError):
    """A plugin handed over what its contract forbids, or its own code failed. The message names plugin and step."""

    def __init__(self, who: str, problem: str, more: str, step: int | None = None) -> None:
        at = "" if step is None else f"step {step}: "
        super().__init__(f"{who}: {at}{problem}; {more}")
        self._parts, self._step = (who, problem, more), step

    def at(self, step: int) -> "PluginError":
        """Return the error with the step at which it came up, if it does not know it."""
        return self if self._step is not None else PluginError(*self._parts, step)


class RunLocked(RunnerError):
    """Another process is working in the same run folder."""


def brief(error: BaseException) -> str:
    """Return what an error of a library says, in one line that is not too long; some show pieces of files."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _READ else f"{text[: _READ - 3]}..."


_READ = 200  # characters


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds; configuration dataclasses check ranges with it."""
    if not condition:
        raise ConfigError(message)
