"""Read a run from its folder: status, numbers and observations. Nothing else is a source of them."""

import functools
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.data import CardConfig
from runner.data.shared.cards import load_card
from runner.data.shared.places import PREPARE, prepared_dir
from runner.data.shared.store import read_manifest
from runner.errors import DamagedRun, DataError, NotInstalled, ProcessorLacks
from runner.options.settings import ADAPTIVE, CPU, EVERY_EXAMPLE_ONCE, RunConfig
from runner.report.numbers.yardstick import Yardstick
from runner.report.spec.grids import PlannedRun
from runner.training.run_records import FINISHED, check_run, read_observations, read_provenance, read_summary
from runner.training.same_run import DATA_CHANGED, difference

DIVERGED = "diverged"
NOT_RUN = "not run"
UNFINISHED = "unfinished"
DAMAGED = "damaged"
OLDER = "made by an earlier version, which stored no measures: force=true repeats it"
OTHER_DATA = "other data than those meant now: force=true repeats it"
CHANGED = "made before a default, a plugin or the device changed: force=true repeats it"
REFUSED = "refused"
MIXTURE = "mixture: resumed on another machine or with other threads, so that its seconds are no number"
PARALLEL = "parallel: made beside other runs of its sweep, so that its seconds are no number"
DATA = "data"  # among the marks of an origin
BUSY_SHARE = 0.1  # of the machine; where others take more, seconds say more of them than of the run
BUSY = f"busy: others took over {BUSY_SHARE:.0%} of the machine while it trained, so that its seconds are no number"
NO_DATA = "skipped: data not prepared"


@functools.cache
def _damage_of(path: Path, stamps: tuple[tuple[int, int], ...], tells: bool) -> str:
    """Return what is wrong with a run folder, and print it if ``tells``; once for each state of its files."""
    try:
        check_run(path, path.name)
    except (DamagedRun, OSError) as error:
        why = f"{error.path.name}: {error.why}" if isinstance(error, DamagedRun) else str(error)
        if tells:
            print(f"left out: {error}", file=sys.stderr)
        return why
    return ""


@dataclass(frozen=True)
class RunRecord:
    """A record gives access to one run folder.

    ``tells``: damage is named on standard error when it is found. ``planned``: the run that the folder should hold.
    ``refused``: why the run was refused just now, though the folder holds a finished one.
    """

    path: Path
    tells: bool = True
    planned: RunConfig | None = field(default=None, compare=False)
    refused: str = field(default="", compare=False)

    @functools.cached_property
    def damage(self) -> str:
        """What is wrong with the folder; empty if nothing is. No file of a damaged folder is read."""
        stamps = [(file.stat().st_mtime_ns, file.stat().st_size) for file in self._files if file.exists()]
        return _damage_of(self.path, tuple(stamps), self.tells)

    @functools.cached_property
    def difference(self) -> str:
        """How the run differs from the planned one, though their ids are equal; empty if it does not."""
        if not (self.planned and self.summary):
            return ""
        return difference(self.planned, self.summary, self.provenance)

    @functools.cached_property
    def has_other_data(self) -> bool:
        """Whether it was made on other data than are meant now, as far as that can be told without reading them."""
        if DATA_CHANGED in self.refused:
            return True
        if self.planned is None or not isinstance(self.planned.dataset, CardConfig):
            return False
        before = self.provenance.get("data_checksum")
        now = _prepared_checksum(self.planned.dataset.name)
        return None not in (before, now) and before != now

    @functools.cached_property
    def origin(self) -> dict[str, str]:
        """Marks of what its numbers come from, besides its settings: data, sources of plugins, the runner's numbers."""
        made = self.provenance
        if not made:
            return {}
        marks = {f"plugins.{name}": str(digest) for name, digest in made.get("plugins", {}).items()}
        if made.get("data_checksum"):
            marks[DATA] = str(made["data_checksum"])
        return {**{key: mark[:8] for key, mark in marks.items()}, "numbers": str(made.get("numbers", 1))}

    @property
    def _files(self) -> list[Path]:
        return [self.path / name for name in ("summary.json", "provenance.json", "config.yaml", "metrics.jsonl")]

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        return {} if self.damage else read_summary(self.path) or {}

    @functools.cached_property
    def provenance(self) -> dict[str, Any]:
        return {} if self.damage else read_provenance(self.path) or {}

    @functools.cached_property
    def observations(self) -> list[dict[str, Any]]:
        return [] if self.damage else read_observations(self.path) or []

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.observations if record.get("kind") == kind]

    @functools.cached_property
    def attempts(self) -> list[dict[str, Any]]:
        """The provenance of every attempt at the run, the first one first."""
        last = self.provenance
        return [*last.get("earlier_attempts", []), last]

    @property
    def is_mixture(self) -> bool:
        """Whether its attempts ran on different machines or with different numbers of threads."""
        places = [[made.get(key) for key in ("cpu", "cores", "gpu", "threads")] for made in self.attempts]
        return any(place != places[0] for place in places)

    @property
    def parallel_jobs(self) -> int:
        """How many runs shared the machine, this one included."""
        return max(made.get("parallel_jobs", 1) for made in self.attempts)

    @property
    def why_no_seconds(self) -> str:
        """Why its seconds cannot stand beside those of other runs; empty if they can."""
        if self.is_mixture:
            return MIXTURE
        if self.parallel_jobs > 1:
            return PARALLEL
        return BUSY if self.others_share > BUSY_SHARE else ""

    @property
    def others_share(self) -> float:
        """The share of the machine that other processes took while it trained; 0 of a run that did not count it."""
        return float(self.summary.get("others_share", 0.0))

    @property
    def has_changes(self) -> bool:
        """Whether the code of any attempt had changes that were not committed."""
        return any(made.get("patch") for made in self.attempts)

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def short_id(self) -> str:
        """The hash at the end of the run id, which is unique and short enough for a table cell."""
        return self.run_id.rpartition("-")[2]

    @property
    def finished(self) -> bool:
        return self.status == FINISHED

    @property
    def status(self) -> str:
        """The run's status: ``finished``, ``failed``, ``diverged``, ``unfinished`` (stopped or still running), ``not
        run``, ``damaged``, ``OLDER``: it finished, but stored no measures to read its metrics by, ``CHANGED``: it left
        what is not the planned run's, ``OTHER_DATA``, or ``REFUSED``: it is finished, but could not be opened now."""
        if self.damage:
            return DAMAGED
        status = self.summary.get("status")
        if status is None or str(status).startswith("skipped"):
            return NOT_RUN  # earlier versions left a folder where data were missing; status_of tells if they still are
        has_results = status in (FINISHED, DIVERGED) or any(self.path.glob("checkpoint/step-*"))
        if has_results and self.difference:
            return CHANGED
        if has_results and self.has_other_data:
            return OTHER_DATA
        if status == FINISHED and self.refused:
            return REFUSED
        if status == FINISHED and Yardstick.read(self.summary) is None:
            return OLDER
        return UNFINISHED if status in ("running", "interrupted") else str(status)

    @property
    def error(self) -> str:
        if self.damage or self.refused:
            return self.damage or self.refused
        if self.status == OTHER_DATA:
            return f"{DATA_CHANGED} {self.path} was made"
        return self.difference if self.status == CHANGED else str(self.summary.get("error", ""))

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.summary.get("config", {})
        return config

    @property
    def identity(self) -> dict[str, Any]:
        """Those of its settings that are not the defaults, and the names of what was chosen."""
        identity: dict[str, Any] = self.summary.get("identity", self.config)  # earlier versions stored none
        return identity

    @functools.cached_property
    def yardstick(self) -> Yardstick:
        """The measures that tell how to read the metrics of a finished run."""
        found = Yardstick.read(self.summary)
        assert found is not None, "of finished runs only"
        return found

    def metric(self, name: str) -> float:
        """Return a stored metric such as ``test/p@1``, unscaled; nan if it was not measured."""
        return float(self.summary["metrics"].get(name, float("nan")))  # with fewer than 5 classes there is no p@5

    def scaled(self, name: str) -> float:
        """Return a metric as it is printed: in percent if that is its unit."""
        return self.yardstick.measure(name).scale * self.metric(name)

    @property
    def quality(self) -> float:
        """The headline on the test set, as it is printed."""
        return self.scaled(self.yardstick.final)

    @property
    def seconds_per_epoch(self) -> float:
        return float(self.summary["train_seconds"]) / float(self.summary["epochs"])

    @property
    def method_name(self) -> str:
        """The method that the run was made as or, if none was chosen, the sampler's name (see ``RunConfig``).

        A planned run is of the planned method, also where another one with the same settings made it.
        """
        if self.planned is not None:
            return self.planned.method_name
        if self.config.get("method"):
            return str(self.config["method"])
        if self.config.get("output", {}).get("kind") == "adaptive":
            return ADAPTIVE
        sampler = self.config.get("sampler") or self.config.get("batch_sampler", EVERY_EXAMPLE_ONCE)
        return str(sampler["name"])

    @property
    def ending(self) -> str:
        """The last epoch of a finished run, and the reason why training ended there."""
        if not self.finished:
            return ""
        epochs = f"epoch {float(self.summary['epochs']):g}"
        stopped = self.summary.get("selection", {}).get("stopped_early")
        return f"{epochs}: validation no better" if stopped else f"{epochs}, as planned"

    @property
    def headline(self) -> str:
        """The main metric as text, such as ``test P@1 66.41 %``."""
        name = self.yardstick.final
        return f"{self.yardstick.label(name)} {self.yardstick.measure(name).text(self.metric(name))}"

    @property
    def divergence(self) -> float | None:
        """The KL divergence of softmax to proposal measured last, in nats; None if it is missing or not finite."""
        return self._diagnosed("kl")

    @property
    def recall(self) -> float | None:
        """The share of each row's ten most likely classes among its candidates, measured last; None if it was not."""
        return self._diagnosed("recall")

    def _diagnosed(self, measure: str) -> float | None:
        value = self.summary.get("diagnostics", {}).get(measure)
        return value if isinstance(value, float) else None

    def curve(self, cost: str) -> list[tuple[float, float]]:
        """Return (cost, headline on the watched split) of every evaluation; ``cost`` is epoch, train_seconds or step.

        Values are as stored; infinite values and nan are left out.
        """
        return [(spent, value) for _, spent, value in self.points(cost)]

    @property
    def kept_headline(self) -> float:
        """The headline on the watched split, as stored, at the evaluation whose weights were kept: the best or last."""
        step = self.summary.get("selection", {}).get("step")
        curve = self.curve("step")
        return next((value for at, value in curve if at == step), curve[-1][1])

    def points(self, cost: str, metric: str = "") -> list[tuple[float, float, float]]:
        """Return (epoch, cost, value of a metric) of every evaluation; without a metric, the one of ``curve``."""
        key = metric or self.yardstick.curve
        observed = ((record["epoch"], record[cost], float(record[key])) for record in self.of_kind("evaluation"))
        return [point for point in observed if math.isfinite(point[-1])]


def record_of(run: PlannedRun, refused: str = "") -> RunRecord:
    """Return the record of a planned run, which may have no folder yet. ``refused``: as that of ``RunRecord``."""
    return RunRecord(run.config.run_dir, planned=run.config, refused=refused)


def _prepared_checksum(dataset: str) -> str | None:
    """Return the checksum of a card's prepared data; None if there are none that are whole."""
    try:
        manifest = read_manifest(prepared_dir(dataset))
    except DataError:
        return None
    return None if manifest is None else manifest.checksum


def all_records(results_dir: Path) -> list[RunRecord]:
    """Return every run of a results folder, in the order of run ids; damaged folders are named on standard error."""
    paths = {
        path.parent for name in ("summary.json", "metrics.jsonl") for path in (results_dir / "runs").glob(f"*/{name}")
    }
    records = [RunRecord(path) for path in sorted(paths)]
    return [record for record in records if record.summary]


def how_to_prepare(run: PlannedRun) -> str | None:
    """Return the command that prepares the run's data, or None if they are at hand or the run prepares them itself."""
    dataset = run.config.dataset
    if not isinstance(dataset, CardConfig):
        return None
    card = load_card(dataset.name)
    try:
        if card.embedded or read_manifest(prepared_dir(dataset.name)) is not None:
            return None
    except DataError:  # damaged
        return f"{PREPARE} {dataset.name} --force"
    before = f"{card.base} " if card.base is not None else ""
    return f"{PREPARE} {before}{dataset.name}"


def why_skipped(run: PlannedRun) -> str | None:
    """Return ``skipped: REASON`` if data, a library or instructions are missing that the run needs, or None."""
    try:
        run.config.model.check_installed()
        run.config.check_processor()
    except (NotInstalled, ProcessorLacks) as error:
        return error.status
    if run.config.hardware.name != CPU:
        from runner.machine.device import why_no_gpu  # it imports torch

        if why := why_no_gpu(run.config):
            return f"skipped: {why}"
    command = how_to_prepare(run)
    return f"{NO_DATA} ({command})" if command else None


def status_of(run: PlannedRun) -> str:
    """Return the run's status; ``skipped: REASON`` if it is not finished and cannot be made here."""
    record = record_of(run)
    if record.status in (FINISHED, OLDER, DAMAGED, CHANGED, OTHER_DATA):
        return record.status
    return why_skipped(run) or record.status
