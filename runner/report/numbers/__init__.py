"""Take numbers from run folders: of a run, of its seeds, and of the cells of a table."""
