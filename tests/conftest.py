"""What every kind of test needs: small class matrices, queries, a data set on disk, one thread.

Statistical tests fix their seeds, so that each passes or fails for good; the rate of false alarms they state
is that of the bound over fresh seeds.
"""

import os
import random
import sys

# Thread tests need two threads even on one core, and where a cluster exports NUMBA_NUM_THREADS=1.
# Numba reads this when it is first imported.
if os.environ.get("NUMBA_NUM_THREADS", "1") in ("", "1"):
    os.environ["NUMBA_NUM_THREADS"] = str(max(2, os.cpu_count() or 1))

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from composing import compose_once, files_parsed_once
from hypothesis import settings

from runner import config
from runner.contracts import Query
from runner.machine.company import Company, Taken
from runner.optimizers import AdamConfig
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable

# Drawn examples are the same in every run, as all other random numbers of the tests are.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that plan many tables first, so that one worker takes them all and composes their settings once."""
    items.sort(key=lambda item: "plans" not in item.keywords)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Arrays here are too small to share out; a test of threads sets more."""
    numba.set_num_threads(1)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine() -> Iterator[None]:
    """Runs of tests stand alone on the machine, so that what they print does not depend on who else uses it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Company, "taken", lambda _: Taken(machine=1.0))
        yield


@pytest.fixture(autouse=True, scope="session")
def _equal_files_are_parsed_once() -> Iterator[None]:
    with files_parsed_once():
        yield


@pytest.fixture(autouse=True, scope="module")
def _equal_words_are_composed_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compose as ``composing`` does, but where composing is tested."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name != "config":
            patch.setattr(config, "_compose_unchecked", compose_once)
        yield


@pytest.fixture
def make_layer() -> Callable[..., NumbaLayer]:
    """Class matrix of n random vectors of the given norm, biases of the same spread."""

    def make(n: int, dim: int, *, seed: int = 0, norm: float = 1.0, rows: str = "catch_up") -> NumbaLayer:
        generator = np.random.default_rng(seed)
        weights = generator.standard_normal((n, dim)).astype(np.float32) * np.float32(norm / np.sqrt(dim))
        table = RowTable(AdamConfig(lr=0.05, rows=rows), weights, bias=True)  # type: ignore[arg-type]
        assert table.bias is not None
        table.bias[:, 0] = (norm * 0.3 * generator.standard_normal(n)).astype(np.float32)
        return NumbaLayer(table)

    return make


@pytest.fixture
def make_query() -> Callable[..., Query]:
    """ReLU-like hidden states and one to ``most_targets`` distinct ascending targets a row."""

    def make(rows: int, dim: int, n: int, *, seed: int = 1, most_targets: int = 3) -> Query:
        generator = np.random.default_rng(seed)
        hidden = np.maximum(generator.standard_normal((rows, dim)), 0).astype(np.float32)
        sizes = generator.integers(1, min(most_targets, n) + 1, rows)
        targets = [np.sort(generator.choice(n, size, replace=False)) for size in sizes]
        return Query(
            hidden_BD=hidden,
            target_indptr_B1=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            targets_P=np.concatenate(targets).astype(np.int32),
        )

    return make


TOY_FEATURES, TOY_CLASSES = 60, 50


def write_toy(folder: Path, *, num_train: int = 240, num_test: int = 60, seed: int = 0) -> None:
    """XC text files of a set that can be learnt: a class shows itself by two features of its own."""
    generator = np.random.default_rng(seed)
    for split, rows in (("train", num_train), ("test", num_test)):
        lines = [f"{rows} {TOY_FEATURES} {TOY_CLASSES}"]
        for _ in range(rows):
            # Low ids are frequent, as in real sets.
            labels = np.unique((TOY_CLASSES * generator.random(generator.integers(1, 4)) ** 2).astype(int))
            noise = generator.integers(0, TOY_FEATURES, 2)
            features = np.unique(np.concatenate([labels, (labels * 7 + 3) % TOY_FEATURES, noise]))
            values = generator.uniform(0.2, 0.6, len(features))
            pairs = " ".join(f"{f}:{v:.4f}" for f, v in zip(features, values, strict=True))
            lines.append(",".join(map(str, labels)) + " " + pairs)
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.txt and test.txt in XC text: 240 and 60 rows, 60 features, 50 classes."""
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder)
    return folder


WORDS = 60
WriteText = Callable[..., None]


@pytest.fixture(scope="session")
def write_text() -> WriteText:
    """Write train.txt, valid.txt and test.txt of so many sentences, in which one of two words follows a word."""

    def write(folder: Path, *, lines: dict[str, int]) -> None:
        draw = random.Random(0)
        for split, count in lines.items():
            sentences = []
            for _ in range(count):
                word, words = draw.randrange(WORDS), []
                for _ in range(draw.randrange(4, 12)):
                    words.append(f"w{word}")
                    word = (7 * word + 3 + draw.choice([0, 0, 0, 1])) % WORDS
                sentences.append(" ".join(words))
            (folder / f"{split}.txt").write_text("\n".join(sentences) + "\n")

    return write


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory, write_text: WriteText) -> Path:
    """A text of 62 types, 150 training sentences and 30 of each other split."""
    folder = tmp_path_factory.mktemp("text")
    write_text(folder, lines={"train": 150, "valid": 30, "test": 30})
    return folder


PAIR_WORDS = [f"w{number}" for number in range(12)]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a BERT with random weights: 2 layers of 16 units, and a vocabulary of 12 words."""
    import transformers

    folder = tmp_path_factory.mktemp("bert") / "tiny-bert"
    config = transformers.BertConfig(
        vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=40, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PAIR_WORDS]) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}')
    return folder


WritePairs = Callable[..., None]


@pytest.fixture(scope="session")
def write_pairs() -> WritePairs:
    """Write a TSV file of so many pairs that can be learnt: the second sentence begins with a word of its class."""

    def write(path: Path, *, count: int, classes: int = 2) -> None:
        generator = np.random.default_rng(0)
        lines = ["sentence1\tsentence2\tlabel"]
        for _ in range(count):
            label = int(generator.integers(classes))
            first, second = (
                " ".join(generator.choice(PAIR_WORDS[4:], generator.integers(1, 9)).tolist()) for _ in range(2)
            )
            lines.append(f"{first}\tw{label} {second}\t{label}")
        path.write_text("\n".join(lines) + "\n")

    return write


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory: pytest.TempPathFactory, write_pairs: WritePairs) -> Path:
    """A table of 60 pairs of two classes."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    write_pairs(path, count=60)
    return path


@pytest.fixture(scope="session")
def prepared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this session's data sets are prepared: never beside the cards."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture
def own_data_dir(prepared_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATASETS_DIR", str(prepared_root))
    return prepared_root


@pytest.fixture
def registrations_stay_here() -> Iterator[None]:
    """Leave no registration of a test behind."""
    from hydra.core.config_store import ConfigStore

    from runner.data import KINDS
    from runner.lgd import BATCH_SAMPLERS
    from runner.output.losses import LOSSES
    from runner.parts import MODELS, TASKS
    from runner.registry import FROM_OUTSIDE
    from runner.samplers import SAMPLERS

    tables: tuple[dict[Any, Any], ...] = (
        SAMPLERS,
        BATCH_SAMPLERS,
        LOSSES,
        MODELS,
        KINDS,
        TASKS,
        FROM_OUTSIDE,
    )  # type: ignore[assignment]
    kept, modules = [dict(table) for table in tables], set(sys.modules)
    yield
    for group, name in set(FROM_OUTSIDE) - set(kept[-1]):
        ConfigStore.instance().repo[group].pop(f"{name}.yaml", None)
    for table, before in zip(tables, kept, strict=True):
        table.clear()
        table.update(before)
    for name in set(sys.modules) - modules:
        if name in ("poisson_sampler", "released_kernels", "everything") or name.startswith("plugin_"):
            del sys.modules[name]
