"""Rank classes, items and words by the weights of a run: in a notebook by ``load_run``, or by ``runner.predict``."""

from runner.ranking.loaded import LoadedRun, load_run

__all__ = ["LoadedRun", "load_run"]
