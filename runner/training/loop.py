"""Run the training loop: steps, evaluations, checkpoints, and the results that a run leaves in its folder.

    draw -> batch -> ENCODE -> SAMPLE -> SCORE -> LOSS -> UPDATE -> REFRESH

A ``Task`` (``runner.tasks``) does what differs between kinds of data.
"""

import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from tqdm import tqdm

from runner.door.examples import build_example_sampler
from runner.errors import DamagedRun, Diverged, PluginError
from runner.lgd import ExampleSampler
from runner.machine import memory
from runner.machine.clock import BUILD, StageClock
from runner.machine.company import Company
from runner.machine.device import clock_of
from runner.machine.disk import writing
from runner.machine.group import Place
from runner.measures.by_rank import proposal_of
from runner.measures.divergence import divergence_of
from runner.network import Network
from runner.options.settings import EvaluationConfig, RunConfig
from runner.tasks import Task
from runner.tasks.base import PROGRESS_BAR, CompiledSteps
from runner.training.prediction import save_prediction
from runner.training.progress import Progress
from runner.training.run_folder import RunFolder
from runner.training.schedule import Schedule
from runner.training.stored_arrays import fitting
from runner.training.warm_up import warm_up

STEPS_AHEAD = {"cpu": 0, "gpu": 1}
"""How many steps begin before the loss of one is read. A GPU begins a step while the one before is not finished."""

_KEPT_BYTES = 64 * 2**20  # weights up to this size are kept if keep_weights is null
_CALL_SECONDS = 0.1  # time of one call of compiled steps: a signal or a checkpoint waits no longer
_EXAMPLES = "examples."  # prefix of the example sampler's arrays in a checkpoint


@contextmanager
def stop_signals(*, patient: bool = False) -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM in a list, so that a run stops only after a whole step.

    A second signal raises KeyboardInterrupt at once, unless ``patient``: torchrun sends one after the terminal's.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received and not patient:
            raise KeyboardInterrupt
        received.append(number)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # outside the main thread the caller must handle signals
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def evaluation_steps(evaluation: EvaluationConfig, steps_per_epoch: int) -> set[int]:
    """Return the steps of an epoch (1-based) after which the network is evaluated.

    They are evenly spaced, and the last step is always one of them.
    """
    count = evaluation.per_epoch
    fractions = np.minimum(np.arange(1, count + 1) * evaluation.every_epochs, 1)
    fractions[-1] = 1
    return set(np.ceil(np.round(fractions * steps_per_epoch, 3)).astype(int).tolist())


class Training:
    """Train one configuration. What changes is in ``progress``, the network and the sampler of examples.

    Call ``resume``, then ``go``. Raises DataError, ConfigError or RunnerError if the configuration does not fit the
    data.
    """

    def __init__(self, config: RunConfig, folder: RunFolder, task: Task, summary: dict[str, Any]) -> None:
        self.config, self.folder, self.task, self.summary = config, folder, task, summary
        self.across = task.across
        self.examples: ExampleSampler = build_example_sampler(
            config.batch_sampler, examples=task.examples, batch_size=config.batch_size, seed=config.seed
        )
        # Together, the two lines would be too long for most terminals.
        print(f"{config.run_id}\n{task.description}; preparing kernels", file=sys.stderr)
        begin = time.perf_counter()
        with writing(Path(os.environ["NUMBA_CACHE_DIR"]), keeps_names=True):  # Numba writes what it compiles
            warm_up(config)
        self.warm_up_seconds = time.perf_counter() - begin

        self.per_epoch = task.training.steps_per_epoch
        self.network: Network[Any] = task.build_network()
        for key, value in self.network.chosen.items():
            print(f"{key}=auto: {value}", file=sys.stderr)
        self.view = task.view(self.network)
        if self.view is not None:
            self.examples.check_view(self.view)
        self.compiled = task.compiled_steps(self.network, self.examples)
        self.schedule = Schedule.of(config, self.per_epoch)
        self.last_step = config.epochs * self.per_epoch
        if config.max_steps is not None:
            self.last_step = min(self.last_step, config.max_steps)
        self.evaluate_after = evaluation_steps(config.evaluation, self.per_epoch)
        self.probe = task.glance()
        self.diagnosed = task.probe(config.diagnostics.rows)
        self.progress = Progress(best_lr=config.optimizer.lr)
        self.lr = config.optimizer.lr  # of the steps that are being taken
        self.steps_at_once = 256
        self._steps_ahead = STEPS_AHEAD[config.hardware.name]
        self._unread: deque[tuple[int, Any, StageClock]] = deque()
        self.company = self._new_company()
        self.peak_mb = 0.0  # largest memory before the last diagnostics, whose own memory must not count

    # ------------------------------------------------------------ going

    def go(self) -> None:
        """Train from where ``resume`` left off to the end."""
        try:
            self._go()
        except PluginError as error:
            raise error.at(self.progress.step) from error.__cause__

    def _go(self) -> None:
        config, progress, task = self.config, self.progress, self.task
        self.company = self._new_company()  # from here on, what others take slows the training down
        if progress.step == 0:
            self._build_tables()
            self._probe()
        else:
            self.examples.make_tables(self.view)  # a part of the first start's time, so it does not count again
        saved_at, save_cost = time.perf_counter(), 0.0
        epochs, steps = divmod(self.last_step, self.per_epoch)
        bar = tqdm(
            total=epochs * task.rows_per_epoch + steps * task.rows_per_step, initial=progress.rows, unit=task.unit,
            unit_scale=True, desc=config.method_name, **PROGRESS_BAR,
        )  # fmt: skip
        with bar, stop_signals(patient=self.across.size > 1) as stopping:
            while not self._is_over():
                seconds_before = progress.train_seconds
                bar.update(self._step() if self.compiled is None else self._steps(self.compiled))
                self._show(bar)
                step = progress.step
                in_epoch = (step - 1) % self.per_epoch + 1
                turn_has_come = config.evaluation.turn(progress.train_seconds) > config.evaluation.turn(seconds_before)
                # Saving takes at most a twentieth of the time, even if the model is large.
                is_old = time.perf_counter() - saved_at > max(config.checkpoint_every_seconds, 20 * save_cost)
                stops, looks, saves = self._agreed(bool(stopping), turn_has_come, is_old)
                if in_epoch in self.evaluate_after or step == self.last_step:
                    self._evaluate_subset()
                elif looks:
                    self._look()
                if in_epoch == self.per_epoch:
                    self.schedule.end_epoch(progress)
                    # The evaluation just before made all rows current, so steps that a row misses have one rate.
                    self._set_lr()
                if self._diagnostics_are_due():
                    self._diagnose()
                if stops:
                    self._save()
                    bar.close()
                    again = "the same command without force=true" if config.force else "the same command"
                    print(f"interrupted: a checkpoint is saved; {again} continues", file=sys.stderr)
                    raise KeyboardInterrupt
                if saves:
                    begin = time.perf_counter()
                    self._save()
                    saved_at = time.perf_counter()
                    save_cost = saved_at - begin
        self._finish()

    def _agreed(self, stops: bool, *of_clock: bool) -> list[bool]:
        """Return what all holders of classes do now: what the first one's clock says, and stop if any was told to."""
        if self.across.size == 1:
            return [stops, *of_clock]
        told = [stops, *(self.across.leads and flag for flag in of_clock)]
        return [bool(flag) for flag in self.across.max(np.array(told, dtype=np.int32))]

    def _new_company(self) -> Company:
        """Count what others take of this machine; the processes of this run that share it are no others."""
        across = self.across
        if across.size == 1:
            return Company()
        here = Place.of_environment().here
        first = across.place // here * here
        return Company(lambda own: float(across.gather(np.array([own]))[first : first + here].sum()))

    def _build_tables(self) -> None:
        """Let the sampler of examples build its tables; the making of all samplers' tables is training time."""
        begin = time.perf_counter()
        self.examples.refresh(0, self.view)
        seconds = self.network.build_seconds
        if self.config.batch_sampler.needs_view:
            seconds += time.perf_counter() - begin
        self.progress.train_seconds += seconds
        self.progress.stage_seconds[BUILD] = seconds

    def _steps(self, compiled: CompiledSteps) -> int:
        """Take steps up to the next one after which something else is to do; return their rows."""
        progress = self.progress
        begin = time.perf_counter()
        step = progress.step
        in_epoch = step % self.per_epoch
        until = min((end for end in self.evaluate_after if end > in_epoch), default=self.per_epoch)
        most = min(until - in_epoch, self.last_step - step, self.steps_at_once)
        progress.loss_sum, taken, rows = compiled.take(step + 1, most, progress.loss_sum)
        progress.step += taken
        self.examples.refresh(progress.step, self.view)
        seconds = time.perf_counter() - begin
        progress.train_seconds += seconds
        if seconds > _CALL_SECONDS:
            self.steps_at_once = max(1, int(taken * _CALL_SECONDS / seconds))
        elif taken == self.steps_at_once:
            self.steps_at_once *= 2
        if not math.isfinite(progress.loss_sum):
            raise Diverged(f"the loss became {progress.loss_sum} at step {progress.step}; try a smaller optimizer.lr")
        progress.loss_steps += taken
        progress.rows += rows
        return rows

    def _step(self) -> int:
        """Take a training step and return its rows.

        Drawing examples and assembling the batch are part of the step's seconds, but of no stage: stages are the
        network's, so that they tell what a sampler of classes costs.
        """
        progress, task = self.progress, self.task
        clock = clock_of(self.config.hardware)
        begin = time.perf_counter()
        progress.step += 1
        draw = self.examples.draw(progress.step, self.view)
        norms_B = self.view.gradient_norms(draw.rows_B) if self.examples.learns_norms and self.view else None
        batch = task.batch(draw)
        scores = self.network.train_step(batch, progress.step, clock)
        if norms_B is not None:
            self.examples.observe(draw.rows_B, norms_B)
        self.examples.refresh(progress.step, self.view)
        self._unread.append((progress.step, scores, clock))
        self._read_steps(all_but=self._steps_ahead)
        progress.train_seconds += time.perf_counter() - begin
        progress.rows += batch.num_rows
        return int(batch.num_rows)

    def _read_steps(self, *, all_but: int) -> None:
        """Read losses and times of the steps taken, but for the newest ones; this waits for their device."""
        progress = self.progress
        while len(self._unread) > all_but:
            step, scores, clock = self._unread.popleft()
            for stage, seconds in clock.seconds.items():
                progress.stage_seconds[stage] += seconds
            loss = scores.loss
            if not math.isfinite(loss):
                raise Diverged(f"the loss became {loss} at step {step}; try a smaller optimizer.lr")
            progress.loss_sum += loss
            progress.loss_steps += 1
            progress.candidates += scores.candidates_per_row

    def _catch_up(self) -> None:
        """Wait for every step that was taken; what is left of their time is training time."""
        begin = time.perf_counter()
        self._read_steps(all_but=0)
        self.progress.train_seconds += time.perf_counter() - begin

    def _show(self, bar: "tqdm[Any]") -> None:
        """Put loss and headline beside the bar every few steps."""
        progress = self.progress
        is_last = progress.step == self.last_step
        if self.compiled is None and progress.step % 20 and not is_last:
            return
        if is_last:
            self._catch_up()
        shown = f"loss {progress.mean_loss:.3f}"
        if not math.isnan(progress.headline):  # it is nan before the first evaluation
            headline = self.task.headline()
            shown += f", {headline.label} {headline.text(progress.headline)}"
        bar.set_postfix_str(shown, refresh=False)

    def _set_lr(self) -> None:
        self.lr = self.schedule.rate(self.progress)
        self.network.set_lr(self.lr)

    def _is_over(self) -> bool:
        return self.progress.step >= self.last_step or self.schedule.is_out_of_patience(self.progress)

    # ------------------------------------------------------------ looking at the network

    def _evaluate_subset(self) -> None:
        progress = self.progress
        self._catch_up()
        self.network.read_all(progress.step + 1)
        self._check_outputs()
        metrics = self.task.evaluate_subset(self.network)
        progress.headline = self.task.headline_of(metrics)
        progress.latest_loss = progress.mean_loss
        score = self.task.validation_score(metrics)
        if score is not None:
            metrics = {**metrics, "lr": self.lr}
            if progress.best_step == 0 or self.task.headline().improves(score, progress.best_score):
                progress.best_score, progress.best_step, progress.best_lr = score, progress.step, metrics["lr"]
                self.folder.save_best(progress.step, self.network.final_weights())
        first_time = progress.loss_steps == progress.step
        self._observe(metrics)
        progress.loss_sum, progress.loss_steps = 0.0, 0
        if first_time:
            self._probe()

    def _look(self) -> None:
        """Measure at a moment of the clock, and leave no trace of it: training and results do not depend on the clock.

        Like ``_diagnose`` it says nothing of a network that has diverged, and peak memory does not include it.
        """
        step = self.progress.step
        self._catch_up()
        self.peak_mb = max(self.peak_mb, memory.peak_mb())
        with self.network.caught_up(step + 1):
            if self.network.is_sound(self.probe):
                metrics = self.task.evaluate_subset(self.network)
                of_validation = self.task.validates(self.config)
                self._observe({**metrics, **({"lr": self.lr} if of_validation else {})})
        memory.reset_peak()

    def _observe(self, metrics: dict[str, Any]) -> None:
        """Record an evaluation, with the mean loss of the steps since the last one of ``evaluation.every_epochs``."""
        progress = self.progress
        self.folder.observe(
            {
                "kind": "evaluation",
                "step": progress.step,
                "epoch": progress.step / self.per_epoch,
                "train_seconds": progress.train_seconds,
                "stage_seconds": dict(progress.stage_seconds),
                "loss": progress.mean_loss,
                **metrics,
            }
        )

    def _check_outputs(self) -> None:
        """Raise Diverged if the network's weights or outputs are lost. Rows must be current."""
        if not self.network.is_sound(self.probe):
            step = self.progress.step
            raise Diverged(f"outputs are not finite, or too large, after step {step}; try a smaller optimizer.lr")

    def _probe(self) -> None:
        """Record how the sampler's proposal compares with the softmax, for the plots of distributions."""
        if not self.network.has_classes:
            return
        step = self.progress.step
        self.network.read_all(step + 1)
        record = proposal_of(self.network, self.probe, step + 1)
        self.folder.observe({"kind": "distribution", "step": step, "epoch": step / self.per_epoch, **record})

    def _diagnostics_are_due(self) -> bool:
        every = self.config.diagnostics.every_epochs
        if every is None or not self.network.has_classes:
            return False
        return self.progress.step % (every * self.per_epoch) == 0 or self._is_over()

    def _diagnose(self) -> None:
        """Measure the sampler in its present state; neither training time nor peak memory includes this."""
        step = self.progress.step
        self._catch_up()
        self.network.read_all(step + 1)
        if not self.network.is_sound(self.diagnosed):
            return  # the next loss, or the end of the run, reports that training diverged
        self.peak_mb = max(self.peak_mb, memory.peak_mb())
        draws = self.config.diagnostics.draws
        divergence = divergence_of(self.network, self.diagnosed, first_step=step + 1, draws=draws)
        record = {"step": step, "epoch": step / self.per_epoch, "loss": self.config.loss.name, **divergence.record()}
        self.folder.observe({"kind": "diagnostics", **record})
        memory.reset_peak()

    # ------------------------------------------------------------ the end

    def _finish(self) -> None:
        self._save()  # the final evaluation can take long, and a kill during it must not lose the training
        progress, step = self.progress, self.progress.step
        self.network.read_all(step + 1)
        self._check_outputs()
        self._probe()
        if progress.best_step not in (0, step):
            self.network.load_final_weights(self.folder.load_best(progress.best_step))
        metrics = self.task.evaluate_final(self.network)
        self._keep_weights()
        self.folder.write_summary(
            {
                **self.summary,
                "status": "finished",
                "metrics": metrics,
                "epochs": step / self.per_epoch,
                "steps": step,
                "train_seconds": progress.train_seconds,
                "stage_seconds": dict(progress.stage_seconds),
                "warm_up_seconds": self.warm_up_seconds,
                **progress.company,
                "candidates_per_row": progress.candidates / max(1, step),
                "peak_rss_mb": max(self.peak_mb, memory.peak_mb()),
                **self.network.about(),
                **self._latest_diagnostics(),
                **self._selection(),
                **self.task.about_measures(self.config),
                **self.task.about_speed(progress.train_seconds, progress.rows),
                "dataset": self.task.about_data(),
            }
        )
        self.folder.drop_what_resumes()
        print(f"{self.task.closing(metrics)}; {progress.train_seconds:.1f} s of training", file=sys.stderr)

    def _latest_diagnostics(self) -> dict[str, Any]:
        """Return the part of the summary about diagnostics: the last observation, or nothing if there is none."""
        made = [record for record in self.folder.observations() if record["kind"] == "diagnostics"]
        return {"diagnostics": {key: value for key, value in made[-1].items() if key != "kind"}} if made else {}

    def _selection(self) -> dict[str, Any]:
        """Return the part of the summary about validation: which weights were measured, if training stopped early."""
        progress = self.progress
        if progress.best_step == 0:
            return {}
        return {
            "selection": {
                "step": progress.best_step,
                "epoch": progress.best_step / self.per_epoch,
                "stopped_early": progress.step < self.last_step,
                "lr": progress.best_lr,
            }
        }

    def _keep_weights(self) -> None:
        weights = self.network.final_weights()
        size = sum(array.nbytes for array in weights.values())
        keep = self.config.keep_weights
        if keep or (keep is None and size <= _KEPT_BYTES):
            self.folder.save_weights(self.progress.best_step or self.progress.step, weights)
            if self.across.leads:
                save_prediction(self.folder.path, self.task)

    # ------------------------------------------------------------ stopping and resuming

    def _save(self) -> None:
        self._catch_up()
        self.progress.note(self.company.taken())
        of_examples = {f"{_EXAMPLES}{name}": array for name, array in self.examples.state_dict().items()}
        arrays = {**self.network.state_dict(), **of_examples}
        self.folder.save_checkpoint(self.progress.step, arrays, self.progress.state())

    def resume(self) -> bool:
        """Go to the newest checkpoint, if there is one; return whether there is.

        Raises DamagedRun if the run cannot go on from what its folder holds, which is left as it is.
        """
        found = self.folder.load_checkpoint()
        if found is None:
            self.folder.metrics_path.unlink(missing_ok=True)
            return False
        arrays, state = found
        path, progress = self.folder.path / "checkpoint", Progress.of(state, str(self.folder.path))
        if progress.step > self.last_step:
            raise DamagedRun(path, f"it is of step {progress.step:,}, but the last one is {self.last_step:,}")
        if progress.best_step:
            self.folder.check_best(progress.best_step)
        of_network = {name: array for name, array in arrays.items() if not name.startswith(_EXAMPLES)}
        of_examples = {name.removeprefix(_EXAMPLES): arrays[name] for name in arrays.keys() - of_network.keys()}
        with fitting(path):
            self.network.load_state_dict(of_network)
            self.examples.load_state_dict(of_examples)
        self.progress = progress
        self._set_lr()
        print(f"resuming at step {self.progress.step:,} of {self.last_step:,}", file=sys.stderr)
        return True
