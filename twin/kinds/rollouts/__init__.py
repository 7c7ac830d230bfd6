"""Rollouts: requests of many lengths on inference engines, played one by one.

Engines are stepped by events (who joins, who is done), not by tokens; a request's turns, its
environment, the memory of its engine and the end of an iteration are events of one clock."""

from __future__ import annotations

from twin.kinds.rollouts.answer import RolloutAnswer, check, rollout
from twin.kinds.rollouts.draw import draw
from twin.kinds.rollouts.pace import StepTable, step_table
from twin.kinds.rollouts.play import play
from twin.kinds.rollouts.types import Iteration, Load, Place, Rules, Sample, Trace

__all__ = [
    "Iteration",
    "Load",
    "Place",
    "RolloutAnswer",
    "Rules",
    "Sample",
    "StepTable",
    "Trace",
    "check",
    "draw",
    "play",
    "rollout",
    "step_table",
]
