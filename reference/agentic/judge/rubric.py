"""The rubric, applied by a generator: rules count checkpoints, a model reads the dialogue."""

from __future__ import annotations

import json
import re
from typing import Final

from reference.agentic.tasks.task import Task
from reference.dialog import Dialog, Message
from reference.generate.generator import Generator
from reference.generate.request import Request, Sampling

_SCORE: Final = re.compile(r'"score"\s*:\s*([01](?:\.\d+)?)')


def rubric_score(judge: Generator, task: Task, dialog: Dialog) -> float:
    """0 to 1, the higher the better; 0 where the judge's answer has no score. Raises TwinError
    where the judge has no reply."""
    called = [call.name for one in dialog.messages for call in one.calls]
    metadata = {"kind": "judge", "wanted": list(task.rubric.tools), "called": called}
    turns = (Message("system", _BRIEF), Message("user", _shown(task, dialog)))
    sampling = Sampling(temperature=0.0, max_tokens=64, seed=task.seed % 10**9)
    answer = judge.complete(Request(turns, (), sampling, metadata)).text
    found = _SCORE.search(answer)
    return min(1.0, float(found[1])) if found else 0.0


_BRIEF: Final = (
    "You judge how an assistant with tools served a user. Look at the rubric: were the checkpoints "
    "reached, with few needless calls, and were the user's words followed? Whether the result is "
    'right was checked before. Answer with JSON: {"score": X}, X from 0 to 1.'
)


def _shown(task: Task, dialog: Dialog) -> str:
    rubric = {
        "checkpoints": task.rubric.checkpoints,
        "expected tools": task.rubric.tools,
        "must be told": task.rubric.facts,
    }
    lines = [json.dumps(rubric, ensure_ascii=False)]
    for one in dialog.messages:
        calls = "".join(f" [{call.name} {call.arguments}]" for call in one.calls)
        lines.append(f"{one.role}: {one.content}{calls}")
    return "\n".join(lines)
