"""Inference: what an engine takes for prompts and for tokens, from the same layers, kernels and
links as training, and how many sequences it has room for."""

from __future__ import annotations

from twin.inference.engine import CAUSES, Cause, Engine, Pass, engine, wrong
from twin.inference.kv_capacity import Room, cached_bytes, room
from twin.inference.pace import Pace, Request, pace
from twin.inference.seconds import decode_pass, prefill_pass

__all__ = [
    "CAUSES",
    "Cause",
    "Engine",
    "Pace",
    "Pass",
    "Request",
    "Room",
    "cached_bytes",
    "decode_pass",
    "engine",
    "pace",
    "prefill_pass",
    "room",
    "wrong",
]
