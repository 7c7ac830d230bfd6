"""The twin: a digital twin of large-model training clusters.

Five verbs carry it, and a sixth compares:

    scenario = twin.load("scenarios/kimi-k2-2048xh800.yaml")
    plan     = twin.plan(scenario)
    trace    = twin.simulate(twin.lower(plan))
    report   = twin.report(plan, trace)
    twin.compare([report, another])

A verb does its work for whatever its first argument is of: a training run, or a weight update
(`twin.kinds.weight_update`). Each is imported when it is first used, so `import twin` costs
nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twin.engine import lower as lower
    from twin.engine import simulate as simulate
    from twin.loading import load as load
    from twin.planning import plan as plan
    from twin.reports import compare as compare
    from twin.reports import report as report

__all__ = ["compare", "load", "lower", "plan", "report", "simulate"]

_HOMES = {
    "load": "twin.loading",
    "plan": "twin.planning",
    "lower": "twin.engine",
    "simulate": "twin.engine",
    "report": "twin.reports",
    "compare": "twin.reports",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    verb = getattr(import_module(_HOMES[name]), name)
    return verb if name == "load" else _of_its_kind(name, verb)


def _of_its_kind(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, or that of the room which the first argument names as its own."""

    @wraps(verb)
    def call(*arguments: Any, **named: Any) -> Any:
        noun: Any = arguments[0] if arguments else None
        if noun and type(noun) in (list, tuple):  # reports to compare
            noun = noun[0]
        room: str | None = getattr(noun, "room", None)
        return (getattr(import_module(room), name) if room else verb)(*arguments, **named)

    return call


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
