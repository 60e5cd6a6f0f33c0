"""Put the files that the runner reads, and that lie around the package in a checkout, into wheels: runner/shipped/.

Everything else about the package is in pyproject.toml, which cannot name files outside the package.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "conf/**/*.yaml",
    "conf/meanings.json",
    "conf/table/seconds.csv",
    "datasets/*/card.yaml",
    "datasets/*/*.txt.xz",  # the two WordNet sets
    "datasets/*/*_LICENSE.txt",
    "results/published/*.csv",
)


def shipped_files() -> list[str]:
    """Return the paths of the files, relative to this folder, in which every build runs."""
    return sorted(path.as_posix() for pattern in SHIPPED for path in Path().glob(pattern))


class BuildWithFiles(build_py):
    """Build the package with its files. An editable installation takes them from the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "runner", "shipped")
        shutil.rmtree(target, ignore_errors=True)  # an earlier build may have left files that are no more
        for name in shipped_files():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, target / name)

    def get_source_files(self) -> list[str]:
        """Return what a source distribution needs."""
        return [*super().get_source_files(), *shipped_files()]


setup(cmdclass={"build_py": BuildWithFiles})
