"""The log of a run: a JSON line per iteration, per optimizer step, and per event.

A line is counted when it is written, and a checkpoint knows how many there were: on resume the log
is cut back to that, so that it holds each iteration once however often the run was killed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from reference.disk import replace_synced
from reference.metrics import NAME, line_of, read_lines


@dataclass(frozen=True, slots=True)
class IterationMetrics:
    """A rollout with its updates. What differs between two runs of one configuration: `phases`,
    `waited_s` and `looked_s`."""

    iteration: int
    """From 1."""
    step: int
    """Optimizer steps so far."""
    version: int
    """Of the weights that wrote."""
    groups: int
    """Prompts whose responses were all finished, and learned."""
    left_out: int
    """Prompts that were finished and teach nothing: an environment failed."""
    open: int
    """Prompts that wait for the next iteration."""
    reward: float | None
    """Mean over the finished responses; null without any."""
    success: float | None
    """Share of them whose every criterion holds."""
    score: float | None
    """Mean share of criteria."""
    length: float | None
    """Mean tokens that the model wrote in a finished response."""
    longest: int
    ended: Mapping[str, int]
    """Finished responses by why they ended."""
    stale: float | None
    """Share of the finished responses' tokens that earlier weights wrote."""
    oldest: int
    """How many updates the oldest of them is behind."""
    entropy: float | None
    """Nats per learned token, before the first update."""
    log_ratio: float | None
    """Mean over responses, in nats: now against when they were written, before the updates."""
    mismatch: float | None
    """Largest difference of the two engines' log-probabilities of a token under the weights that
    wrote it, in nats: the error of their sums."""
    loss: float | None
    """The weighted sum that was descended in the last update."""
    temperature: float
    written: int
    """Tokens that the model wrote in this iteration."""
    computed: int
    """Tokens through the inference engine, those computed again included."""
    engine_steps: int
    answers: int
    """Of environments."""
    failures: int
    """Of environments."""
    waited_s: float
    """For environments while nothing else was done."""
    looked_s: float
    """For log-probabilities, a part of `train`."""
    phases: Mapping[str, float]
    """Seconds by phase: rollout, switch, train, update, wake."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean of each reward that is weighed."""
    agreement: float | None = None
    """Share of pairs of a right and a wrong response of which the critic prefers the right one."""


class RunLog:
    """The history of a run, in memory and in its folder. Use as a context manager."""

    def __init__(self, folder: Path | None, *, lines: int | None) -> None:
        """Begin, or go on behind so many lines."""
        self.count = 0
        self.iterations: list[IterationMetrics] = []
        self._file: TextIO | None = None
        kept: list[dict[str, Any]] = []
        if folder is not None:
            path = folder / NAME
            kept = read_lines(path)[:lines] if lines else []
            replace_synced(path, "".join(map(line_of, kept)))
            self._file = path.open("a", encoding="utf-8")
        for line in kept:
            self._recall(line)
        self.count = len(kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def iteration(self, facts: Mapping[str, Any]) -> IterationMetrics:
        """Append one iteration, whose fields these are."""
        made = IterationMetrics(**facts)
        self.iterations.append(made)
        self.write("iteration", facts)
        return made

    def write(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Append a line."""
        self.count += 1
        if self._file:
            self._file.write(line_of({"kind": kind, **facts}))
            self._file.flush()

    def sync(self) -> None:
        """Put all lines on disk: before a checkpoint that counts on them."""
        if self._file:
            os.fsync(self._file.fileno())

    def _recall(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "iteration":
            facts = {key: value for key, value in line.items() if key != "kind"}
            self.iterations.append(IterationMetrics(**facts))
