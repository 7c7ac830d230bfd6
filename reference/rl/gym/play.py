"""An item in the shape of Gymnasium's environments, without the package.

    play = Play("morse", level=1)
    observation, info = play.reset(seed=3)
    observation, reward, terminated, truncated, info = play.step(".-")

Observations and actions are text; an action spells out the template's markers where it calls tools
(`reference.text.template`). Everything follows from family, level and seed: the object holds a
dialogue and the world's state, which are values, and no chance of its own. The API is that of
Gymnasium 1.x (https://gymnasium.farama.org/api/env).
"""

from __future__ import annotations

from typing import Any

from reference.agentic.environment import Course, Verdict
from reference.dialog import Dialog, Message, calls_of
from reference.rl.gym.family import Item, item
from reference.text.template import parse_answer, segments_of

Step = tuple[str, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""


class Play:
    """One family and level; `reset` chooses the item."""

    def __init__(self, family: str, level: int = 1, *, steps: int = 8) -> None:
        self.family, self.level, self.steps = family, level, steps
        """Messages of the assistant, after which a dialogue is truncated."""
        self.item: Item | None = None
        self.dialog = Dialog(())
        self.state: Any = None
        self.over = False

    def reset(self, *, seed: int = 0) -> tuple[str, dict[str, Any]]:
        """Begin the item of a seed: what the model is told first, and its messages and tools.
        Raises UsageError TW650 for a level that is not there."""
        self.item = item(self.family, self.level, seed)
        self.dialog = self.item.environment.opening
        self.state, self.over = self.item.environment.start(), False
        return _shown(self.dialog.messages), self._info()

    def step(self, action: str | Message) -> Step:
        """The assistant's next message, and what is told of it. Rewards come at the end: 1 where
        every criterion of the verdict holds, else 0. Raises RuntimeError before `reset` and behind
        the end."""
        if self.item is None or self.over:
            raise RuntimeError("call reset first")
        world, before = self.item.environment, self.dialog.messages
        course = Course(world, self.state, self.dialog)
        if isinstance(action, str):
            action = parse_answer(segments_of(action), calls_of(before))
        course.say(action)
        terminated = course.hear()
        self.state, self.dialog = course.state, course.dialog
        turns = sum(message.role == "assistant" for message in self.dialog.messages)
        truncated = not terminated and turns >= self.steps
        self.over = terminated or truncated
        verdict = world.judge(self.state, self.dialog) if self.over else None
        reward = float(verdict is not None and verdict.success)
        told = _shown(self.dialog.messages[len(before) :])
        return told, reward, terminated, truncated, self._info(verdict)

    def _info(self, verdict: Verdict | None = None) -> dict[str, Any]:
        assert self.item is not None
        facts: dict[str, Any] = {"tags": self.item.tags, "tools": self.dialog.tools}
        if verdict is not None:
            facts |= {"checks": dict(verdict.checks), "causes": verdict.causes}
            facts["score"] = verdict.score
        return facts


def _shown(messages: tuple[Message, ...]) -> str:
    """What a model is told, without what it said."""
    return "\n".join(message.content for message in messages if message.role != "assistant")
