"""A generator as a further judge of any environment: a criterion that no program can check.

    judged = Judged(item.environment, generator, "Is the tone friendly?")

It is asked only where every other criterion holds, so that it can refuse and never rescue.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from reference.agentic.environment import Environment, Verdict
from reference.dialog import Call, Dialog
from reference.evaluate.scorers.scorer import Judging
from reference.evaluate.scorers.verifier import SCORER
from reference.generate.generator import Generator


@dataclass(frozen=True, slots=True)
class Judged:
    """An environment with one more judge."""

    world: Environment[Any]
    judge_by: Generator = field(compare=False)
    question: str = ""
    """What is asked of the answer, beside the user's own words."""

    @property
    def opening(self) -> Dialog:
        """That of the world."""
        return self.world.opening

    def start(self) -> Any:
        """The world before the first call."""
        return self.world.start()

    def call(self, state: Any, call: Call) -> tuple[Any, str]:
        """As the world does."""
        return self.world.call(state, call)

    def reply(self, state: Any, dialog: Dialog) -> str | None:
        """As the world does."""
        return self.world.reply(state, dialog)

    def judge(self, state: Any, dialog: Dialog) -> Verdict:
        """The world's criteria, and `judge`. Raises the generator's errors."""
        found = self.world.judge(state, dialog)
        if not found.success:
            return replace(found, checks={**found.checks, "judge": False})
        asked = "\n".join(one.content for one in dialog.messages if one.role == "user")
        row = {"prompt": f"{asked}\n\n{self.question}".strip()}
        (score,) = SCORER.judge(Judging([row], [dialog.messages[-1].content], self.judge_by))
        causes = () if score == 1 else ("not judge",)
        return Verdict({**found.checks, "judge": score == 1}, causes)
