"""Turn hidden states into losses and gradients by a class matrix and proposals; read classes from a trained one."""
