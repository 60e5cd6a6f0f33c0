"""Convert logs of interactions to a prepared folder; `runner/data/events.py` states which events stay."""

import sys
from collections.abc import Mapping
from pathlib import Path

from runner.data.card import SequencesCard, differences
from runner.data.download import hash_file
from runner.data.events import Filters, by_user, core, require_events, without_copies, without_repeats
from runner.data.layouts import SequencesLayout
from runner.data.manifests import SequencesManifest
from runner.data.read_events import LogColumns, Read, read_events, read_users
from runner.data.write_events import write_events


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
    manifest = _write(
        read,
        card.filters,
        folder,
        drop_copies=False,
        name=card.name,
        variant=layout.name,
        path=path,
        sources={path.name: hash_file(path)},
    )
    counts = {
        "num_users": manifest.num_users, "num_items": manifest.num_classes, "num_events": manifest.num_events,
    }  # fmt: skip
    manifest.notes.extend(differences(card.name, card.expected, counts))
    return manifest


def convert_own(path: Path, folder: Path, *, name: str, columns: LogColumns, filters: Filters) -> SequencesManifest:
    """Convert a user's log, a CSV or TSV file with a header, to a prepared folder. Raises DataError."""
    read = read_events(path, columns, separator=None, header=True, quoted=True, min_rating=filters.min_rating)
    return _write(
        read, filters, folder, drop_copies=True, name=name, variant="given", path=path, sources={str(path): ""}
    )


def _write(
    read: Read,
    filters: Filters,
    folder: Path,
    *,
    drop_copies: bool,
    name: str,
    variant: str,
    path: Path,
    sources: dict[str, str],
) -> SequencesManifest:
    """Apply the filters and write what is left. Raises DataError if nothing is."""
    notes = []
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
        print(f"{name}: {note}", file=sys.stderr)
    return write_events(
        folder, events, name=name, variant=variant, sources=sources, notes=notes, num_read=read.num_read
    )
