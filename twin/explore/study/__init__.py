"""Studies: questions that take many answers of the fast path. Which changed inputs make the
difference (`attribution`), which assumed numbers matter (`influence`), and which nearby plan fits
(`nearest_fit`)."""

from __future__ import annotations

from twin.answers.nearest import Suggestion, nearest_fit
from twin.explore.study.attribution import Attribution, Cause, attribution
from twin.explore.study.influence import Influence, influence

__all__ = [
    "Attribution",
    "Cause",
    "Influence",
    "Suggestion",
    "attribution",
    "influence",
    "nearest_fit",
]
