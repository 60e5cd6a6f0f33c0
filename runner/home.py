"""Say where files are that are not code: around the package in a checkout, inside it where a wheel was installed.

``REPOSITORY``: the folder that holds the package: the checkout, or where packages are installed.
``IS_CHECKOUT``: whether the package runs from a checkout, perhaps by an editable installation.
``FILES``: the folder of what is only read: conf/, datasets/ (cards, WordNet) and results/published/.
"""

from pathlib import Path

_SHIPPED = Path(__file__).resolve().parent / "shipped"  # setup.py puts it into wheels
REPOSITORY = Path(__file__).resolve().parents[1]
IS_CHECKOUT = not _SHIPPED.is_dir()
FILES = REPOSITORY if IS_CHECKOUT else _SHIPPED
CONF = FILES / "conf"


def written(name: str) -> Path:
    """Return the absolute path of a folder that is written to: in the checkout, or else in the current folder."""
    return REPOSITORY / name if IS_CHECKOUT else Path(name).absolute()
