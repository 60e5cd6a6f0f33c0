"""Index structures over any set of vectors: hash functions and tables, codebooks, random features, sum trees."""

from runner.structures.dwta import Dwta
from runner.structures.simhash import SimHash
from runner.structures.tables import BucketTables

__all__ = ["HASH_FAMILIES", "BucketTables", "Dwta", "SimHash"]

HASH_FAMILIES: dict[str, type[Dwta] | type[SimHash]] = {"dwta": Dwta, "simhash": SimHash}
