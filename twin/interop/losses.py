"""What of a scenario a file of another program does not say: found by reading it back and comparing
field by field. So nothing is lost in silence, whatever fields a scenario gets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from twin.interop.importing.launch import SECTIONS, Launch
from twin.scenario import Scenario
from twin.spec.cluster import ClusterSpec

_SETS = ("memory.recompute", "memory.fp8_store", "memory.offload")
"""Lists whose order means nothing."""

_ANY = "the file says nothing of it"


@dataclass(frozen=True, slots=True)
class Loss:
    """A field that a file does not say: its value, what it is when it is read back (both as
    text), and why."""

    path: str
    value: str
    read_back: str
    reason: str

    def __str__(self) -> str:
        became = f"becomes {self.read_back}" if self.read_back else "is not said"
        return f"{self.path}: {self.value} {became}; {self.reason}."


def losses_of(
    scenario: Scenario, back: Launch, reasons: Mapping[str, str], said: Collection[str] = ()
) -> tuple[Loss, ...]:
    """Every field of a scenario that is other than in the launch that was read back; `said` are
    sections that the file says in its own way, and `reasons` say why not, by path."""
    return (*_unsaid(scenario, back, reasons, said), *_changed(scenario, back, reasons))


def _unsaid(
    scenario: Scenario, launch: Launch, reasons: Mapping[str, str], said: Collection[str]
) -> Iterator[Loss]:
    """Sections that the file is not about."""
    if launch.name != scenario.name:
        yield Loss("name", scenario.name, launch.name, _ANY)
    for key, spec in type(scenario).model_fields.items():
        value = getattr(scenario, key)
        if key in (*SECTIONS, *said, "name", "schema_version") or value == spec.default:
            continue
        yield Loss(key, _called(value), "", _reason(key, reasons))


def _called(value: Any) -> str:
    """What people call a section."""
    if isinstance(value, ClusterSpec):
        return f"{value.nodes} nodes {value.node.name} on {value.fabric.name}"
    return str(getattr(value, "name", "it"))


def _changed(scenario: Scenario, launch: Launch, reasons: Mapping[str, str]) -> Iterator[Loss]:
    """Fields that are other than they were."""
    for key in SECTIONS:
        before, after = getattr(scenario, key), getattr(launch, key)
        written, read = before.model_dump(mode="json"), after.model_dump(mode="json")
        for path, old, new in differing(written, read, key):
            yield Loss(path, _shown(old), _shown(new), _reason(path, reasons))


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


def _reason(path: str, reasons: Mapping[str, str]) -> str:
    """The reason of the nearest section that has one."""
    while path and path not in reasons:
        path = path.rpartition(".")[0]
    return reasons.get(path, _ANY)


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
