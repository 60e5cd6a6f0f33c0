"""Compute and write tests/golden/loss_curves.json and metrics.json: ``python tests/golden/regenerate.py [CASE ...]``.

With names of cases, only these are computed, and the others stay as they are. With ``--missing``, only cases are
computed that nothing is recorded for, such as those of a new sampler.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runner import samplers
from runner.check.cases import small_options
from runner.config import compose
from runner.machine.clock import StageClock
from runner.network import Network
from runner.parts import task_of
from runner.training.run import run

CURVES = Path(__file__).with_name("loss_curves.json")
METRICS = Path(__file__).with_name("metrics.json")
STEPS = 20
# Every setting with a default is written out, so that the curves depend on the code and not on the defaults.
ADAM = [
    "optimizer=adam", "optimizer.lr=0.01", "optimizer.beta1=0.9", "optimizer.beta2=0.999", "optimizer.epsilon=1e-8",
    "optimizer.rows=catch_up", "seed=1",
]  # fmt: skip
_ROWS_ALONE = [
    "seed=1", "dataset=synthetic_xc", "dataset.num_classes=300", "dataset.num_features=400", "dataset.num_train=600",
    "dataset.num_test=50", "dataset.labels_per_row=2", "dataset.features_per_row=12", "dataset.branching=8",
    "dataset.label_frequency=power_law", "dataset.exponent=1.1", "dataset.seed=0", "model.hidden=24",
    "batch_size=64",
]  # fmt: skip
ROWS = [*ADAM, *_ROWS_ALONE, "model=mlp"]
TEXT = [*ADAM, "dataset=text", "model.layers=1", "model.embedding=16", "model.init=null", "batch_size=4",
        "windows.length=8"]  # fmt: skip
LSTM = [*TEXT, "model=lstm", "model.hidden=16", "model.dropout=0.2", "windows.cut=contiguous"]
TRANSFORMER = [
    *TEXT, "model=transformer", "model.heads=2", "model.feed_forward=32", "model.dropout=0.0", "windows.cut=chunked",
]  # fmt: skip
_LOG = [
    *ADAM, "dataset=synthetic_log", "dataset.num_users=120", "dataset.num_items=150", "dataset.mean_length=12",
    "dataset.seed=0", "dataset.split=ratio", "batch_size=24", "model.length=8", "model.embedding=16",
    "model.dropout=0.2", "model.init=0.1",
]  # fmt: skip
SASREC = [*_LOG, "model=sasrec", "model.layers=2", "model.heads=2", "model.feed_forward=24"]
GRU4REC = [*_LOG, "model=gru4rec", "model.layers=1", "model.hidden=24"]

SOFTMAX = ["loss=sampled_softmax", "loss.correct_target=false"]
_STATIC = [*SOFTMAX, "sampler.num_samples=60", "sampler.shared=true", "sampler.unique=true"]
_LNS = [
    "sampler.max_per_bucket=16", "sampler.sparsity_budget=0.2", "sampler.min_candidates=40", "sampler.num_tail=5",
    "sampler.max_retrieved=null", "sampler.tail_distribution=uniform", "sampler.shared=false",
    "sampler.refresh_every_steps=4", "sampler.center=false", "sampler.refresh_growth=1.2",
]  # fmt: skip
_TABLES = ["sampler.hash=simhash", "sampler.center=true", "sampler.refresh_every_steps=4", "sampler.refresh_growth=1.2"]
_DRAWS = [*SOFTMAX, "sampler.num_samples=30"]
_MIDX = [
    *_DRAWS, "sampler.codewords=8", "sampler.refresh_every_steps=6", "sampler.kmeans_rows=200",
    "sampler.kmeans_iterations=5",
]  # fmt: skip
_LEARN = [
    *_MIDX, "sampler.within=uniform", "sampler.learn_assignment=hard", "sampler.learn_classes=100",
    "sampler.learn_steps=2", "sampler.learn_lr=0.01",
]  # fmt: skip
# There is one curve for every sampler; test_loss_curves.py fails if one is missing.
SAMPLERS: dict[str, list[str]] = {
    "full": ["sampler=full", "loss=full"],
    "uniform": ["sampler=uniform", *_STATIC],
    "log_uniform": ["sampler=log_uniform", *_STATIC],
    "unigram": ["sampler=unigram", *_STATIC, "sampler.exponent=1.0"],
    "topk": ["sampler=topk", "loss=active_set", "sampler.num_nearest=40"],
    "exact": ["sampler=exact", *_DRAWS],
    "quadratic": [
        "sampler=quadratic", "loss=absolute_softmax", "loss.correct_target=false", "sampler.num_samples=30",
        "sampler.alpha=0.5",
    ],
    "in_batch": ["sampler=in_batch", *SOFTMAX],
    "lsh": ["sampler=lsh", *_DRAWS, *_TABLES, "sampler.K=4", "sampler.L=8", "sampler.uniform_share=0.1"],
    "lsh_topk": [
        "sampler=lsh_topk", "loss=partition_estimate", *_TABLES, "sampler.K=4", "sampler.L=8", "sampler.num_nearest=30",
        "sampler.num_tail=20", "sampler.max_per_bucket=64",
    ],
    "sce": [
        "sampler=sce", "loss=active_set", "sampler.buckets=12", "sampler.bucket_rows=16", "sampler.bucket_classes=40",
        "sampler.mix=true", "sampler.num_tail=0",
    ],
    "lsh_label": ["sampler=lsh_label", "loss=active_set", "sampler.hash=simhash", "sampler.K=5", "sampler.L=8", *_LNS],
    "lsh_embedding": [
        "sampler=lsh_embedding", *SOFTMAX, "sampler.hash=dwta", "sampler.bin_size=4", "sampler.K=3", "sampler.L=8",
        *_LNS,
    ],
    "quadratic_tree": [
        "sampler=quadratic_tree", *_DRAWS, "sampler.alpha=100", "sampler.refresh_every_steps=3",
    ],
    "rff": [
        "sampler=rff", *_DRAWS, "sampler.D=64", "sampler.nu=4.0", "sampler.features=plain", "sampler.tree=true",
        "sampler.shared=false", "sampler.refresh_every_steps=3",
    ],
    "midx_pq": ["sampler=midx_pq", *_MIDX, "sampler.within=uniform"],
    "midx_rq": ["sampler=midx_rq", *_MIDX, "sampler.within=popularity", "sampler.exponent=0.75", "sampler.beam=4"],
    "midx_exact": ["sampler=midx_exact", *_MIDX, "sampler.quantizer=rq"],
    "midx_learn_pq": ["sampler=midx_learn_pq", *_LEARN],
    "midx_learn_rq": ["sampler=midx_learn_rq", *_LEARN, "sampler.beam=4"],
}  # fmt: skip
# A sampler that is not listed above has the settings of its first contract case.
for _name in set(samplers.SAMPLERS) - set(SAMPLERS):
    SAMPLERS[_name] = [f"sampler={_name}", *small_options(_name)]
_UNIFORM = ["sampler=uniform", "sampler.num_samples=60", "sampler.shared=true", "sampler.unique=true"]
_PER_ROW = ["sampler=uniform", "sampler.num_samples=60", "sampler.shared=false", "sampler.unique=false"]
CASES: dict[str, list[str]] = {
    **{name: [*ROWS, *overrides] for name, overrides in SAMPLERS.items()},
    "sphere": [*ROWS, "sampler=quadratic", *_DRAWS, "sampler.alpha=100"],
    "loss nce": [*ROWS, *_UNIFORM, "loss=nce"],
    "loss negative_sampling": [*ROWS, *_PER_ROW, "loss=negative_sampling"],
    "loss gbce": [*ROWS, *_UNIFORM, "loss=gbce", "loss.t=0.75"],
    "loss blackout": [*ROWS, *_PER_ROW, "loss=blackout"],
    "loss partition_estimate": [*ROWS, *_PER_ROW, "loss=partition_estimate"],
    "loss absolute_softmax": [*ROWS, *_PER_ROW, "loss=absolute_softmax", "loss.correct_target=true"],
    "normalised layer": [*ROWS, *_PER_ROW, *SOFTMAX, "output.normalize=true", "output.temperature=0.3"],
    "linear by sgd": [*_ROWS_ALONE, *_UNIFORM, *SOFTMAX, "model=linear", "optimizer=sgd", "optimizer.lr=0.5"],
    "dense rows": [*ROWS, *_PER_ROW, *SOFTMAX, "optimizer.rows=dense"],
    "touched rows": [*ROWS, *_PER_ROW, *SOFTMAX, "optimizer.rows=touched"],
    "lstm full": [*LSTM, "model.tied=true", "sampler=full", "loss=full", "training.clip=1.0"],
    "lstm midx_rq": [
        *LSTM, "model.tied=false", "sampler=midx_rq", *_MIDX, "loss.correct_target=true", "output.bias=false",
        "sampler.within=uniform", "sampler.beam=4",
    ],
    "transformer lsh_topk": [
        *TRANSFORMER, "model.tied=true", "sampler=lsh_topk", "loss=partition_estimate", *_TABLES, "sampler.K=4",
        "sampler.L=8", "sampler.num_nearest=20", "sampler.num_tail=10", "sampler.max_per_bucket=64",
        "output.bias=false",
    ],
    "sasrec full": [*SASREC, "model.tied=true", "sampler=full", "loss=full", "output.bias=false"],
    "gru4rec in_batch": [
        *GRU4REC, "model.tied=false", "sampler=in_batch", "loss=sampled_softmax", "loss.correct_target=true",
        "output.bias=true", "training.clip=1.0",
    ],
}  # fmt: skip
# These are whole runs by runner.training.run; recorded are the metrics of their summaries.
RUNS: dict[str, list[str]] = {
    "classification": [*ROWS, *SAMPLERS["lsh_label"], "epochs=6", "evaluation.every_epochs=0.5", "evaluation.rows=50"],
    "language": [*LSTM, *_UNIFORM, *SOFTMAX, "epochs=2", "evaluation.every_epochs=1", "training.decay=0.5"],
    "recommendation": [
        *SASREC,
        *_UNIFORM,
        *SOFTMAX,
        "model.tied=true",
        "output.bias=false",
        "epochs=7",
        "evaluation.every_epochs=1",
        "training.patience=null",
        "ranking.exclude_seen=true",
    ],
}


def write_text(folder: Path) -> None:
    """Write train, validation and test texts over 60 words, in which a word says much about the next one."""
    for split, words, seed in (("train", 900, 0), ("valid", 150, 1), ("test", 150, 2)):
        word, line, lines = 0, [], []
        state = 12345 + seed
        for _ in range(words):
            state = (1103515245 * state + 12345) % 2**31
            word = (2 * word + 1) % 60 if (state >> 16) % 4 else (state >> 8) % 60
            line.append(f"w{word}")
            if len(line) == 12:
                lines.append(" ".join(line))
                line = []
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")


def composed(overrides: list[str], folder: Path) -> Any:
    """Return the configuration of a case; texts are in ``folder``."""
    at = [f"dataset.path={folder}"] if "dataset=text" in overrides else []
    return compose([*overrides, *at])


def curve(name: str, folder: Path, *others: str) -> list[float]:
    """Return the loss of each of the first steps of a case, with ``others`` among its settings."""
    config = composed([*CASES[name], *others], folder)
    task = task_of(config, config.dataset.build())
    network = Network.of(config, task.build_head(), num_features=task.num_features)
    sampler = config.batch_sampler.build(examples=task.examples, batch_size=config.batch_size, seed=config.seed)
    batches = (task.batch(sampler.draw(step)) for step in range(1, STEPS + 1))
    return [network.train_step(batch, step, StageClock()).loss for step, batch in enumerate(batches, start=1)]


def metrics(name: str, folder: Path) -> dict[str, Any]:
    """Return the metrics at the end of a whole run."""
    path = run(composed([*RUNS[name], f"results_dir={folder / 'results'}", "hardware.threads=1"], folder))
    found: dict[str, Any] = json.loads((path / "summary.json").read_text())["metrics"]
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DATASETS_DIR"] = str(folder)
        write_text(folder)
        chosen = sys.argv[1:] or [*CASES, *RUNS]
        if chosen == ["--missing"]:
            recorded = {*json.loads(CURVES.read_text()), *json.loads(METRICS.read_text())}
            chosen = sorted({*CASES, *RUNS} - recorded)
        curves = {case: [round(loss, 6) for loss in curve(case, folder)] for case in CASES if case in chosen}
        measured = {case: metrics(case, folder) for case in RUNS if case in chosen}
    for path, cases, made in ((CURVES, CASES, curves), (METRICS, RUNS, measured)):
        kept = json.loads(path.read_text())
        path.write_text(json.dumps({case: made.get(case, kept.get(case)) for case in cases}, indent=1) + "\n")
    print(f"computed: {', '.join(chosen) or 'nothing'}")
