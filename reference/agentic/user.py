"""The user of a simulated dialogue: says goals, answers questions, ends it.

A generator speaks for the user. It sees what the two say to each other, and neither calls nor
results nor reasoning. Rules speak by the skill `user`; a model by the words of the persona.
"""

from __future__ import annotations

import re
from typing import Any, Final

from reference.agentic.tasks.task import Task
from reference.dialog import Dialog, Message
from reference.generate.request import Request, Sampling

END: Final = "<END>"
"""What a user says who is done; never shown to the agent."""
_REASONING: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def visible(text: str) -> str:
    """What a user sees of a message: without reasoning."""
    return _REASONING.sub("", text).strip()


def request_of(task: Task, dialog: Dialog) -> Request:
    """What the one who plays the user is asked: the dialogue with the roles turned round."""
    turns = [Message("system", _brief(task))]
    for message in dialog.messages:
        if message.role == "user":
            turns.append(Message("assistant", message.content))
        elif message.role == "assistant" and not message.calls:
            turns.append(Message("user", visible(message.content)))
    metadata: dict[str, Any] = {
        "kind": "user",
        "goals": [one.words for one in task.goals],
        "slots": {slot: [one.label, one.text] for slot, one in task.said.items()},
        "patient": task.persona.patient,
        "end": END,
    }
    sampling = Sampling(seed=task.seed % 10**9, max_tokens=256)
    return Request(tuple(turns), (), sampling, metadata)


def _brief(task: Task) -> str:
    persona = task.persona
    known = "; ".join(f"{one.label}: {one.text}" for one in task.said.values())
    goals = " Then, once that is done: ".join(one.words for one in task.goals)
    return (
        f"You are {persona.name}, a customer, and you talk in a {persona.style} way with an "
        f"assistant. You want this: {goals} You know only this: {known}. Say a value only when it "
        "is asked for or was in your first words. You cannot do anything yourself and know nothing "
        f"else. When all is done or cannot be done, answer {END} and nothing else."
    )
