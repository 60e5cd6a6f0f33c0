"""One run from configuration to summary: data, model, training steps, evaluation, checkpoints.

What differs between kinds of data is a ``Task`` (``runner.tasks``).

    batch -> ENCODE -> SAMPLE -> SCORE -> LOSS -> UPDATE -> REFRESH

``python -m runner`` alone (13,575 classes, 4 epochs, LSH Label) ends near P@1 .66 in about a minute on 2 cores.
"""

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from tqdm import tqdm

from runner import memory
from runner.clock import StageClock
from runner.config import RunConfig, set_threads
from runner.diagnostics import measures_of, proposal_of
from runner.errors import ConfigError, DataError, DataNotPrepared, Diverged, RunnerError
from runner.hardware import device_of, settled
from runner.optimizers import STATE_OF_TRAINING, Gradient, RowGradient, RowTable, clipping_factor
from runner.output_layer import OutputLayer
from runner.run_folder import RunFolder, provenance
from runner.samplers import Query, TrainingFacts
from runner.tasks import Task, rehearsal_of, task_of
from runner.tasks.base import PROGRESS_BAR, AnyBatch

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
        output = config.output
        vectors = config.model.class_vectors(num_classes, seed)
        table = RowTable(config.optimizer, vectors, bias=True, bias_moves=output.bias)
        # Softmax does not see a common shift; losses that treat logits as log probabilities (NCE) start at uniform.
        # Magnitudes are symmetric around 0 and start there; a normalised layer has no biases.
        if output.bias and not (self.loss.by_magnitude or config.sampler.by_magnitude or output.normalize):
            table.bias_view[:] = -np.float32(math.log(num_classes))
        self.layer = OutputLayer(table, output.scale)
        self.encoder = config.model.build(
            num_features=num_features, classes=table, optimizer=config.optimizer, seed=seed
        )
        if config.hardware.name == "gpu":
            self.encoder.move_to(device_of(config.hardware))
        self.sampler = config.sampler.build(layer=self.layer, training=training, seed=seed)

    @property
    def tables(self) -> list[RowTable]:
        return [*self.encoder.tables, self.layer.table]

    def train_step(self, batch: AnyBatch, step: int, clock: StageClock) -> tuple[float, float]:
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
        if self.config.model.tied or self.config.training.clip is not None:
            touched_U = self._update_together(scores, step, clock)
        else:
            with clock.stage("update"):
                grad_hidden = scores.update()
            with clock.stage("encode"):
                self.encoder.backward(grad_hidden, step)
            touched_U = scores.touched_U
        with clock.stage("refresh"):
            self.sampler.refresh(query, step, touched_U)
        return float(losses.mean(dtype=np.float64)), proposal.candidates_per_row(batch.num_rows)

    def _update_together(self, scores: Any, step: int, clock: StageClock) -> np.ndarray:
        """The step of all weights when every gradient is known; returns the touched classes.

        So that class vectors that are word vectors too take one step by the sum, and all gradients can be clipped.
        """
        with clock.stage("update"):
            classes, grad_hidden = scores.gradients()
        with clock.stage("encode"):
            gradients = self.encoder.gradients(grad_hidden, step)
        with clock.stage("update"):
            others: list[Gradient] = []
            for gradient in gradients:
                if isinstance(gradient, RowGradient) and gradient.table is self.layer.table:
                    classes = classes.plus(gradient)
                else:
                    others.append(gradient)
            clip = self.config.training.clip
            factor = 1.0 if clip is None else clipping_factor([classes, *others], clip)
            for gradient in (classes, *others):
                gradient.apply(step, factor)
        return classes.rows_U

    def read_all(self, step: int) -> None:
        """Bring every row up to date with the steps before ``step``, for ranking over all classes."""
        for table in self.tables:
            table.read(None, step)

    def set_lr(self, lr: float) -> None:
        """The learning rate of the steps to come. All rows must be current."""
        for table in self.tables:
            table.set_lr(lr)

    def is_finite(self, batch: AnyBatch) -> bool:
        """Whether all weights and a batch's logits are numbers; a blow-up in the last step shows nowhere else."""
        parts = [part for table in self.tables for part in (table.weights, table.bias)]
        if not all(np.isfinite(part).all() for part in (*parts, *self.encoder.dense)):
            return False
        hidden = self.encoder.encode(batch)
        for lo, hi in self.layer.blocks(batch.num_rows):
            logits = np.empty((batch.num_rows, hi - lo), dtype=np.float32)
            self.layer.block_logits(hidden, lo, hi, logits)
            if not np.isfinite(logits).all():
                return False
        return True

    def top(self, batch: AnyBatch, k: int) -> np.ndarray:
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
        """Restore what ``final_weights`` or ``state_dict`` gave, to predict and sample with, not to train on."""
        state = self.state_dict()
        self.load_state_dict({**state, **weights})
        if state.keys() - weights.keys():  # without their history, rows stay as they are
            for table in self.tables:
                table.forget_steps()

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for part, owner in (
            ("encoder", self.encoder),
            ("layer", self.layer.table),
            ("sampler", self.sampler),
        ):
            prefix = f"{part}."
            owner.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})


# ---------------------------------------------------------------- preparation


def warm_up(config: RunConfig) -> None:
    """Compile (or load) every kernel of this configuration on throw-away data, before any clock starts."""
    task = rehearsal_of(config)
    network = Network(config, num_features=task.num_features, training=task.training)
    clock = StageClock()
    for step, batch in enumerate(task.batches(0), start=1):
        network.train_step(batch, step, clock)
    after = step + 1
    network.read_all(after)
    with suppress(Diverged):  # what steps of this size do to throw-away data says nothing
        task.evaluate_subset(network)
    probe = task.probe(8)
    proposal_of(network, probe, after)
    if config.diagnostics.every_epochs is not None:
        measures_of(network, probe, first_step=after, draws=2)


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
    config.check_model_reads_dataset()
    config.sampler.check_processor()
    config = settled(config)
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


def load_trained(config: RunConfig, folder: RunFolder) -> tuple[Network, Task, int]:
    """The network as a run left it, at its end or at its last checkpoint, its task, and the last step.

    Raises RunnerError when the weights were not kept or the data are not those the run saw.
    """
    data = config.dataset.build()
    _check_same_data(config, folder, data.checksum)
    kept = folder.load_weights()
    if kept is None:
        raise RunnerError(f"{folder.path} keeps no weights; force=true keep_weights=true makes the run again")
    weights, step = kept
    config = settled(config)
    task = task_of(config, data)
    network = Network(config, num_features=task.num_features, training=task.training)
    network.load_final_weights(weights)
    network.read_all(step + 1)  # rows of a checkpoint may lag; final weights do not
    return network, task, step


class _Run:
    """State of a run in progress."""

    def __init__(self, config: RunConfig, folder: RunFolder, summary: dict[str, Any], threads: int) -> None:
        self.config, self.folder, self.summary = config, folder, summary
        memory.reset_peak()
        data = config.dataset.build()
        _check_same_data(config, folder, data.checksum)
        self.task = task_of(config, data)
        if notice := config.sampler.check_memory(self.task.rows_per_step, len(self.task.training.label_counts_N)):
            print(notice, file=sys.stderr)
        folder.write_provenance(provenance(config, threads, data.checksum), resumed=folder.has_checkpoint)
        print(f"{config.run_id}: {self.task.description}; preparing kernels", file=sys.stderr)
        begin = time.perf_counter()
        warm_up(config)
        self.warm_up_seconds = time.perf_counter() - begin

        self.per_epoch = self.task.training.steps_per_epoch
        self.network = Network(config, num_features=self.task.num_features, training=self.task.training)
        for key, value in self.network.sampler.chosen.items():
            print(f"{key}=auto: {value}", file=sys.stderr)
        self.last_step = config.epochs * self.per_epoch
        if config.max_steps is not None:
            self.last_step = min(self.last_step, config.max_steps)
        fractions = np.arange(1, config.evaluation.per_epoch + 1) / config.evaluation.per_epoch
        self.evaluate_after = set(np.ceil(fractions * self.per_epoch).astype(int).tolist())
        self.probe = self.task.glance()
        self.diagnosed = self.task.probe(config.diagnostics.rows)

        self.step = 0
        self.clock = StageClock()
        self.candidates = 0.0
        self.rows = 0  # trained on so far
        self.loss_sum = 0.0
        self.loss_steps = 0
        self.latest_loss = float("nan")  # mean between the last two evaluations
        self.headline = float("nan")
        self.best_score = float("inf")
        self.best_step = 0  # of the best validation so far; 0: there was none
        self.best_lr = config.optimizer.lr  # of the steps before it
        self.lr_factor = 1.0
        self.peak_mb = 0.0  # until the last diagnostics, whose own memory is no part of the training's

    # ------------------------------------------------------------ going

    def go(self) -> None:
        self._resume()
        config = self.config
        if self.step == 0:
            self._probe()
        saved_at, save_cost = time.perf_counter(), 0.0
        task = self.task
        epochs, steps = divmod(self.last_step, self.per_epoch)
        bar = tqdm(
            total=epochs * task.rows_per_epoch + steps * task.rows_per_step, initial=self.rows, unit=task.unit,
            unit_scale=True, desc=config.sampler.name, **PROGRESS_BAR,
        )  # fmt: skip
        with bar, stop_signals() as stopping:
            while not self._is_over():
                epoch, first = divmod(self.step, self.per_epoch)
                for rows in self._steps(task.batches(epoch, first)):
                    bar.update(rows)
                    if self.step % 20 == 0 or self.step == self.last_step:
                        loss = self.loss_sum / max(1, self.loss_steps)
                        shown = f"loss {loss:.3f}"
                        if not math.isnan(self.headline):  # as before the first evaluation
                            shown += f", {task.headline} {self.headline:.3f}"
                        bar.set_postfix_str(shown, refresh=False)
                    in_epoch = self.step - epoch * self.per_epoch
                    if in_epoch in self.evaluate_after or self.step == self.last_step:
                        self._evaluate_subset()
                    if in_epoch == self.per_epoch:
                        self._anneal()
                        self._set_lr()
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

    def _steps(self, batches: Iterator[AnyBatch]) -> Iterator[int]:
        """A training step on each batch; yields its rows. Assembly is timed too, what the caller does is not."""
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
            self.rows += batch.num_rows
            yield batch.num_rows

    def _evaluate_subset(self) -> None:
        self.network.read_all(self.step + 1)
        metrics = self.task.evaluate_subset(self.network)
        self.headline = self.task.headline_of(metrics)
        self.latest_loss = self.loss_sum / max(1, self.loss_steps)
        score = self.task.validation_score(metrics)
        if score is not None:
            metrics = {**metrics, "lr": self.network.layer.table.lr}
            if self.best_step == 0 or score < self.best_score:
                self.best_score, self.best_step, self.best_lr = score, self.step, metrics["lr"]
                self.folder.save_best(self.step, self.network.final_weights())
        first_time = self.loss_steps == self.step
        self.folder.observe(
            {
                "kind": "evaluation",
                "step": self.step,
                "epoch": self.step / self.per_epoch,
                "train_seconds": self.clock.total,
                "stage_seconds": dict(self.clock.seconds),
                "loss": self.latest_loss,
                **metrics,
            }
        )
        self.loss_sum, self.loss_steps = 0.0, 0
        if first_time:
            self._probe()

    def _epochs_without_improvement(self) -> int:
        """Whole epochs since the one in which validation was best."""
        return self.step // self.per_epoch - -(-self.best_step // self.per_epoch) if self.best_step else 0

    def _anneal(self) -> None:
        """At the end of an epoch: lower the learning rate if validation did not improve in it."""
        factor = self.config.training.anneal
        if factor is not None and self._epochs_without_improvement() > 0:
            self.lr_factor *= factor

    def _set_lr(self) -> None:
        """The learning rate of the next step's epoch; the evaluation before that epoch made all rows current."""
        config, epoch = self.config, self.step // self.per_epoch
        share = 1.0
        if config.training.decay is not None:
            share -= (1 - config.training.decay) * min(1.0, epoch / max(1, config.epochs - 1))
        self.network.set_lr(config.optimizer.lr * self.lr_factor * share)

    def _is_out_of_patience(self) -> bool:
        patience = self.config.training.patience
        at_end_of_epoch = self.step % self.per_epoch == 0
        return patience is not None and at_end_of_epoch and self._epochs_without_improvement() >= patience

    def _is_over(self) -> bool:
        return self.step >= self.last_step or self._is_out_of_patience()

    def _probe(self) -> None:
        """Record how the proposal compares with the softmax itself, for the distribution plots."""
        self.network.read_all(self.step + 1)
        record = proposal_of(self.network, self.probe, self.step + 1)
        epoch = self.step / self.per_epoch
        self.folder.observe({"kind": "distribution", "step": self.step, "epoch": epoch, **record})

    def _diagnostics_are_due(self) -> bool:
        every = self.config.diagnostics.every_epochs
        return every is not None and (self.step % (every * self.per_epoch) == 0 or self._is_over())

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
            self.folder.save_weights(self.best_step or self.step, weights)

    def _finish(self) -> None:
        self._save()  # the final evaluation can take long; a kill in it should not cost the training
        self.network.read_all(self.step + 1)
        if not self.network.is_finite(self.probe):
            raise Diverged(f"logits are not finite after step {self.step}; try a smaller optimizer.lr")
        self._probe()
        if self.best_step not in (0, self.step):
            self.network.load_final_weights(self.folder.load_best())
        metrics = self.task.evaluate_final(self.network)
        epochs = self.step / self.per_epoch
        self._keep_weights()
        self.folder.write_summary(
            {
                **self.summary,
                "status": "finished",
                "metrics": metrics,
                "epochs": epochs,
                "steps": self.step,
                "train_seconds": self.clock.total,
                "stage_seconds": dict(self.clock.seconds),
                "warm_up_seconds": self.warm_up_seconds,
                "candidates_per_row": self.candidates / max(1, self.step),
                "peak_rss_mb": max(self.peak_mb, memory.peak_mb()),
                "sampler_statistics": self.network.sampler.statistics,
                "chosen": self.network.sampler.chosen,
                **self._latest_diagnostics(),
                **self._selection(),
                **self.task.about_speed(self.clock.total, self.rows),
                "dataset": self.task.about_data(),
            }
        )
        self.folder.drop_checkpoint()
        self.folder.drop_best()
        print(f"{self.task.closing(metrics)}; {self.clock.total:.1f} s of training", file=sys.stderr)

    def _selection(self) -> dict[str, Any]:
        """The summary's part about validation: whose weights were measured, and whether it ended the training."""
        if self.best_step == 0:
            return {}
        return {
            "selection": {
                "step": self.best_step,
                "epoch": self.best_step / self.per_epoch,
                "stopped_early": self.step < self.last_step,
                "lr": self.best_lr,
            }
        }

    # ------------------------------------------------------------ stopping and resuming

    def _save(self) -> None:
        state = {
            "step": self.step,
            "train_seconds": self.clock.total,
            "stage_seconds": self.clock.seconds,
            "candidates": self.candidates,
            "loss_sum": self.loss_sum,
            "loss_steps": self.loss_steps,
            "headline": self.headline,
            "latest_loss": self.latest_loss,
            "best_score": self.best_score,
            "best_step": self.best_step,
            "best_lr": self.best_lr,
            "rows": self.rows,
            "lr_factor": self.lr_factor,
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
        self.candidates = state["candidates"]
        self.loss_sum, self.loss_steps = state["loss_sum"], state["loss_steps"]
        # Checkpoints of earlier versions do without the following.
        self.headline = state.get("headline", self.headline)
        self.latest_loss = state.get("latest_loss", self.latest_loss)
        self.best_score, self.best_step = state.get("best_score", self.best_score), state.get("best_step", 0)
        self.best_lr = state.get("best_lr", self.best_lr)
        self.rows = state.get("rows", round(self.step / self.per_epoch * self.task.rows_per_epoch))
        self.lr_factor = state.get("lr_factor", 1.0)
        self._set_lr()
        print(f"resuming at step {self.step:,} of {self.last_step:,}", file=sys.stderr)
