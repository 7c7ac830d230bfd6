"""Answers to choose from, for a rule-based policy that cannot write code: some right, some wrong.

They are what a model would have to think of; a policy that chooses among them shows the tools, the
failures and the verdicts of real runs, and no skill in programming.
"""

from __future__ import annotations

import random

from reference.agentic.code.generate import mutants
from reference.agentic.code.kind import kinds
from reference.agentic.code.probes import hard_coded
from reference.agentic.code.task import Task


def candidates(task: Task, seed: int) -> tuple[str, ...]:
    """Texts in the order in which they are tried: the right one, mutants of it, and a table of the
    examples. Of a generated task."""
    name, _, at = task.id.rpartition("-")
    draw = random.Random(f"candidates {task.id} {seed}")
    wrong = mutants(kinds()[name], int(at))
    some = [task.solution, *draw.sample(wrong, min(2, len(wrong))), hard_coded(task)]
    draw.shuffle(some)
    return tuple(some)


def hints(task: Task, seed: int) -> dict[str, object]:
    """What the policy `program` of the embedded rules goes by."""
    return {"kind": "program", "candidates": candidates(task, seed)}
