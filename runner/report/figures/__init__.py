"""Draw figures from numbers, into files."""

import os

# Notebooks export a backend of their own. Importing matplotlib fails where that is not installed, or where somebody's
# matplotlibrc is not UTF-8. What that file says does not count anyway (``style.styled``).
os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": os.devnull}
