"""Plan the runs that tables need, estimate their time and memory, and make them."""
