"""What a reader must know before trusting a plan's memory: policies that change nothing, and what
host memory is also needed for. Each rule looks at one assumption, as in `twin.planning.caveats`."""

from __future__ import annotations

from collections.abc import Sequence

from twin.arch.fp8 import stored
from twin.arch.ops import Layer
from twin.arch.recompute import RECOMPUTED
from twin.planning.caveats import warning
from twin.planning.footprint import sent_by_op
from twin.planning.types import Chunk, Memory, Warning
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec


def memory_caveats(
    scenario: Scenario, chunks: Sequence[Chunk], memory: Memory
) -> tuple[Warning, ...]:
    """Every warning of the memory policy."""
    layers = tuple({id(one): one for chunk in chunks for one in chunk.layers}.values())
    policy = _all_named(scenario.memory, tuple(dict.fromkeys(one.policy for one in layers)))
    return (
        *idle_recompute(policy, layers),
        *recompute_for_nothing(policy, layers),
        *idle_fp8_store(policy, layers),
        *idle_offload(policy, layers, memory),
        *idle_states(scenario),
        *idle_update(scenario.memory),
        *shared_host(memory),
        *updated_on_host(scenario.memory),
    )


def _all_named(memory: MemorySpec, policies: Sequence[MemorySpec]) -> MemorySpec:
    """All that some stage does; `full` where every stage does it."""
    if len(policies) == 1:
        return memory

    def named(field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in policies for name in getattr(one, field)))

    again = tuple(one for one in named("recompute") if one != "full")
    whole = ("full",) * all("full" in one.recompute for one in policies)
    return memory.model_copy(
        update={
            "recompute": (*whole, *again),
            "fp8_store": named("fp8_store"),
            "offload": named("offload"),
        }
    )


def idle_recompute(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Names of `recompute` that are on no layer, or that `full` covers."""
    named = [one for one in dict.fromkeys(policy.recompute) if one != "full"]
    if "full" in policy.recompute:
        text = "recompute full runs whole layers again: {} beside it changes nothing."
        return [_idle(text.format(", ".join(named)))] if named else []
    present = {item.name for layer in layers for item in layer.items}
    idle = [one for one in named if one in RECOMPUTED and not RECOMPUTED[one] & present]
    if "moe" in named and "router" not in present:
        idle.append("moe")
    text = "recompute {} changes nothing: no layer of this model has it."
    return [_idle(text.format(", ".join(idle)))] if idle else []


def recompute_for_nothing(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Ops that run again although nothing needs their output."""
    if "moe_down" not in policy.recompute or "full" in policy.recompute:
        return []
    if not any(layer.kind in ("moe", "mtp") for layer in layers):
        return []
    return [warning("recompute-frees-nothing")]


def idle_fp8_store(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Names of `fp8_store` for which no layer packs anything."""
    alone = {one: policy.model_copy(update={"fp8_store": (one,)}) for one in policy.fp8_store}
    idle = [
        name for name, only in alone.items() if not any(stored(layer, only) for layer in layers)
    ]
    text = "fp8_store {} changes nothing: no layer keeps it in bf16."
    return [_idle(text.format(", ".join(idle)))] if idle else []


def idle_offload(policy: MemorySpec, layers: Sequence[Layer], memory: Memory) -> list[Warning]:
    """Activations that no layer keeps, and those whose backward comes too soon for a trip to the
    host."""
    named = policy.activations_on_host
    alone = {name: policy.model_copy(update={"offload": (name,)}) for name in named}
    idle = [
        name for name, only in alone.items() if not any(sent_by_op(one, only) for one in layers)
    ]
    absent = f"offload {', '.join(idle)} changes nothing: no layer keeps it."
    late = (
        f"offload {', '.join(named)} changes nothing: every backward pass follows its forward too "
        "soon for a copy out and back."
    )
    if len(idle) == len(named) or any("activations" in stage.host for stage in memory.stages):
        return [_idle(absent)] if idle else []
    return [_idle(late)]


def idle_states(scenario: Scenario) -> list[Warning]:
    """States of experts are those of a model that has some."""
    if "optimizer_expert" not in scenario.memory.offload or scenario.model.moe is not None:
        return []
    text = f"offload optimizer_expert changes nothing: {scenario.model.name} has no experts."
    return [_idle(text)]


def idle_update(policy: MemorySpec) -> list[Warning]:
    """Where states are updated is a question only for those on the host."""
    if policy.optimizer_update == "device" or policy.states_on_host:
        return []
    return [_idle("optimizer_update host changes nothing: no optimizer state is offloaded.")]


def shared_host(memory: Memory) -> list[Warning]:
    """Others want host memory, too."""
    if not memory.host:
        return []
    return [warning("host-memory-of-others")]


def updated_on_host(policy: MemorySpec) -> list[Warning]:
    """The host's cores may be slower than its memory."""
    if policy.optimizer_update == "device" or not policy.states_on_host:
        return []
    return [warning("update-at-memory-speed")]


def _idle(text: str) -> Warning:
    return Warning("idle-memory-policy", text)
