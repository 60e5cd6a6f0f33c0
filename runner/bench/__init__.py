"""Timing the output layer: the step of every method, row policies of the optimizer, refreshes of hash tables.

``scripts/bench.py`` is the front. One module each: methods by name, contenders, PyTorch baselines, workload,
measurement, the machine's own limits, arithmetic, reports (``output_layer``, ``rows``, ``refresh``), Markdown.
"""
