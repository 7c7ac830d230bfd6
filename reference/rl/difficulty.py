"""How hard tasks are for a model: some responses to each, nothing learned.

K2 chooses prompts by the pass@k of the fine-tuned model (report, section 3.2.1). What is measured
here is written to a file that `prompts.known` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reference.rl.prompts import History
from reference.rl.session import Session, asked_for
from reference.rl.tasks import Task
from reference.rl.temperature import temperature
from twin.errors import Problem, UsageError

VERSION = 1
"""Of the file."""


def measure(session: Session) -> History:
    """What the first weights do with every task, `rollout.responses` times, until all are over."""
    found, rollout = History(), session.rollout
    rollout.spec = rollout.spec.model_copy(update={"tokens": None, "patience": None, "slice": 0})
    rollout.temperature = temperature(session.spec.temperature, 0)
    tasks, count = list(session.tasks.values()), session.spec.prompts.count
    for first in range(0, len(tasks), count):
        groups = [asked_for(session, task) for task in tasks[first : first + count]]
        responses = [one for asked in groups for one in asked.responses]
        rollout.run(responses)
        rollout.rest(responses)
        for one in responses:
            if one.ended != "failed" and one.verdict is not None:
                found.add(one.task, 1, int(one.verdict.success))
    return found


def document(history: History, made: Mapping[str, Task] | None = None) -> dict[str, Any]:
    """The same as JSON, with pass@1 and pass@k for all k that were tried; of the tasks that are
    `made`, means by kind and level, and by tag."""
    tasks: dict[str, Any] = {}
    for name, tries in history.tries.items():
        shares = [history.pass_at(k, name) for k in range(1, tries + 1)]
        tasks[name] = {"tries": tries, "right": history.right[name], "pass_at": shares}
    return {"version": VERSION, "tasks": tasks, "means": _means(tasks, made or {})}


def _means(tasks: Mapping[str, Any], made: Mapping[str, Task]) -> dict[str, Any]:
    """How many tasks a kind and level, and a tag, have, and their mean pass@k."""
    rows: dict[str, list[list[float]]] = {}
    for name, one in tasks.items():
        if name in made:
            for tag in dict.fromkeys((f"{made[name].kind} {made[name].level}", *made[name].tags)):
                rows.setdefault(tag, []).append(one["pass_at"])
    found: dict[str, Any] = {}
    for tag, some in sorted(rows.items()):
        each = zip(*some, strict=False)  # of responses whose environment failed there are fewer
        found[tag] = {"tasks": len(some), "pass_at": [sum(one) / len(some) for one in each]}
    return found


def known(file: str | None) -> History:
    """What a file says of tasks; nothing without one. Raises UsageError TW647."""
    found = History()
    if file is None:
        return found
    try:
        read = json.loads(Path(file).read_text(encoding="utf-8"))
        for name, one in _tasks(read):
            found.add(name, int(one["tries"]), int(one["right"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"`{file}` does not say how hard tasks are: {error}"
        fix = "`python -m reference.rl CONFIG --measure FILE` writes one"
        raise UsageError([Problem("TW647", "prompts.known", message, fix)]) from None
    return found


def _tasks(read: Any) -> Iterable[tuple[str, Any]]:
    if read["version"] != VERSION:
        raise ValueError(f"version {read['version']}")
    return read["tasks"].items()
