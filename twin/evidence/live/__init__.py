"""The live twin: predictions that are sealed before a run, and the run held against them while it
runs.

`seal` makes a prediction a file that nobody changes unnoticed, `seals` keeps such files with their
checks, `follower` reads a trainer's log while it is written, and `track` is what it says.
"""

from __future__ import annotations

from twin.evidence.live.check import Check, HitRate
from twin.evidence.live.follower import Follower, follow
from twin.evidence.live.seal import Seal
from twin.evidence.live.seals import Shelf, seals_folder, shelf
from twin.evidence.live.track import Track

__all__ = [
    "Check",
    "Follower",
    "HitRate",
    "Seal",
    "Shelf",
    "Track",
    "follow",
    "seals_folder",
    "shelf",
]
