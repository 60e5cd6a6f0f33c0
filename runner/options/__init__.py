"""Hold what may be chosen for a run: settings as dataclasses, and how plain values become them."""
