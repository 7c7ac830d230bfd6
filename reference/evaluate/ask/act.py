"""Dialogues with tools in environments, judged by the end state.

A case names its `world` as MODULE:FUNCTION; the function makes the environment of the case's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from reference.agentic.environment import Environment
from reference.dialog import dialog_json
from reference.evaluate.ask.way import (
    Asking,
    Found,
    Row,
    Way,
    opened,
    own_cases,
    per_solved,
    seed_of,
    sum_of,
)
from reference.evaluate.play import Play
from reference.evaluate.statistics.intervals import Interval, grouped, share
from reference.evaluate.task import Case, Task
from reference.evaluate.tool_use import tool_use
from reference.generate.request import Sampling
from twin.errors import Problem, UsageError


def environment_of(case: Case) -> Environment[Any]:
    """The environment of a case. Raises UsageError TW585 where its world is none."""
    module, _, function = str(case.row["world"]).partition(":")
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"`{case.row['world']}` makes no environment: {error}"
        raise UsageError([Problem("TW585", "world", message, "write MODULE:FUNCTION")]) from None
    return make(case.row)


def _ask(task: Task, cases: Sequence[Case], asking: Asking) -> list[Row]:
    spec = task.spec
    sampling = Sampling(
        temperature=spec.temperature,
        top_p=spec.top_p,
        max_tokens=spec.output_tokens,
        seed=seed_of(asking.seed, spec.name, cases[0].id),
    )
    found = tool_use(
        [environment_of(case) for case in cases for _ in range(spec.samples)],
        asking.subject.generator,
        steps=spec.steps,
        sampling=sampling,
        at_once=asking.at_once,
        metadata=spec.metadata,
    )
    plays, size = found.plays, spec.samples
    return [
        opened(case, plays=[_row(one) for one in plays[at * size : (at + 1) * size]])
        for at, case in enumerate(cases)
    ]


def _row(play: Play) -> Row:
    verdict = {**asdict(play.verdict), "success": play.verdict.success}
    verdict["checks"], verdict["causes"] = dict(play.verdict.checks), list(play.verdict.causes)
    return {
        "dialog": dialog_json(play.dialog),
        "verdict": verdict,
        "ended": play.ended,
        "faults": list(play.faults),
        "opened": play.opened,
        "steps": play.steps,
        "cut": play.cut,
        "prompt_tokens": play.prompt_tokens,
        "reply_tokens": play.reply_tokens,
    }


def _sum_up(task: Task, rows: Sequence[Row]) -> Found:
    plays = [(row["group"], play) for row in rows for play in row["plays"]]
    of = [play for _, play in plays]
    calls = [(group, float(one is None)) for group, play in plays for one in play["faults"]]
    turns = [
        (group, float(one is None)) for group, play in plays for one in (play["faults"] or ("-",))
    ]
    metrics: dict[str, Interval] = {
        "success": share(grouped((group, _success(play)) for group, play in plays))
    }
    if calls:
        metrics["validity"] = share(grouped(calls))
    metrics["valid_turns"] = share(grouped(turns))
    solved = sum(play["verdict"]["success"] for play in of)
    written = sum_of(of, "reply_tokens")
    counts = {
        "dialogues": len(of),
        "solved": solved,
        "calls": len(calls),
        "faults": dict(Counter(one for play in of for one in play["faults"] if one)),
        "causes": dict(Counter(cause for play in of for cause in play["verdict"]["causes"])),
        "ended": dict(Counter(play["ended"] for play in of)),
        "answers_cut": sum_of(of, "cut"),
        "steps": sum_of(of, "steps"),
        "reply_tokens": written,
        "tokens_per_solved": per_solved(written, solved),
        "steps_allowed": task.spec.steps,
    }
    return Found(metrics, counts=counts)


def _success(play: Row) -> float:
    return float(play["verdict"]["success"])


def _value(row: Row) -> tuple[float, float]:
    return sum(map(_success, row["plays"])) / len(row["plays"]), 1.0


def _rules(task: Task) -> bool:
    hinted = any(getattr(environment_of(case), "hints", None) for case in task.cases[:1])
    return bool(task.spec.metadata) or hinted


WAY = Way(lambda _: True, lambda _: False, own_cases, _ask, _sum_up, _value, _rules)
