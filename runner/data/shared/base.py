"""Define what the configurations of all data sets have in common."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runner.options.fields import ALL_KEYS, Options, Variant, option


class DatasetConfig(Options):
    """Serve as the base of the configurations of data sets; the default of ``name`` is that of the option."""

    section: ClassVar[str] = "dataset"

    @classmethod
    def variants(cls, name: str) -> Mapping[str, Variant]:
        return {getattr(cls, "name", name): ALL_KEYS}


def share_for_validation(default: float, *, of: str = "rows") -> Any:
    """Declare the option ``valid_share``; only where its default is 0 may nothing be held out."""
    meaning = f"share of the training {of} that is held out for validation"
    if default:
        return option(default, meaning, above=0, high=0.5)
    return option(default, f"{meaning}; 0: some test rows are measured meanwhile", low=0, high=0.5)


def share_for_test(high: float = 0.9, *, of: str = "rows") -> Any:
    """Declare the option ``test_share``."""
    return option(0.1, f"share of the {of} that is held out for the test", above=0, high=high)


def seed_of(what: str, high: int = 2**31 - 1) -> Any:
    """Declare an option that is a seed."""
    return option(0, f"seed of {what}", low=0, high=high)


SPLIT = {
    "ratio": "a user's last tenth is for testing, the tenth before for validation",
    "last_item": "one event each",
}
