"""The twin: a digital twin of large-model training clusters.

Five verbs carry it, and a sixth compares:

    scenario = twin.load("scenarios/kimi-k2-2048xh800.yaml")
    plan     = twin.plan(scenario)
    trace    = twin.simulate(twin.lower(plan))
    report   = twin.report(plan, trace)
    twin.compare([report, another])

A verb does its work for whatever kind of work its first argument is of (`twin.kinds`): a training
step, the phases of a run, rollouts, an iteration of reinforcement learning, a weight update. Each
is imported when it is first used, so `import twin` costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twin.answers.answer import compare as compare
    from twin.answers.answer import lower as lower
    from twin.answers.answer import plan as plan
    from twin.answers.answer import report as report
    from twin.answers.answer import simulate as simulate
    from twin.loading import load as load

__all__ = ["compare", "load", "lower", "plan", "report", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("twin.loading" if name == "load" else "twin.answers.answer"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
