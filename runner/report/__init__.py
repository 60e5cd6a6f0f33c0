"""This package turns run folders into tables, plots and one HTML page, and plans the runs that those need."""
