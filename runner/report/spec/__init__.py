"""Read what tables, figures and their grids of runs ask for, from conf/table."""
