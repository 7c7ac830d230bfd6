"""Rollouts: requests of many lengths on inference engines, played one by one.

Engines are stepped by events (who joins, who is done), not by tokens; a request's turns, its
environment, the memory of its engine and the end of an iteration are events of one clock."""

from __future__ import annotations

from twin.rl.rollout.answer import RolloutAnswer, check, rollout
from twin.rl.rollout.draw import draw
from twin.rl.rollout.pace import StepTable, step_table
from twin.rl.rollout.play import play
from twin.rl.rollout.types import Iteration, Load, Place, Rules, Sample, Trace

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
