"""Which names of a memory policy mean nothing for a model or a device: as warnings, since such a
policy is a mistake that costs nothing."""

from __future__ import annotations

import torch

from twin.errors import Problem
from twin.spec.memory import MemorySpec
from twin.spec.model import GroupedAttention, ModelSpec

CODE = "TW240"


def idle(policy: MemorySpec, model: ModelSpec, device: torch.device) -> tuple[Problem, ...]:
    """A warning for each name that changes nothing."""
    return (
        *_beside_full(policy),
        *_absent(policy, model),
        *_update(policy),
        *_same_memory(policy, device),
    )


def _beside_full(policy: MemorySpec) -> list[Problem]:
    if "full" not in policy.recompute:
        return []
    others = [one for one in policy.recompute if one != "full"]
    fields = {"recompute": others, "fp8_store": policy.fp8_store}
    return [
        _warning(field, name, "recompute full runs whole layers again and keeps their input alone")
        for field, names in fields.items()
        for name in names
    ]


def _absent(policy: MemorySpec, model: ModelSpec) -> list[Problem]:
    if "full" in policy.recompute:
        named = [("offload", one) for one in policy.offload]
    else:
        named = [
            *(("recompute", one) for one in policy.recompute),
            *(("fp8_store", one) for one in policy.fp8_store),
            *(("offload", one) for one in policy.offload),
        ]
    lacks: dict[str, str] = {}
    if isinstance(model.attention, GroupedAttention):
        lacks["mla_up"] = f"the attention of {model.name} has no latents"
    if not any(model.has_experts(layer) for layer in range(model.layers)):
        experts = f"{model.name} has no experts"
        lacks |= dict.fromkeys(("moe_down", "moe_up_input", "optimizer_expert"), experts)
    else:
        lacks["moe_down"] = (
            "routing weights enter before it, so no backward pass needs its output, and it never "
            "runs again"
        )
    return [_warning(field, name, lacks[name]) for field, name in named if name in lacks]


def _update(policy: MemorySpec) -> list[Problem]:
    if policy.optimizer_update == "device" or policy.states_on_host:
        return []
    return [_warning("optimizer_update", "host", "no optimizer state is offloaded")]


def _same_memory(policy: MemorySpec, device: torch.device) -> list[Problem]:
    if device.type == "cuda":
        return []
    why = f"device {device.type} computes in host memory: there are copies, and nothing is saved"
    return [_warning("offload", name, why) for name in policy.offload]


def _warning(field: str, name: str, why: str) -> Problem:
    return Problem(CODE, f"memory.{field}", f"{field} {name} changes nothing: {why}")
