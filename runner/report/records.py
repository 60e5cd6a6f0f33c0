"""A run as its folder tells it: status, numbers and observations. Nothing here is computed otherwise."""

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.data import CardConfig
from runner.data.card import load_card
from runner.data.places import prepared_dir
from runner.data.store import read_manifest
from runner.errors import ProcessorLacks
from runner.run_folder import RunFolder, read_json
from runner.tables import PlannedRun

FINISHED = "finished"
NOT_RUN = "not run"
UNFINISHED = "unfinished"
NO_DATA = "skipped: data not prepared"


@dataclass(frozen=True)
class RunRecord:
    """What one run folder holds."""

    path: Path

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        return read_json(self.path / "summary.json") or {}

    @functools.cached_property
    def provenance(self) -> dict[str, Any]:
        return read_json(self.path / "provenance.json") or {}

    @functools.cached_property
    def observations(self) -> list[dict[str, Any]]:
        return RunFolder(self.path).observations()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.observations if record.get("kind") == kind]

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def short_id(self) -> str:
        """The hash at the end of the run id: unique, and short enough for a table cell."""
        return self.run_id.rpartition("-")[2]

    @property
    def finished(self) -> bool:
        return self.summary.get("status") == FINISHED

    @property
    def status(self) -> str:
        """``finished``, ``failed``, ``diverged``, ``unfinished`` (stopped or still going) or ``not run``."""
        status = self.summary.get("status")
        if status is None or str(status).startswith("skipped"):
            return NOT_RUN  # whether data are still missing is for status_of to say
        return UNFINISHED if status in ("running", "interrupted") else str(status)

    @property
    def error(self) -> str:
        return str(self.summary.get("error", ""))

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.summary.get("config", {})
        return config

    def metric(self, name: str) -> float:
        return float(self.summary["metrics"].get(name, float("nan")))  # fewer than 5 classes have no p@5

    @property
    def seconds_per_epoch(self) -> float:
        return float(self.summary["train_seconds"]) / float(self.summary["epochs"])

    @property
    def method_name(self) -> str:
        """The sampler, told apart by what makes another method of it: ``nce``, ``full_bf16``, ``lsh_label_shared``."""
        sampler = self.config["sampler"]
        name = str(sampler["name"])
        if name == "log_uniform" and self.config["loss"]["name"] == "nce":
            return "nce"
        if self.summary.get("chosen", {}).get("sampler.products", sampler.get("products")) == "bf16":
            return f"{name}_bf16"
        return f"{name}_shared" if name.startswith("lsh") and sampler.get("shared") else name

    @property
    def ending(self) -> str:
        """What ended the training of a finished run, and when."""
        if not self.finished:
            return ""
        epochs = f"epoch {float(self.summary['epochs']):g}"
        stopped = self.summary.get("selection", {}).get("stopped_early")
        return f"{epochs}: validation no better" if stopped else f"{epochs}, as planned"

    @property
    def models_text(self) -> bool:
        return "valid/ppl" in self.summary.get("metrics", {})

    @property
    def headline(self) -> str:
        """The metric one looks at first, for people."""
        if self.models_text:
            return f"test perplexity {self.metric('test/ppl'):.2f}"
        return f"P@1 {100 * self.metric('test/p@1'):.2f} %"

    @property
    def divergence(self) -> float | None:
        """KL(softmax to proposal) as measured last, in nats; None where it was not, or is not finite."""
        kl = self.summary.get("diagnostics", {}).get("kl")
        return kl if isinstance(kl, float) else None

    def curve(self, cost: str) -> list[tuple[float, float]]:
        """(``cost``: epoch, train_seconds or step; what evaluations during training measure) of every evaluation.

        P@1 on the fixed test subset, a fraction; of language models, perplexity of the validation text, where a float
        holds it.
        """
        return [(spent, value) for _, spent, value in self.points(cost)]

    def points(self, cost: str) -> list[tuple[float, float, float]]:
        """As ``curve``, after the epoch of each evaluation."""
        key = "valid/ppl" if self.models_text else "test_subset/p@1"
        observed = ((record["epoch"], record[cost], float(record[key])) for record in self.of_kind("evaluation"))
        return [point for point in observed if math.isfinite(point[-1])]


def record_of(run: PlannedRun) -> RunRecord:
    return RunRecord(run.config.run_dir)


def all_records(results_dir: Path) -> list[RunRecord]:
    """Every run folder of a results folder, by run id."""
    return [RunRecord(path.parent) for path in sorted((results_dir / "runs").glob("*/summary.json"))]


def how_to_prepare(run: PlannedRun) -> str | None:
    """The command that gets the run's data, or None where they are at hand or the run prepares them."""
    dataset = run.config.dataset
    if not isinstance(dataset, CardConfig):
        return None
    card = load_card(dataset.name)
    if card.embedded or read_manifest(prepared_dir(dataset.name)) is not None:
        return None
    before = f"{card.base} " if card.base is not None else ""
    return f"python scripts/prepare_dataset.py {before}{dataset.name}"


def why_skipped(run: PlannedRun) -> str | None:
    """``skipped: ...`` where the run can not be made here: its data are missing, or instructions of the processor."""
    try:
        run.config.sampler.check_processor()
    except ProcessorLacks as error:
        return error.status
    command = how_to_prepare(run)
    return f"{NO_DATA} ({command})" if command else None


def status_of(run: PlannedRun) -> str:
    """The run's status; ``skipped: ...`` where it is not finished and can not be made here."""
    record = record_of(run)
    if record.status == FINISHED:
        return FINISHED
    return why_skipped(run) or record.status
