"""A layout: how a run is cut over a cluster and what its memory policy is, without the rest of the
scenario, which all layouts of a search share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from twin.scenario import ParallelSpec, Scenario
from twin.schedules import Schedule
from twin.spec.memory import MemorySpec

SHORT: Final = {
    "pipeline": "PP",
    "virtual": "V",
    "tensor": "TP",
    "context": "CP",
    "expert": "EP",
    "expert_tensor": "ETP",
    "micro_batch": "MB",
}
"""Degrees by the letters that trainers write."""
MADE_ANEW: Final = {"layers": None}
"""What a split of layers was written for is another number of chunks: it is balanced anew."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One point of the space of a search. Degrees as in `ParallelSpec`."""

    nodes: int
    pipeline: int
    virtual: int
    tensor: int
    context: int
    expert: int
    expert_tensor: int
    zero: int
    micro_batch: int
    schedule: Schedule
    memory: MemorySpec

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this layout. Its values are those of a scenario that was read, so they
        are not validated again; whether the layout is possible is the rules' to say."""
        parallel = scenario.parallel.model_copy(
            update=MADE_ANEW
            | {name: getattr(self, name) for name in DEGREES}
            | {
                "schedule": self.schedule,
                "sequence_parallel": cuts_sequences(scenario.parallel, self.tensor),
            }
        )
        cluster = scenario.cluster.model_copy(update={"nodes": self.nodes})
        changed = {"parallel": parallel, "cluster": cluster, "memory": self.memory, "expect": ()}
        return scenario.model_copy(update=changed)

    def overrides(self, scenario: Scenario) -> dict[str, Any]:
        """The same as values by dotted path, in plain data, as a file would say it: those fields
        that the scenario has otherwise."""
        return dict(_differing(scenario, self.applied(scenario)))

    @property
    def words(self) -> str:
        """The layout in one line: degrees that cut something, the schedule, the memory policy."""
        short = {"pipeline": "PP", "virtual": "V", "tensor": "TP", "context": "CP", "expert": "EP"}
        short |= {"expert_tensor": "ETP", "micro_batch": "MB"}
        degrees = [f"{name}{getattr(self, key)}" for key, name in short.items()]
        cut = [
            text for text in degrees if not text.endswith(tuple(f"{n}1" for n in short.values()))
        ]
        return " ".join([*cut, f"ZeRO-{self.zero}", schedule_words(self.schedule)])


DEGREES: Final = tuple(
    one.name for one in fields(Layout) if one.name not in ("nodes", "schedule", "memory")
)
"""The fields of a layout that are numbers of `parallel`."""


def layout_of(scenario: Scenario) -> Layout:
    """The layout that a scenario has now."""
    parallel = scenario.parallel
    return Layout(
        nodes=scenario.cluster.nodes,
        schedule=parallel.schedule,
        memory=scenario.memory,
        **{name: getattr(parallel, name) for name in DEGREES},
    )


def cuts_sequences(written: ParallelSpec, tensor: int) -> bool:
    """Whether tensor ranks share the sequence outside of products: as written, or, where the
    scenario has one tensor rank and so says nothing, as every trainer does it by now."""
    return written.sequence_parallel if written.tensor > 1 else tensor > 1


def schedule_words(schedule: Schedule) -> str:
    """A schedule with its settings that are on."""
    settings = schedule.model_dump(exclude={"kind"}, exclude_defaults=True)
    on = [name.replace("_", " ") for name, value in settings.items() if value]
    return f"{schedule.kind} ({', '.join(on)})" if on else str(schedule.kind)


def _differing(base: Scenario, other: Scenario) -> Iterator[tuple[str, Any]]:
    """Dotted path and value of what a layout may change and has changed."""
    if base.cluster.nodes != other.cluster.nodes:
        yield "cluster.nodes", other.cluster.nodes
    for section in ("parallel", "memory"):
        old, new = (
            getattr(one, section).model_dump(mode="json", by_alias=True) for one in (base, other)
        )
        for name, value in new.items():
            if old[name] != value:
                yield f"{section}.{name}", value
