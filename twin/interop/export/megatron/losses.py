"""What of a scenario Megatron-LM's arguments do not say: found by reading them back, and comparing
field by field. So nothing is lost in silence, whatever fields a scenario gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from twin.interop.importing.megatron import Launch, understood
from twin.interop.importing.megatron.arguments import Argument
from twin.loading.files import read_data
from twin.scenario import Scenario
from twin.spec.cluster import ClusterSpec

SECTIONS = ("model", "parallel", "memory", "train")
"""Sections that the arguments can say."""
_SETS = ("memory.recompute", "memory.fp8_store", "memory.offload")
"""Lists whose order means nothing."""

_ANY = "the arguments say nothing of it"


@cache
def reasons() -> Mapping[str, str]:
    """Why a field is not expressed, by its path or that of a section around it."""
    return read_data(Path(__file__).with_name("losses.yaml"))


@dataclass(frozen=True, slots=True)
class Loss:
    """A field that the arguments do not say: its value, what it is when they are read back (both as
    text), and why."""

    path: str
    value: str
    read_back: str
    reason: str

    def __str__(self) -> str:
        became = f"becomes {self.read_back}" if self.read_back else "is not said"
        return f"{self.path}: {self.value} {became}; {self.reason}."


def losses(scenario: Scenario, arguments: Sequence[Argument]) -> tuple[Loss, ...]:
    """Every field of a scenario that reading its arguments back would not give."""
    launch = understood(arguments, scenario.name)
    return (*_unsaid(scenario, launch), *_changed(scenario, launch))


def _unsaid(scenario: Scenario, launch: Launch) -> Iterator[Loss]:
    """Sections that no argument is about."""
    if launch.name != scenario.name:
        yield Loss("name", scenario.name, launch.name, _ANY)
    for key, spec in type(scenario).model_fields.items():
        value = getattr(scenario, key)
        if key in (*SECTIONS, "name", "schema_version") or value == spec.default:
            continue
        yield Loss(key, _called(value), "", _reason(key))


def _called(value: Any) -> str:
    """What people call a section."""
    if isinstance(value, ClusterSpec):
        return f"{value.nodes} nodes {value.node.name} on {value.fabric.name}"
    return str(getattr(value, "name", "it"))


def _changed(scenario: Scenario, launch: Launch) -> Iterator[Loss]:
    """Fields that are other than they were."""
    for key in SECTIONS:
        before, after = getattr(scenario, key), getattr(launch, key)
        written, read = before.model_dump(mode="json"), after.model_dump(mode="json")
        for path, old, new in differing(written, read, key):
            yield Loss(path, _shown(old), _shown(new), _reason(path))


def differing(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two sections differ: path, and both values. Choices of different kinds differ whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        if before.get("kind") == after.get("kind"):
            for key in before | after:
                yield from differing(before.get(key), after.get(key), f"{path}.{key}")
            return
    if path in _SETS and sorted(cast("list[str]", old)) == sorted(cast("list[str]", new)):
        return
    if old != new:
        yield path, old, new


def _reason(path: str) -> str:
    """The reason of the nearest section that has one."""
    known = reasons()
    while path and path not in known:
        path = path.rpartition(".")[0]
    return known.get(path, _ANY)


def _shown(value: Any) -> str:
    """A value as people write it; of a choice its kind."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return str(fields.get("kind") or "what it says")
    if isinstance(value, list):
        runs = [(one, len(list(same))) for one, same in groupby(cast("list[object]", value))]
        return f"[{', '.join(f'{one}' if n == 1 else f'{n} x {one}' for one, n in runs)}]"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value) or "nothing"
