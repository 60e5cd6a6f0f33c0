"""Hold the class matrix: score classes, learn from losses, rank; one engine for each kind of device."""
