"""Download data sets (or take them from a folder), verify and convert them; `--list` shows all of them."""

import argparse
import os
import sys
from pathlib import Path

from runner.config import explain
from runner.data.shared.card import Card
from runner.data.shared.cards import card_names, load_card
from runner.data.shared.places import PREPARE, prepared_dir
from runner.data.shared.prepare import prepare_card
from runner.data.shared.store import read_manifest
from runner.errors import DataError, RunnerError
from runner.machine.terminal import print_anything


def main() -> int:
    """Prepare and list what is asked for; return the exit status (1 if a set could not be prepared)."""
    print_anything()
    parser = argparse.ArgumentParser(prog=PREPARE, description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets to prepare (see --list)")
    parser.add_argument(
        "--from",
        dest="given",
        metavar="DIR",
        default=os.environ.get("DATA_MIRROR"),
        help="take files from DIR/NAME or DIR instead of downloading (default: $DATA_MIRROR)",
    )
    parser.add_argument("--list", action="store_true", help="list data sets, their size and state")
    parser.add_argument("--force", action="store_true", help="prepare data sets again even if they are prepared")
    arguments = parser.parse_args()
    if not arguments.list and not arguments.names:
        parser.error("name a data set, or use --list")
    failed = False
    for name in arguments.names:
        try:
            manifest = prepare_card(
                name, given=Path(arguments.given) if arguments.given else None, force=arguments.force
            )
        except KeyboardInterrupt:
            print("interrupted: the same command continues", file=sys.stderr)
            return 130
        except (RunnerError, OSError) as error:
            print(f"error: {explain(error)}", file=sys.stderr)
            failed = True
            continue
        print(f"{name}: {manifest.variant}, {manifest.in_words()} in {prepared_dir(name)}")
    if arguments.list:
        try:
            print_list()
        except RunnerError as error:
            print(f"error: {explain(error)}", file=sys.stderr)
            return 1
    return int(failed)


def print_list() -> None:
    """Print a line for each data set: name, size and state."""
    print(f"{'name':<18}{'train':>13}{'test':>11}  {'of':<7}{'features':>9}{'classes':>9}  state")
    for name in card_names():
        card = load_card(name)
        state = state_of(card)
        size = card.size
        train, test, features, classes = (
            "-" if count is None else f"{count:,}" for count in (size.train, size.test, size.features, size.classes)
        )
        print(f"{name:<18}{train:>13}{test:>11}  {size.unit:<7}{features:>9}{classes:>9}  {state}")


def state_of(card: Card) -> str:
    """Return whether a card's set is prepared, and if not, how it comes to be."""
    try:
        if read_manifest(prepared_dir(card.name)) is not None:
            return "prepared"
    except DataError:
        return "damaged, --force prepares it again"
    if card.embedded:
        return "at hand, prepared on first use"
    if card.base is not None:
        return f"derived from {card.base}, not prepared"
    return "not prepared"


if __name__ == "__main__":
    sys.exit(main())
