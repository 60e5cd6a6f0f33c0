"""Make the runs of a sweep: plan all of its jobs, launch those that can run, and compare them at the end."""
