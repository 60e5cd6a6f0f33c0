"""Check the sampler contract, for ``python -m runner.check`` and for tests/contract."""
