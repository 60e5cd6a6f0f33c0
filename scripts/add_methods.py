"""Write conf/method/NAME.yaml for each sampler that has no method of its name: a label, and a look that no other has.

The label, the caveat and the look are a beginning: edit them as you like. Files that exist are left alone.
"""

import argparse
import colorsys
import inspect
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner.home import CONF, REPOSITORY
from runner.methods.catalogue import known_methods, method_names
from runner.options.files import about
from runner.samplers import SAMPLERS

METHODS = CONF / "method"
CAVEAT = "not compared with other methods yet"


def unused_colour(used: list[str]) -> str:
    """Return the colour, dark enough to be seen on white, that is farthest from all others."""
    taken = [_rgb(colour) for colour in used]
    colours = itertools.product([hue / 36 for hue in range(36)], (0.25, 0.4), (0.5, 0.8))
    dark = [rgb for rgb in itertools.starmap(colorsys.hls_to_rgb, colours) if _luminance(rgb) < 0.3]
    red, green, blue = max(
        dark, key=lambda rgb: min(sum((a - b) ** 2 for a, b in zip(rgb, other, strict=True)) for other in taken)
    )
    return f"#{round(255 * red):02X}{round(255 * green):02X}{round(255 * blue):02X}"


def new_files() -> Iterator[tuple[Path, str]]:
    """Yield path and text of the method of each sampler that lacks one."""
    known = list(known_methods().values())
    colours = [method.colour for method in known]
    points = (n for n in itertools.count(9) if (n, 1, 0) not in [method.marker for method in known])
    dashes = (n for n in itertools.count(4) if (n, 1.5, 1, 1.5) not in [method.linestyle for method in known])
    for name in sorted({*SAMPLERS} - {*method_names()}):
        colours.append(unused_colour(colours))
        lines = [
            "# @package _global_", f"# {about(SAMPLERS[name])}", "defaults:", f"  - override /sampler: {name}",
            "method:", f"  name: {name}", f"  label: {name.replace('_', ' ').capitalize()}", f"  caveat: {CAVEAT}",
            f"  colour: {json.dumps(colours[-1])}", f"  marker: [{next(points)}, 1, 0]",
            f"  linestyle: [{next(dashes)}, 1.5, 1, 1.5]",
        ]  # fmt: skip
        yield METHODS / f"{name}.yaml", "\n".join(lines) + "\n"


def _luminance(rgb: tuple[float, float, float]) -> float:
    """Return about what share of white's light the colour has, as the eye weighs it."""
    return sum(weight * part**2.2 for weight, part in zip((0.2126, 0.7152, 0.0722), rgb, strict=True))


def _rgb(colour: str) -> list[float]:
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def main() -> int:
    argparse.ArgumentParser(
        description=inspect.cleandoc(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for path, text in new_files():
        path.write_text(text)
        print(path.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
