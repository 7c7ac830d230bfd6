"""Steps of GPT-175B that were measured and never fitted: Korthikanti et al. 2022, Table 5."""

from __future__ import annotations

import pytest

import twin

MEASURED = {"gpt-175b-64xa100-full": 18.13, "gpt-175b-64xa100-selective": 13.75}
"""Seconds per iteration: 64 A100, tensor 8, pipeline 8, 3 chunks, batch 64."""


@pytest.mark.parametrize("name", MEASURED)
def test_gpt_175b_is_within_ten_percent(name: str) -> None:
    trace = twin.simulate(twin.lower(twin.plan(twin.load(name))))
    assert trace.step_ns / 1e9 == pytest.approx(MEASURED[name], rel=0.10)
