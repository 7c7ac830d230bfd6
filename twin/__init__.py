"""The twin: a digital twin of large-model training clusters.

Five verbs carry it, and a sixth compares:

    scenario = twin.load("scenarios/kimi-k2-2048xh800.yaml")
    plan     = twin.plan(scenario)
    trace    = twin.simulate(twin.lower(plan))
    report   = twin.report(plan, trace)
    twin.compare([report, another])

A verb does its work for whatever its first argument is of: a training run, or a weight update
(`twin.rl`). Everything is imported when it is first used, so `import twin` costs nothing. Two of
the verbs share their name with the package that holds them: `twin.plan` and `twin.report` are those
packages, and calling them calls the verb."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twin.engine import lower as lower
    from twin.engine import simulate as simulate
    from twin.loading import load as load
    from twin.plan import plan as plan
    from twin.report import compare as compare
    from twin.report import report as report

__all__ = ["compare", "load", "lower", "plan", "report", "simulate"]

_HOMES = {
    "load": "twin.loading",
    "plan": "twin.plan",
    "lower": "twin.engine",
    "simulate": "twin.engine",
    "report": "twin.report",
    "compare": "twin.report",
}


class _Verb(ModuleType):
    """A package that is also the verb it is named after."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        verb = self.__name__.rpartition(".")[2]
        return _of_its_kind(verb, getattr(self, verb))(*arguments, **named)


class _Twin(ModuleType):
    """This package. The import system binds each subpackage here; one that is named like a verb
    becomes callable then."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value.__class__ = _Verb
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Twin


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOMES[name])
    if home.__name__ == f"{__name__}.{name}":
        return home
    verb = getattr(home, name)
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
