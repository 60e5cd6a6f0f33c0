"""From run folders to tables, plots and one HTML page; and the plan that makes the runs they need."""
