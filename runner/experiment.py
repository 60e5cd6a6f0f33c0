"""One run from configuration to summary: data, model, training steps, evaluation, checkpoints.

    batch -> ENCODE -> SAMPLE -> SCORE -> LOSS -> UPDATE -> REFRESH

``python -m runner`` alone (13,575 classes, 4 epochs, LSH Label) ends near P@1 .66 in about a minute on 2 cores.
"""

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from tqdm import tqdm

from runner import memory, rng
from runner.batches import Batch, epoch_batches, steps_per_epoch, take
from runner.clock import StageClock
from runner.config import RunConfig, set_threads
from runner.data import LabelledRows, XmcDataset
from runner.diagnostics import measures_of, probe_rows, proposal_of
from runner.errors import ConfigError, DataError, DataNotPrepared, Diverged, RunnerError
from runner.metrics import RANKS, inverse_propensity, ranking_metrics
from runner.optimizers import STATE_OF_TRAINING, RowTable
from runner.output_layer import OutputLayer
from runner.run_folder import RunFolder, provenance
from runner.samplers import Query, TrainingFacts

PROGRESS_BAR: dict[str, Any] = {"dynamic_ncols": True, "mininterval": 0.1 if sys.stderr.isatty() else 10}
_EVALUATION_ROWS = 1024  # rows encoded and ranked at a time
_KEPT_BYTES = 64 * 2**20  # weights that are kept unless the configuration says something


# ---------------------------------------------------------------- model and one step


class Network:
    """Encoder, output layer and sampler of one configuration."""

    def __init__(self, config: RunConfig, *, num_features: int, training: TrainingFacts) -> None:
        self.config = config
        self.training = training
        self.loss = config.loss
        seed = config.seed
        num_classes = len(training.label_counts_N)
        self.encoder = config.model.build(num_features=num_features, optimizer=config.optimizer, seed=seed)
        dim = self.encoder.dim
        weights = rng.generator(seed, rng.CLASS_INIT).standard_normal((num_classes, dim), dtype=np.float32)
        weights *= np.float32(1 / math.sqrt(dim))
        output = config.output
        table = RowTable(config.optimizer, weights, bias=True, bias_moves=output.bias)
        # Softmax does not see a common shift; losses that treat logits as log probabilities (NCE) start at uniform.
        # Magnitudes are symmetric around 0 and start there; a normalised layer has no biases.
        if output.bias and not (self.loss.by_magnitude or config.sampler.by_magnitude or output.normalize):
            table.bias_view[:] = -np.float32(math.log(num_classes))
        self.layer = OutputLayer(table, output.scale)
        self.sampler = config.sampler.build(layer=self.layer, training=training, seed=seed)

    def train_step(self, batch: Batch, step: int, clock: StageClock) -> tuple[float, float]:
        """One step (1-based). Returns the batch's mean loss and its candidates per row."""
        with clock.stage("encode"):
            hidden = self.encoder.forward(batch, step)
        query = Query(hidden_BD=hidden, target_indptr_B1=batch.target_indptr, targets_P=batch.targets)
        with clock.stage("sample"):
            proposal = self.sampler.sample(query, step)
            log_count = None
            if self.loss.corrects_targets:
                log_count = self.sampler.log_expected_count_of_targets(query, proposal, step)
        with clock.stage("score"):
            scores = self.layer.score(query, proposal, step)
        with clock.stage("loss"):
            losses = scores.loss(self.loss, log_count)
        with clock.stage("update"):
            grad_hidden = scores.update()
        with clock.stage("encode"):
            self.encoder.backward(grad_hidden, step)
        with clock.stage("refresh"):
            self.sampler.refresh(query, step, scores.touched_U)
        return float(losses.mean(dtype=np.float64)), proposal.candidates_per_row(batch.num_rows)

    def read_all(self, step: int) -> None:
        """Bring every row up to date with the steps before ``step``, for ranking over all classes."""
        self.encoder.table.read(None, step)
        self.layer.table.read(None, step)

    def is_finite(self, batch: Batch) -> bool:
        """Whether all weights and a batch's logits are numbers; a blow-up in the last step shows nowhere else."""
        parts = (self.encoder.table.weights, self.encoder.bias, self.layer.table.weights, self.layer.table.bias_view)
        if not all(np.isfinite(part).all() for part in parts):
            return False
        hidden = self.encoder.encode(batch)
        for lo, hi in self.layer.blocks(batch.num_rows):
            logits = np.empty((batch.num_rows, hi - lo), dtype=np.float32)
            self.layer.block_logits(hidden, lo, hi, logits)
            if not np.isfinite(logits).all():
                return False
        return True

    def top(self, batch: Batch, k: int) -> np.ndarray:
        """(B, k) best classes of each row, best first."""
        return self.layer.largest(self.encoder.encode(batch), k, by_magnitude=self.loss.by_magnitude)

    def state_dict(self) -> dict[str, np.ndarray]:
        parts = {"encoder": self.encoder, "layer": self.layer.table, "sampler": self.sampler}
        return {f"{part}.{name}": value for part, owner in parts.items() for name, value in owner.state_dict().items()}

    def final_weights(self) -> dict[str, np.ndarray]:
        """What predicting and sampling need of the state: weights and the sampler's tables."""

        def is_needed(name: str) -> bool:
            return name.startswith("sampler.") or name.rpartition(".")[2] not in STATE_OF_TRAINING

        return {name: value for name, value in self.state_dict().items() if is_needed(name)}

    def load_final_weights(self, weights: dict[str, np.ndarray]) -> None:
        self.load_state_dict({**self.state_dict(), **weights})

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for part, owner in (
            ("encoder", self.encoder),
            ("layer", self.layer.table),
            ("sampler", self.sampler),
        ):
            prefix = f"{part}."
            owner.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})


def training_facts(data: XmcDataset, batch_size: int) -> TrainingFacts:
    train = data.train
    return TrainingFacts(
        label_counts_N=np.bincount(train.labels, minlength=data.num_classes),
        num_rows=train.num_rows,
        steps_per_epoch=steps_per_epoch(train.num_rows, batch_size),
    )


def evaluate(
    network: Network, data: LabelledRows, rows: np.ndarray, inverse_propensity_N: np.ndarray, *, label: str
) -> dict[str, float]:
    """Ranking metrics of the given rows over all classes, in blocks of rows and classes."""
    k = min(max(RANKS), network.layer.num_classes)
    tops, indptrs, labels = [], [np.zeros(1, dtype=np.int64)], []
    chunks = range(0, len(rows), _EVALUATION_ROWS)
    for begin in tqdm(chunks, desc=label, leave=False, disable=len(chunks) < 8, **PROGRESS_BAR):
        batch = take(data, rows[begin : begin + _EVALUATION_ROWS])
        tops.append(network.top(batch, k))
        indptrs.append(batch.target_indptr[1:] + indptrs[-1][-1])
        labels.append(batch.targets)
    return ranking_metrics(np.concatenate(tops), np.concatenate(indptrs), np.concatenate(labels), inverse_propensity_N)


# ---------------------------------------------------------------- preparation


def warm_up(config: RunConfig) -> None:
    """Compile (or load) every kernel of this configuration on throw-away data, before any clock starts."""
    generator = np.random.default_rng(0)
    rows, features, classes = 24, 40, 80
    indptr = np.arange(rows + 1, dtype=np.int64) * 3
    arrays: dict[str, Any] = {
        "indptr": indptr,
        "indices": generator.integers(0, features, 3 * rows).astype(np.int32),
        "values": np.full(3 * rows, 0.5, dtype=np.float32),
        "label_indptr": np.arange(rows + 1, dtype=np.int64),
        "labels": generator.integers(0, classes, rows).astype(np.int32),
    }
    for array in arrays.values():
        array.flags.writeable = False  # as memory-mapped data are: kernels are compiled for that
    data = LabelledRows(**arrays)
    training = TrainingFacts(label_counts_N=np.ones(classes, dtype=np.int64), num_rows=rows, steps_per_epoch=3)
    network = Network(config, num_features=features, training=training)
    clock = StageClock()
    for step, batch in enumerate(epoch_batches(data, 8, 0, 0), start=1):
        network.train_step(batch, step, clock)
    network.read_all(4)
    evaluate(network, data, np.arange(rows), np.ones(classes), label="")
    batch = take(data, np.arange(8))
    proposal_of(network, batch, 4)
    if config.diagnostics.every_epochs is not None:
        measures_of(network, batch, first_step=4, draws=2)


def label_frequency(label_counts_N: np.ndarray, points: int = 200) -> dict[str, list[int]]:
    """Training positives of the classes at log-spaced ranks, most frequent first."""
    ordered = np.sort(label_counts_N)[::-1]
    ranks = np.unique(np.geomspace(1, len(ordered), points).astype(np.int64))
    return {"rank": ranks.tolist(), "count": ordered[ranks - 1].tolist()}


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM, so that a step ends before the run does; a second Ctrl-C stops at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs us there handles signals
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------- the run


def run(config: RunConfig) -> Path:
    """Train, evaluate and write the run folder, whose path is returned.

    A finished configuration is not repeated (unless ``force``), an interrupted one resumes from its checkpoint.
    Raises RunnerError for data not prepared, a locked folder or a diverged loss; KeyboardInterrupt after
    leaving a checkpoint.
    """
    threads = set_threads(config.hardware.threads)  # a wrong number is found before a folder is made
    folder = RunFolder(config.run_dir)
    with folder.locked():
        if config.force:
            config.dataset.build()  # before anything is deleted: the data may be gone
            folder.clear()
        if folder.is_finished():
            _check_same_data(config, folder)
            print(f"already finished, not repeated (force=true re-runs): {config.run_id}", file=sys.stderr)
            return folder.path
        summary: dict[str, Any] = {"status": "running", "run_id": config.run_id, "config": config.as_dict()}
        try:
            prepared = _Run(config, folder, summary, threads)
            folder.start(config)
            folder.write_summary(summary)
            prepared.go()
        except ConfigError:
            raise  # a mistake on the command line is no result; what the folder says stays
        except KeyboardInterrupt:
            folder.write_summary({**summary, "status": "interrupted"})
            raise
        except Diverged as error:
            folder.write_summary({**summary, "status": "diverged", "error": str(error)})
            raise
        except DataNotPrepared as error:
            folder.write_summary({**summary, "status": "skipped: data not prepared", "error": str(error)})
            raise
        except Exception as error:
            folder.write_summary({**summary, "status": "failed", "error": f"{type(error).__name__}: {error}"})
            raise
    return folder.path


def _check_same_data(config: RunConfig, folder: RunFolder, checksum: str | None = None) -> None:
    """RunnerError when the folder's run saw other data than the configuration names now."""
    before = folder.provenance().get("data_checksum")
    if checksum is None and config.dataset.kind == "synthetic_xc":
        return  # its settings are its content, and making it anew can take long
    try:
        now = checksum or config.dataset.build().checksum
    except (ConfigError, DataError):
        return  # a finished run stays finished when its data are deleted
    if before is not None and before != now:
        raise RunnerError(f"the data changed since {folder.path} was made; force=true starts it again")


def load_trained(config: RunConfig, folder: RunFolder) -> tuple[Network, XmcDataset, int]:
    """The network as a run left it, at its end or at its last checkpoint, its data, and the last step.

    Raises RunnerError when the weights were not kept or the data are not those the run saw.
    """
    data: XmcDataset = config.dataset.build()
    _check_same_data(config, folder, data.checksum)
    kept = folder.load_weights()
    if kept is None:
        raise RunnerError(f"{folder.path} keeps no weights; force=true keep_weights=true makes the run again")
    weights, step = kept
    network = Network(config, num_features=data.num_features, training=training_facts(data, config.batch_size))
    network.load_final_weights(weights)
    network.read_all(step + 1)  # rows of a checkpoint may lag; final weights do not
    return network, data, step


class _Run:
    """State of a run in progress."""

    def __init__(self, config: RunConfig, folder: RunFolder, summary: dict[str, Any], threads: int) -> None:
        self.config, self.folder, self.summary = config, folder, summary
        memory.reset_peak()
        self.data: XmcDataset = config.dataset.build()
        train = self.data.train
        _check_same_data(config, folder, self.data.checksum)
        folder.write_provenance(provenance(config, threads, self.data.checksum), resumed=folder.has_checkpoint)
        print(
            f"{config.run_id}: {train.num_rows:,} training rows, {self.data.num_features:,} features, "
            f"{self.data.num_classes:,} classes; preparing kernels",
            file=sys.stderr,
        )
        begin = time.perf_counter()
        warm_up(config)
        self.warm_up_seconds = time.perf_counter() - begin

        training = training_facts(self.data, config.batch_size)
        self.label_counts_N, self.per_epoch = training.label_counts_N, training.steps_per_epoch
        self.inverse_propensity_N = inverse_propensity(
            self.label_counts_N, train.num_rows, self.data.propensity_a, self.data.propensity_b
        )
        self.network = Network(config, num_features=self.data.num_features, training=training)
        self.last_step = config.epochs * self.per_epoch
        if config.max_steps is not None:
            self.last_step = min(self.last_step, config.max_steps)
        fractions = np.arange(1, config.evaluation.per_epoch + 1) / config.evaluation.per_epoch
        self.evaluate_after = set(np.ceil(fractions * self.per_epoch).astype(int).tolist())
        test_rows = np.arange(self.data.test.num_rows)
        chosen = rng.generator(0, rng.EVALUATE).permutation(test_rows)[: config.evaluation.rows]
        self.subset = np.sort(chosen)
        self.probe = take(self.data.test, self.subset[:32])
        self.diagnosed = take(self.data.test, probe_rows(len(test_rows), config.diagnostics.rows))

        self.step = 0
        self.clock = StageClock()
        self.candidates = 0.0
        self.loss_sum = 0.0
        self.loss_steps = 0
        self.latest_p1 = float("nan")
        self.peak_mb = 0.0  # until the last diagnostics, whose own memory is no part of the training's

    # ------------------------------------------------------------ going

    def go(self) -> None:
        self._resume()
        config = self.config
        if self.step == 0:
            self._probe()
        saved_at, save_cost = time.perf_counter(), 0.0
        bar = tqdm(
            total=self.last_step * config.batch_size, initial=self.step * config.batch_size, unit="row",
            unit_scale=True, desc=config.sampler.name, **PROGRESS_BAR,
        )  # fmt: skip
        with bar, stop_signals() as stopping:
            while self.step < self.last_step:
                epoch, first = divmod(self.step, self.per_epoch)
                batches = epoch_batches(self.data.train, config.batch_size, config.seed, epoch, first)
                for _ in self._steps(batches):
                    bar.update(config.batch_size)
                    if self.step % 20 == 0 or self.step == self.last_step:
                        loss = self.loss_sum / max(1, self.loss_steps)
                        bar.set_postfix_str(f"loss {loss:.3f}, P@1 {self.latest_p1:.3f}", refresh=False)
                    in_epoch = self.step - epoch * self.per_epoch
                    if in_epoch in self.evaluate_after or self.step == self.last_step:
                        self._evaluate_subset()
                    if self._diagnostics_are_due():
                        self._diagnose()
                    if stopping:
                        self._save()
                        bar.close()
                        again = "the same command without force=true" if config.force else "the same command"
                        print(f"interrupted: a checkpoint is saved; {again} continues", file=sys.stderr)
                        raise KeyboardInterrupt
                    # Saving takes at most a twentieth of the time, however large the model.
                    if time.perf_counter() - saved_at > max(config.checkpoint_seconds, 20 * save_cost):
                        begin = time.perf_counter()
                        self._save()
                        saved_at = time.perf_counter()
                        save_cost = saved_at - begin
                    if self.step == self.last_step:
                        break
        self._finish()

    def _steps(self, batches: Iterator[Batch]) -> Iterator[None]:
        """A training step on each batch; its assembly is timed too, what the caller does in between is not."""
        while True:
            begin = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self.step += 1
            loss, candidates = self.network.train_step(batch, self.step, self.clock)
            self.clock.total += time.perf_counter() - begin
            if not math.isfinite(loss):
                raise Diverged(f"the loss became {loss} at step {self.step}; try a smaller optimizer.lr")
            self.loss_sum += loss
            self.loss_steps += 1
            self.candidates += candidates
            yield

    def _evaluate_subset(self) -> None:
        self.network.read_all(self.step + 1)
        metrics = evaluate(self.network, self.data.test, self.subset, self.inverse_propensity_N, label="evaluating")
        self.latest_p1 = metrics["p@1"]
        first_time = self.loss_steps == self.step
        self.folder.observe(
            {
                "kind": "evaluation",
                "step": self.step,
                "epoch": self.step / self.per_epoch,
                "train_seconds": self.clock.total,
                "stage_seconds": dict(self.clock.seconds),
                "loss": self.loss_sum / max(1, self.loss_steps),
                **{f"test_subset/{name}": value for name, value in metrics.items()},
            }
        )
        self.loss_sum, self.loss_steps = 0.0, 0
        if first_time:
            self._probe()

    def _probe(self) -> None:
        """Record how the proposal compares with the softmax itself, for the distribution plots."""
        self.network.read_all(self.step + 1)
        record = proposal_of(self.network, self.probe, self.step + 1)
        epoch = self.step / self.per_epoch
        self.folder.observe({"kind": "distribution", "step": self.step, "epoch": epoch, **record})

    def _diagnostics_are_due(self) -> bool:
        every = self.config.diagnostics.every_epochs
        return every is not None and (self.step % (every * self.per_epoch) == 0 or self.step == self.last_step)

    def _diagnose(self) -> None:
        """Measure the sampler as it stands, off the training's clock and off its peak memory."""
        self.network.read_all(self.step + 1)
        if not self.network.is_finite(self.diagnosed):
            return  # the next loss, or the end, says so
        self.peak_mb = max(self.peak_mb, memory.peak_mb())
        draws = self.config.diagnostics.draws
        measures = measures_of(self.network, self.diagnosed, first_step=self.step + 1, draws=draws)
        epoch = self.step / self.per_epoch
        record = {"step": self.step, "epoch": epoch, "loss": self.config.loss.name, **measures.record()}
        self.folder.observe({"kind": "diagnostics", **record})
        memory.reset_peak()

    def _latest_diagnostics(self) -> dict[str, Any]:
        """The summary's part about diagnostics: the last observation, nothing where none was made."""
        made = [record for record in self.folder.observations() if record["kind"] == "diagnostics"]
        return {"diagnostics": {key: value for key, value in made[-1].items() if key != "kind"}} if made else {}

    def _keep_weights(self) -> None:
        weights = self.network.final_weights()
        size = sum(array.nbytes for array in weights.values())
        keep = self.config.keep_weights
        if keep or (keep is None and size <= _KEPT_BYTES):
            self.folder.save_weights(self.step, weights)

    def _finish(self) -> None:
        self._save()  # the final evaluation can take long; a kill in it should not cost the training
        self.network.read_all(self.step + 1)
        if not self.network.is_finite(self.probe):
            raise Diverged(f"logits are not finite after step {self.step}; try a smaller optimizer.lr")
        self._probe()
        test = self.data.test
        metrics = evaluate(
            self.network, test, np.arange(test.num_rows), self.inverse_propensity_N, label="final evaluation"
        )
        data = self.data
        self._keep_weights()
        self.folder.write_summary(
            {
                **self.summary,
                "status": "finished",
                "metrics": {f"test/{name}": value for name, value in metrics.items()},
                "epochs": self.step / self.per_epoch,
                "steps": self.step,
                "train_seconds": self.clock.total,
                "stage_seconds": dict(self.clock.seconds),
                "warm_up_seconds": self.warm_up_seconds,
                "candidates_per_row": self.candidates / max(1, self.step),
                "peak_rss_mb": max(self.peak_mb, memory.peak_mb()),
                "sampler_statistics": self.network.sampler.statistics,
                **self._latest_diagnostics(),
                "dataset": {
                    "name": data.name,
                    "num_classes": data.num_classes,
                    "num_features": data.num_features,
                    "num_train": data.train.num_rows,
                    "num_test": test.num_rows,
                    "label_frequency": label_frequency(self.label_counts_N),
                },
            }
        )
        self.folder.drop_checkpoint()
        shown = ", ".join(f"P@{k} {metrics[f'p@{k}']:.4f}" for k in RANKS if f"p@{k}" in metrics)
        print(f"{shown}; {self.clock.total:.1f} s of training", file=sys.stderr)

    # ------------------------------------------------------------ stopping and resuming

    def _save(self) -> None:
        state = {
            "step": self.step,
            "train_seconds": self.clock.total,
            "stage_seconds": self.clock.seconds,
            "candidates": self.candidates,
            "loss_sum": self.loss_sum,
            "loss_steps": self.loss_steps,
            "latest_p1": self.latest_p1,
        }
        self.folder.save_checkpoint(self.step, self.network.state_dict(), state)

    def _resume(self) -> None:
        found = self.folder.load_checkpoint()
        if found is None:
            self.folder.metrics_path.unlink(missing_ok=True)
            return
        arrays, state = found
        self.network.load_state_dict(arrays)
        self.step = state["step"]
        self.clock.total = state["train_seconds"]
        self.clock.seconds.update(state["stage_seconds"])
        self.candidates, self.latest_p1 = state["candidates"], state["latest_p1"]
        self.loss_sum, self.loss_steps = state["loss_sum"], state["loss_steps"]
        print(f"resuming at step {self.step:,} of {self.last_step:,}", file=sys.stderr)
