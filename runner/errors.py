"""Errors a user can act on: each message is one line that names the file, line or key and the way out."""


class RunnerError(Exception):
    """Base of every error the command line reports as a single line, without a traceback."""


class ConfigError(RunnerError):
    """A configuration key, type, option or value is wrong."""


class DataError(RunnerError):
    """A data file is missing, damaged, or not in the format its card promises."""


class DataNotPrepared(DataError):
    """The data set is known but not on this machine yet; tables show this as a status, never as a number."""


class ProcessorLacks(RunnerError):
    """A setting needs instructions that the processor has not; tables and benches show this as ``status``."""

    def __init__(self, instructions: str, message: str) -> None:
        super().__init__(message)
        self.status = f"skipped: needs {instructions}"


class Diverged(RunnerError):
    """The training blew up: a loss or a weight is no longer a finite number."""


class RunLocked(RunnerError):
    """Another process is working in the same run folder."""


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds: range checks of configuration dataclasses."""
    if not condition:
        raise ConfigError(message)
