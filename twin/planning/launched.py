"""A plan as its software launches it: what the stack cannot run becomes what it runs instead.

A stack says in `software.runs` what it can run. A schedule that it lacks becomes interleaved 1F1B
where stages have several chunks, else 1F1B; what it cannot recompute, store in FP8 or send to the
host is kept. Megatron-LM's own arguments, read back, say the same (tests/interop/export).
"""

from __future__ import annotations

from typing import TypeVar

from twin.scenario import Scenario
from twin.schedules import SCHEDULES
from twin.schedules.base import Schedule
from twin.spec.memory import MemorySpec, StagePolicySpec
from twin.spec.software import RunsSpec

Policy = TypeVar("Policy", MemorySpec, StagePolicySpec)


def launched(scenario: Scenario) -> Scenario:
    """The scenario as its software launches it; itself where that runs all of it."""
    runs = scenario.software.runs if scenario.software else None
    if runs is None:
        return scenario
    parallel, memory = scenario.parallel, launched_memory(scenario.memory, runs)
    schedule = launched_schedule(parallel.schedule, parallel.virtual, runs)
    if schedule == parallel.schedule and memory == scenario.memory:
        return scenario
    # Layers were cut for the chunks of another schedule: they are balanced anew.
    layers = parallel.layers if schedule == parallel.schedule else None
    changed = parallel.model_copy(update={"schedule": schedule, "layers": layers})
    return scenario.model_copy(update={"parallel": changed, "memory": memory})


def launched_schedule(schedule: Schedule, virtual: int, runs: RunsSpec) -> Schedule:
    """The schedule that a stack runs where this one is asked for, with so many chunks per stage."""
    if schedule.kind in runs.schedules and (runs.pairs or not schedule.pairs):
        return schedule
    kind = "interleaved_1f1b" if virtual > 1 else "1f1b"
    return SCHEDULES[kind].model_validate({"kind": kind})


def launched_memory(memory: MemorySpec, runs: RunsSpec) -> MemorySpec:
    """The memory policy that a stack runs where this one is asked for."""
    own = _launched(memory, runs)
    if memory.written is None:
        return own
    return own.model_copy(
        update={"by_stage": tuple(_launched(stage, runs) for stage in memory.written)}
    )


def _launched(policy: Policy, runs: RunsSpec) -> Policy:
    known = {name: getattr(runs, name) for name in ("recompute", "fp8_store", "offload")}
    written = {name: own for name in known if (own := getattr(policy, name)) is not None}
    return policy.model_copy(
        update={
            name: tuple(one for one in own if one in known[name]) for name, own in written.items()
        }
    )
