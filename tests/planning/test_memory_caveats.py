"""Warnings of the memory policy: each said where it holds, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planning.examples import MOE, scenario
from twin.engine import plan

OWN = (
    "idle-memory-policy",
    "recompute-frees-nothing",
    "host-memory-of-others",
    "update-at-memory-speed",
)
EXPERTS = {"moe": MOE}
PIPELINE = {"pipeline": 4}


def said(memory: dict[str, Any], **sections: Any) -> list[tuple[str, str]]:
    """Codes of the policy's warnings, with the first words of each."""
    found = plan(scenario(memory=memory, **sections)).warnings
    return [(one.code, one.message) for one in found if one.code in OWN]


def test_a_policy_that_does_what_it_says_is_not_warned_about() -> None:
    assert said({}) == []
    assert said({"recompute": ("norms", "swiglu", "attention_core")}) == []
    assert said({"recompute": ("full",)}) == []
    assert said({"fp8_store": ("moe_up_input", "swiglu_input")}, model=EXPERTS) == []


@pytest.mark.parametrize(
    ("memory", "sections", "words"),
    [
        ({"recompute": ("mla_up",)}, {}, "recompute mla_up changes nothing: no layer"),
        ({"recompute": ("moe_down",)}, {}, "recompute moe_down changes nothing: no layer"),
        ({"recompute": ("full", "norms")}, {}, "norms beside it changes nothing"),
        ({"fp8_store": ("moe_up_input",)}, {}, "fp8_store moe_up_input changes nothing"),
        (
            {"fp8_store": ("swiglu_input",), "recompute": ("full",)},
            {},
            "fp8_store swiglu_input changes nothing",
        ),
        ({"offload": ("activations",)}, {}, "offload activations changes nothing"),
        ({"optimizer_update": "host"}, {}, "optimizer_update host changes nothing"),
        ({"offload": ("optimizer_expert",)}, {}, "offload optimizer_expert changes nothing"),
    ],
)
def test_a_policy_that_changes_nothing_is_told(
    memory: dict[str, Any], sections: dict[str, Any], words: str
) -> None:
    ((code, message),) = said(memory, **sections)
    assert code == "idle-memory-policy"
    assert words in message


def test_running_the_down_projection_again_is_told_to_free_nothing() -> None:
    ((code, message),) = said({"recompute": ("moe_down",)}, model=EXPERTS)
    assert code == "recompute-frees-nothing"
    assert "frees nothing" in message


def test_what_else_the_host_is_for_is_told_where_something_is_on_it() -> None:
    assert [code for code, _ in said({"offload": ("activations",)}, parallel=PIPELINE)] == [
        "host-memory-of-others"
    ]
    both = {"offload": ("optimizer",), "optimizer_update": "host"}
    assert [code for code, _ in said(both)] == ["host-memory-of-others", "update-at-memory-speed"]
