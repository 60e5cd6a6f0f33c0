"""Write tests/golden/loss_curves.json anew: ``python tests/golden/regenerate.py``."""

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runner.batches import epoch_batches
from runner.clock import StageClock
from runner.config import compose
from runner.experiment import Network
from runner.samplers import TrainingFacts

CURVES = Path(__file__).with_name("loss_curves.json")
STEPS = 20
# Every setting that a default might change is written out: curves follow the code, not the defaults.
COMMON = [
    "dataset=synthetic_xc", "dataset.num_classes=300", "dataset.num_features=400", "dataset.num_train=600",
    "dataset.num_test=50", "dataset.labels_per_row=2", "dataset.features_per_row=12", "dataset.branching=8",
    "dataset.label_frequency=power_law", "dataset.exponent=1.1", "dataset.seed=0", "model=mlp",
    "model.hidden=24", "batch_size=64", "seed=1", "optimizer=adam", "optimizer.lr=0.01",
    "optimizer.beta1=0.9", "optimizer.beta2=0.999", "optimizer.epsilon=1e-8", "optimizer.rows=catch_up",
]  # fmt: skip
SAMPLERS = {
    "full": ["sampler=full", "loss=full"],
    "uniform": [
        "sampler=uniform", "loss=sampled_softmax", "loss.correct_target=false", "sampler.num_samples=60",
        "sampler.shared=true", "sampler.unique=true",
    ],
    "lsh_label": [
        "sampler=lsh_label", "loss=active_set", "sampler.hash=simhash", "sampler.K=5", "sampler.L=8",
        "sampler.bucket_cap=16", "sampler.sparsity_budget=0.2", "sampler.min_candidates=40",
        "sampler.tail_candidates=5", "sampler.refresh_period=4", "sampler.center=false", "sampler.refresh_growth=1.2",
    ],
    "lsh_embedding": [
        "sampler=lsh_embedding", "loss=sampled_softmax", "loss.correct_target=false", "sampler.hash=dwta",
        "sampler.bin_size=4", "sampler.K=3", "sampler.L=8", "sampler.bucket_cap=16",
        "sampler.sparsity_budget=0.2", "sampler.min_candidates=40", "sampler.tail_candidates=5",
        "sampler.refresh_period=4", "sampler.center=false", "sampler.refresh_growth=1.2",
    ],
}  # fmt: skip


def curve(name: str) -> list[float]:
    """Loss of each of the first steps."""
    config = compose([*COMMON, *SAMPLERS[name]])
    data = config.dataset.build()
    counts = np.bincount(data.train.labels, minlength=data.num_classes)
    network = Network(config, num_features=data.num_features, training=TrainingFacts.one_label_a_row(counts))
    epochs = (epoch_batches(data.train, config.batch_size, config.seed, epoch) for epoch in itertools.count())
    batches = itertools.islice(itertools.chain.from_iterable(epochs), STEPS)
    return [network.train_step(batch, step, StageClock())[0] for step, batch in enumerate(batches, start=1)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DATASETS_DIR"] = folder
        curves = {name: [round(loss, 6) for loss in curve(name)] for name in SAMPLERS}
    CURVES.write_text(json.dumps(curves, indent=1) + "\n")
    print(f"wrote {CURVES}")
