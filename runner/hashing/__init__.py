"""Locality-sensitive hashing shared by class samplers and, later, by samplers of training examples."""

from runner.hashing.dwta import Dwta
from runner.hashing.simhash import SimHash
from runner.hashing.tables import BucketTables

__all__ = ["HASH_FAMILIES", "BucketTables", "Dwta", "SimHash"]

HASH_FAMILIES: dict[str, type[Dwta] | type[SimHash]] = {"dwta": Dwta, "simhash": SimHash}
