"""Check what plugins hand over, once, where it comes in: behind the door, kernels trust it."""
