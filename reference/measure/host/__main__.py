"""Counts and items of the host: `python -m reference.measure.host CONFIG --counts F --items F`.

`--counts` trains a few steps of a configuration of `reference.train` and counts one of them;
`--items` times what a step is made of, in seconds, without a step.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from reference.measure.host.counting import count
from reference.measure.host.items import items


def main() -> None:
    """Read the words and write the files that they ask for."""
    parser = argparse.ArgumentParser(description="Count and time what the host of a step does.")
    parser.add_argument("config", nargs="?", help="a configuration of reference.train")
    parser.add_argument("--counts", type=Path, help="write the calls of one step to this file")
    parser.add_argument("--items", type=Path, help="write the seconds of each item to this file")
    words = parser.parse_args()
    if words.counts and not words.config:
        parser.error("--counts needs a configuration")
    if words.items:
        words.items.write_text(json.dumps(items(), indent=1))
    if words.counts:
        words.counts.write_text(json.dumps(count(words.config), indent=1))


if __name__ == "__main__":
    main()
