"""Say what memory a planned run will take at its peak: what earlier runs took, or a guess from the sizes of data."""

import math
from collections.abc import Sequence

from runner.data import CardConfig, SyntheticLogConfig, SyntheticXcConfig
from runner.data.shared.card import Size
from runner.data.shared.cards import load_card
from runner.data.shared.places import prepared_dir
from runner.data.shared.store import read_manifest
from runner.errors import ConfigError, DataError
from runner.report.numbers.records import RunRecord
from runner.report.spec.grids import PlannedRun
from runner.training.needs import Sizes, needed_bytes

_PROCESS_BYTES = 650 * 2**20  # what finished runs on the smallest sets took: Python, torch, Numba and their code


def expected_memory(run: PlannedRun, alike: Sequence[RunRecord]) -> str:
    """Return the expected peak memory as text: ``1.2 GiB`` as the largest of the earlier runs that are ``alike`` took,
    ``~1.2 GiB`` if it is a guess, ``?`` if the sizes of the data are unknown."""
    if alike:
        return _text(max(float(record.summary["peak_rss_mb"]) for record in alike) * 2**20)
    sizes = None if run.config.sampler is None else _sizes(run)
    if sizes is None:
        return "?"
    try:
        needed = sum(needed_bytes(run.config, sizes).values())
    except ConfigError:  # a BERT whose checkpoint is missing: the run will say so
        return "?"
    return f"~{_text(_PROCESS_BYTES + needed)}"


def _text(size: float) -> str:
    return f"{math.ceil(size / 2**30 * 10) / 10:,.1f} GiB"


def _sizes(run: PlannedRun) -> Sizes | None:
    """Return what is known of the data's sizes before they are read: from the manifest or, before it, from the card."""
    dataset = run.config.dataset
    if isinstance(dataset, SyntheticXcConfig):
        shape = dataset.shape
        return Sizes(classes=shape.num_classes, features=shape.num_features, rows=shape.num_train)
    if isinstance(dataset, SyntheticLogConfig):
        return Sizes(classes=dataset.num_items, features=0, rows=dataset.num_users)
    if not isinstance(dataset, CardConfig):
        return None
    return _of_size(_prepared_size(dataset.name)) or _of_size(load_card(dataset.name).size)


def _prepared_size(name: str) -> Size | None:
    try:
        manifest = read_manifest(prepared_dir(name))
    except DataError:
        return None
    return None if manifest is None else manifest.size


def _of_size(size: Size | None) -> Sizes | None:
    if size is None or size.classes is None:
        return None
    rows = size.users if size.unit == "events" else size.train
    return None if rows is None else Sizes(classes=size.classes, features=size.features or 0, rows=rows)
