"""Write events to a prepared folder.

The folder holds ``items.npy`` (E,) int32, ``indptr.npy`` (U+1,) int64 and ``items.txt``, which has the id of each item
in a line of its own. `runner/data/sequences/events.py` states how users, events and items are ordered.

Legend: E events, U users.
"""

from pathlib import Path

from runner.data.sequences.dataset import ITEM_NAMES, SequencesManifest
from runner.data.sequences.events import Events, arrange
from runner.data.shared.files import hash_file
from runner.data.shared.manifests import Origin, combine
from runner.data.shared.store import write_column


def write_events(
    folder: Path,
    events: Events,
    origin: Origin,
    *,
    notes: list[str],
    num_read: int,
    keep_unseen: bool = False,
) -> SequencesManifest:
    """Order the events and write them; ``num_read`` is how many the file has, before filters."""
    log = arrange(events, keep_unseen=keep_unseen)
    items = write_column(folder / "items.npy", "<i4", log.items_E)
    indptr = write_column(folder / "indptr.npy", "<i8", log.indptr_U1)
    (folder / ITEM_NAMES).write_bytes("".join(f"{item}\n" for item in log.item_names).encode())
    return SequencesManifest(
        **vars(origin),
        num_users=len(log.indptr_U1) - 1,
        num_classes=len(log.item_names),
        num_events=len(log.items_E),
        events_read=num_read,
        checksum=combine(items, indptr, hash_file(folder / ITEM_NAMES)),
        notes=notes,
    )
