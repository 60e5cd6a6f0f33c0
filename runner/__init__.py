"""Experiment runner for networks with huge output layers."""

__version__ = "0.1.0"
