"""Prepare data sets from a plain clone: the command ``python -m runner.prepare``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.prepare.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
