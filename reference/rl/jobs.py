"""What an environment does after a message of the assistant, as one piece of work.

It is a function of values (task, state, dialogue), so that it may run in any process, twice, or
again after a crash, with one outcome. This file needs no torch: workers load it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from reference.agentic.environment import Verdict
from reference.agentic.play import Course
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
    course = Course(task.environment, job.state, job.dialog)
    over = job.mode != "judge" and course.hear()
    said = course.dialog.messages[len(job.dialog.messages) :]
    if not over and job.mode == "go_on":
        return Done(course.state, said)
    return Done(course.state, said, task.environment.judge(course.state, course.dialog), over)
