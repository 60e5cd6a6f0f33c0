"""Convert logs of interactions to a prepared folder; `runner/data/sequences/events.py` states which events stay."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from runner.data.sequences.card import SequencesCard, SequencesLayout
from runner.data.sequences.dataset import SequencesDataset, SequencesManifest
from runner.data.sequences.events import Filters, by_user, core, require_events, without_copies, without_repeats
from runner.data.sequences.logs import LogColumns, Read, read_events, read_users
from runner.data.sequences.write import write_events
from runner.data.shared.cards import differences, origin_of
from runner.data.shared.manifests import Origin
from runner.data.shared.store import READ_ANEW, load_own


def convert(
    card: SequencesCard, layout: SequencesLayout, found: Mapping[str, tuple[Path, ...]], folder: Path
) -> SequencesManifest:
    """Convert a card's published file, in one of its layouts, to a prepared folder. Raises DataError.

    Exact copies of events stay, because the published counts contain them.
    """
    ((path,),) = found.values()
    if layout.users_in_lines:
        read = read_users(path)
    else:
        assert layout.user is not None
        assert layout.item is not None
        assert layout.time is not None
        read = read_events(
            path,
            LogColumns(user=layout.user, item=layout.item, time=layout.time, rating=layout.rating),
            separator=layout.separator,
            header=layout.header,
            quoted=False,
            min_rating=card.filters.min_rating,
        )
    manifest = _write(read, card.filters, folder, origin_of(card, layout, found), drop_copies=False, path=path)
    counts = {
        "num_users": manifest.num_users, "num_items": manifest.num_classes, "num_events": manifest.num_events,
    }  # fmt: skip
    manifest.notes.extend(differences(card, counts))
    return manifest


def load_own_log(path: Path, name: str, *, columns: LogColumns, filters: Filters) -> SequencesDataset:
    """Prepare a user's log once and open the result; the arguments are those of `convert_own`."""
    fill = partial(convert_own, path, name=name, columns=columns, filters=filters)
    return load_own("interactions", SequencesDataset, name, fill, {"data": path}, columns, filters, READ_ANEW)


def convert_own(path: Path, folder: Path, *, name: str, columns: LogColumns, filters: Filters) -> SequencesManifest:
    """Convert a user's log, a CSV or TSV file with a header, to a prepared folder. Raises DataError."""
    read = read_events(path, columns, separator=None, header=True, quoted=True, min_rating=filters.min_rating)
    if columns.time is None:
        read = replace(read, notes=(*read.notes, "there is no column of times: events count in the order of the file"))
    return _write(read, filters, folder, Origin.own(name, "given", {"data": path}), drop_copies=True, path=path)


def _write(
    read: Read, filters: Filters, folder: Path, origin: Origin, *, drop_copies: bool, path: Path
) -> SequencesManifest:
    """Apply the filters and write what is left. Raises DataError if nothing is."""
    notes = list(read.notes)
    if read.stripped:
        notes.append(f"{read.stripped:,} ids of users or items had blanks around them, which were removed")
    require_events(read.events, str(path), f"all {read.num_read:,} ratings are below min_rating={filters.min_rating}")
    events = by_user(read.events)
    if drop_copies:
        kept = without_copies(events)
        if len(kept) < len(events):
            notes.append(f"{len(events) - len(kept):,} events were copies (same user, item and time) and are left out")
        events = kept
    if filters.repeats == "first":
        events = without_repeats(events)
    count = len(events)
    events = core(events, filters.min_user, filters.min_item)
    limits = [f"{key}={value}" for key in ("min_user", "min_item") if (value := getattr(filters, key)) > 1]
    require_events(events, str(path), f"with {' and '.join(limits)} none of {count:,} events stays")
    for note in notes:
        print(f"{origin.name}: {note}", file=sys.stderr)
    return write_events(folder, events, origin, notes=notes, num_read=read.num_read)
