"""Names of a policy that mean nothing are warned of by name, and no others."""

from __future__ import annotations

import pytest
import torch

from reference.memory.stash import idle
from tests.reference.memory.small import GROUPED, KIMI_K2, PICO
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

GPU = torch.device("cuda")
CASES: dict[str, tuple[MemorySpec, ModelSpec, list[str]]] = {
    "kimi k2's policy": (KIMI_K2, PICO, ["recompute moe_down"]),
    "no latents, no experts": (
        KIMI_K2,
        GROUPED,
        ["recompute mla_up", "recompute moe_down", "fp8_store moe_up_input"],
    ),
    "full covers the others": (
        MemorySpec(recompute=("norms", "full", "moe_down"), fp8_store=("swiglu_input",)),
        PICO,
        ["recompute norms", "recompute moe_down", "fp8_store swiglu_input"],
    ),
    "states of experts that are not there": (
        MemorySpec(offload=("optimizer_expert",), recompute=("full",)),
        GROUPED,
        ["offload optimizer_expert"],
    ),
    "an update of states that are not there": (
        MemorySpec(optimizer_update="host", offload=("activations",)),
        PICO,
        ["optimizer_update host"],
    ),
    "a part of a layer's activations": (
        MemorySpec(offload=("moe_up_input", "optimizer")),
        PICO,
        ["offload moe_up_input"],
    ),
    "nothing": (MemorySpec(), GROUPED, []),
    "all that a dense model has": (
        MemorySpec(recompute=("norms", "swiglu", "attention_core"), fp8_store=("swiglu_input",)),
        GROUPED,
        [],
    ),
}


@pytest.mark.parametrize(("policy", "model", "names"), CASES.values(), ids=CASES)
def test_names_that_change_nothing_are_named(
    policy: MemorySpec, model: ModelSpec, names: list[str]
):
    found = idle(policy, model, GPU)
    assert [one.message.partition(" changes nothing: ")[0] for one in found] == names
    assert {one.code for one in found} <= {"TW240"}


def test_on_a_cpu_the_host_is_no_other_memory():
    found = idle(KIMI_K2, PICO, torch.device("cpu"))
    assert found[-1].path == "memory.offload"
    assert "computes in host memory" in found[-1].message
