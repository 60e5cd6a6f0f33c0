"""Compare runs across samplers, models and settings: ``python -m runner.compare``."""
