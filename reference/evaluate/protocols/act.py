"""Dialogues with tools in environments, judged by the end state.

A case names its `world` as MODULE:FUNCTION; the function makes the environment from the case's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from reference.agentic.environment import Environment
from reference.dialog import dialog_json
from reference.evaluate.protocols.protocol import (
    EvaluationContext,
    EvaluationProtocol,
    Row,
    TaskSummary,
    row_of,
    sampling_of,
    token_counts,
)
from reference.evaluate.statistics import Interval, grouped, share
from reference.evaluate.task import EvaluationCase, EvaluationTask
from reference.evaluate.tool_use import ToolDialogue, call_validity, tool_use
from twin.errors import Problem, UsageError


class Act(EvaluationProtocol):
    """Dialogues with tools."""

    def needs_chat(self, task: EvaluationTask) -> bool:
        """Always."""
        del task
        return True

    def rules_can_answer(self, task: EvaluationTask) -> bool:
        """Where metadata or the environment's hints guide them."""
        hints = any(getattr(environment_of(case), "hints", None) for case in task.cases[:1])
        return hints or super().rules_can_answer(task)

    def ask(
        self, task: EvaluationTask, cases: Sequence[EvaluationCase], context: EvaluationContext
    ) -> list[Row]:
        """The dialogues of each case with their verdicts."""
        spec, size = task.spec, task.spec.samples
        dialogues = tool_use(
            [environment_of(case) for case in cases for _ in range(size)],
            context.subject.generator,
            steps=spec.steps,
            sampling=sampling_of(task, context.seed, spec.name, cases[0].id),
            at_once=context.at_once,
            metadata=spec.metadata,
        ).plays
        rows = [_row(dialogue) for dialogue in dialogues]
        return [
            row_of(case, plays=rows[at * size : (at + 1) * size]) for at, case in enumerate(cases)
        ]

    def summary(self, task: EvaluationTask, rows: Sequence[Row]) -> TaskSummary:
        """Success, validity of calls, and causes of failure."""
        pairs = [(row["group"], play) for row in rows for play in row["plays"]]
        plays = [play for _, play in pairs]
        validity, valid_turns = call_validity((group, play["faults"]) for group, play in pairs)
        success = share(grouped((group, _success(play)) for group, play in pairs))
        metrics: dict[str, Interval] = {"success": success}
        if validity is not None:
            metrics["validity"] = validity
        metrics["valid_turns"] = valid_turns
        solved = sum(play["verdict"]["success"] for play in plays)
        counts = {
            "dialogues": len(plays),
            "solved": solved,
            "calls": sum(len(play["faults"]) for play in plays),
            "faults": dict(Counter(fault for play in plays for fault in play["faults"] if fault)),
            "causes": dict(Counter(cause for play in plays for cause in play["verdict"]["causes"])),
            "ended": dict(Counter(play["ended"] for play in plays)),
            "answers_cut": sum(play["cut"] for play in plays),
            "steps": sum(play["steps"] for play in plays),
            **token_counts(plays, solved),
            "steps_allowed": task.spec.steps,
        }
        return TaskSummary(metrics, counts=counts)

    def value(self, row: Row) -> tuple[float, float]:
        """The share of a case's dialogues that succeed."""
        return sum(map(_success, row["plays"])) / len(row["plays"]), 1.0


def environment_of(case: EvaluationCase) -> Environment[Any]:
    """The environment of a case. Raises UsageError TW585 where its `world` makes none."""
    module, _, function = str(case.row["world"]).partition(":")
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"`{case.row['world']}` makes no environment: {error}"
        raise UsageError([Problem("TW585", "world", message, "write MODULE:FUNCTION")]) from None
    return make(case.row)


def _row(play: ToolDialogue) -> Row:
    verdict = play.verdict
    names = ("ended", "opened", "steps", "cut", "prompt_tokens", "reply_tokens")
    return {
        "dialog": dialog_json(play.dialog),
        "verdict": {
            "checks": dict(verdict.checks),
            "causes": list(verdict.causes),
            "success": verdict.success,
        },
        "faults": list(play.faults),
        **{name: getattr(play, name) for name in names},
    }


def _success(play: Row) -> float:
    return float(play["verdict"]["success"])


PROTOCOLS = {"act": Act()}
