"""What an environment does after a message of the assistant, as one piece of work.

It is a function of values (task, state, dialogue), so that it may run in any process, twice, or
again after a crash, with one outcome. This file needs no torch: workers load it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from reference.agentic.environment import Verdict
from reference.dialog import Dialog, Message
from reference.rl.tasks import Task

Mode = Literal["go_on", "last", "judge"]
"""Answer, and go on unless the user ends it; answer for the last time and judge; judge alone, since
the message was cut."""


@dataclass(frozen=True, slots=True)
class Job:
    """A dialogue that the assistant said the last words of, and what is to be done."""

    task: str
    state: Any
    dialog: Dialog
    mode: Mode


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it."""

    state: Any
    messages: tuple[Message, ...] = ()
    """What tools or the user said."""
    verdict: Verdict | None = None
    """None where the dialogue goes on."""
    over: bool = False
    """Whether the user ended it."""


def do(task: Task, job: Job) -> Done:
    """The outcome of a job. Raises what the environment does."""
    environment, state, dialog = task.environment, job.state, job.dialog
    if job.mode == "judge":
        return Done(state, (), environment.judge(state, dialog))
    said: list[Message] = []
    calls = dialog.messages[-1].calls
    for call in calls:
        state, told = environment.call(state, call)
        said.append(Message("tool", told, answers=call.id))
    reply = None if calls else environment.reply(state, dialog)
    over = not calls and reply is None
    if reply is not None:
        said.append(Message("user", reply))
    if not over and job.mode == "go_on":
        return Done(state, tuple(said))
    dialog = replace(dialog, messages=(*dialog.messages, *said))
    return Done(state, tuple(said), environment.judge(state, dialog), over)
