"""Time the output layer: every method's step, the optimizer's row policies, and refreshes of hash tables.

``scripts/bench.py`` is the command. The methods' names, the contenders, the PyTorch and TensorFlow baselines, the
workload, the measurement, the machine's limits, the arithmetic and each report (``output_layer``, ``rows``,
``refresh``, ``sampling``, ``language_step``, ``kernel_error``, ``example_steps``, ``read_log``) have a module each.
``settings`` says what each can be told, and ``runner.report.pages.bench_tables`` lays reports out.
"""
