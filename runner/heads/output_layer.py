"""Keep the name by which plugins of version 0.1 know the class matrix; it is ``output.layer.Layer`` now."""

from runner.output.layer import Layer as OutputLayer

__all__ = ["OutputLayer"]
