"""Loads of an engine's fullest GPU."""

from __future__ import annotations

import pytest

from tests.inference.engines import made
from twin.inference.load import fullest


@pytest.mark.parametrize(
    ("slots", "gpus", "copies", "measured"), [(256, 32, 0, 2.564), (288, 36, 32, 1.115)]
)
def test_the_law_gives_what_tensorrt_llm_counts(
    slots: int, gpus: int, copies: int, measured: float
) -> None:
    assert fullest(slots, gpus, copies) == pytest.approx(measured, rel=0.01)


def test_more_gpus_have_a_fuller_one_and_a_single_one_waits_for_none() -> None:
    loads = [fullest(256, gpus, 0) for gpus in (1, 2, 8, 32, 128)]
    assert loads[0] == 1
    assert loads == sorted(loads)


def test_an_engine_has_the_usual_load_until_one_is_written() -> None:
    assert made("kimi-k2", expert_load=1.3).expert_load == 1.3
    unbalanced = made("kimi-k2", expert_load=None)
    assert unbalanced.expert_load == fullest(384, 32, 0) > 2
    copied = made("kimi-k2", expert_load=None, redundant_experts=32)
    assert 1 < copied.expert_load == fullest(416, 32, 32) < 1.15


def test_experts_that_are_cut_are_always_balanced() -> None:
    assert made("kimi-k2", gpus=8, tensor=8, experts="cut", expert_load=None).expert_load == 1
