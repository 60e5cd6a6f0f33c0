"""Write events to a prepared folder.

The folder holds ``items.npy`` (E,) int32, ``indptr.npy`` (U+1,) int64 and ``items.txt``, which has the id of each item
in a line of its own. `runner/data/events.py` states how users, events and items are ordered.

Legend: E events, U users.
"""

from pathlib import Path

from runner.data.download import hash_file
from runner.data.events import Events, arrange
from runner.data.manifests import SequencesManifest
from runner.data.store import ITEM_NAMES, ColumnWriter, combine


def write_events(
    folder: Path,
    events: Events,
    *,
    name: str,
    variant: str,
    sources: dict[str, str],
    notes: list[str],
    num_read: int,
    keep_unseen: bool = False,
) -> SequencesManifest:
    """Order the events and write them; ``num_read`` is how many the file has, before filters."""
    log = arrange(events, keep_unseen=keep_unseen)
    digests = []
    for file, dtype, array in (("items.npy", "<i4", log.items_E), ("indptr.npy", "<i8", log.indptr_U1)):
        column = ColumnWriter(folder / file, dtype)
        with column.file:
            column.append(array)
            digests.append(column.finish())
    (folder / ITEM_NAMES).write_bytes("".join(f"{item}\n" for item in log.item_names).encode())
    return SequencesManifest(
        name=name,
        variant=variant,
        num_users=len(log.indptr_U1) - 1,
        num_classes=len(log.item_names),
        num_events=len(log.items_E),
        events_read=num_read,
        checksum=combine(*digests, hash_file(folder / ITEM_NAMES)),
        sources=sources,
        notes=notes,
    )
