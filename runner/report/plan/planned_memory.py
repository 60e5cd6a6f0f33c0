"""Say what memory a planned run will take at its peak: what earlier runs took, or a guess from the sizes of data."""

import math
from collections.abc import Sequence

from runner.data import CardConfig, SyntheticLogConfig, SyntheticXcConfig
from runner.data.card import Card, PairsCard, RowsCard, SequencesCard, TextCard, load_card
from runner.data.manifests import PairsManifest, RowsManifest, SequencesManifest, TextManifest
from runner.data.places import prepared_dir
from runner.data.store import read_manifest
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
    return _of_manifest(dataset.name) or _of_card(load_card(dataset.name))


def _of_manifest(name: str) -> Sizes | None:
    try:
        manifest = read_manifest(prepared_dir(name))
    except DataError:
        return None
    if isinstance(manifest, RowsManifest):
        return Sizes(classes=manifest.num_classes, features=manifest.num_features, rows=manifest.train.rows)
    if isinstance(manifest, TextManifest):
        return Sizes(classes=manifest.num_classes, features=0, rows=manifest.train.tokens)
    if isinstance(manifest, SequencesManifest):
        return Sizes(classes=manifest.num_classes, features=0, rows=manifest.num_users)
    if isinstance(manifest, PairsManifest):
        return Sizes(classes=manifest.num_classes, features=0, rows=manifest.train)
    return None


def _of_card(card: Card) -> Sizes | None:
    if isinstance(card, RowsCard):
        shape = card.expected
        return Sizes(classes=shape.num_classes, features=shape.num_features, rows=shape.num_train)
    if isinstance(card, TextCard) and card.expected.train_tokens is not None:
        return Sizes(classes=card.expected.num_classes, features=0, rows=card.expected.train_tokens)
    if isinstance(card, PairsCard):
        return Sizes(classes=card.expected.num_classes, features=0, rows=card.expected.num_train)
    if isinstance(card, SequencesCard):
        items, users = card.expected.num_items, card.expected.num_users
        return None if items is None or users is None else Sizes(classes=items, features=0, rows=users)
    return None
