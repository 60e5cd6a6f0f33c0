"""What `conf/dataset/*.yaml` may say: one frozen dataclass per `kind`, each with `build()`."""

from dataclasses import dataclass
from pathlib import Path

from runner.data.rows import XmcDataset
from runner.data.synthetic_xc import SyntheticXcConfig
from runner.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CardConfig:
    """A published or embedded set, by its card's name."""

    kind: str = "card"
    name: str

    def __post_init__(self) -> None:
        from runner.data.card import card_names

        if self.name not in card_names():
            raise ConfigError(f"dataset.name: no card {self.name!r}; choose one of {', '.join(card_names())}")

    def build(self) -> XmcDataset:
        """Open the prepared set; an embedded one is prepared on first use. Raises DataNotPrepared."""
        from runner.data.prepare import load_card_dataset

        return load_card_dataset(self.name)


@dataclass(frozen=True, kw_only=True)
class XmcFilesConfig:
    """One's own XC text files: a folder with train.txt and test.txt, plain or compressed."""

    kind: str = "files"
    name: str = "xmc"
    path: str | None = None  # None stands for "not given yet" in the YAML; build() refuses it

    def build(self) -> XmcDataset:
        """Prepare the files (cached by path, size and time) and open them. Raises ConfigError, DataError."""
        from runner.data.prepare import load_files_dataset

        if not self.path:
            raise ConfigError("dataset.path: give the folder that holds train.txt and test.txt")
        if not Path(self.path).is_dir():
            raise ConfigError(f"dataset.path: {self.path} is no folder; give the one with train.txt and test.txt")
        return load_files_dataset(Path(self.path), self.name)


KINDS: dict[str, type] = {
    "card": CardConfig,
    "files": XmcFilesConfig,
    "synthetic_xc": SyntheticXcConfig,
}
