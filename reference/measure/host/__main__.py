"""Counts of the host: `python -m reference.measure.host CONFIG FILE`.

Trains a few steps of a configuration of `reference.train`, and counts one of them. Seconds of what
is counted are those of `python -m reference.measure --only host`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from reference.measure.host.counting import count


def main() -> None:
    """Read the words and write the file that they ask for."""
    parser = argparse.ArgumentParser(description="Count what the host of a step does.")
    parser.add_argument("config", help="a configuration of reference.train")
    parser.add_argument("file", type=Path, help="write the calls of one step to this file")
    words = parser.parse_args()
    words.file.write_text(json.dumps(count(words.config), indent=1))


if __name__ == "__main__":
    main()
