"""The table of steps is the inference model; its sums and roots are those of single steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inference.engines import made
from twin.inference.seconds import decode_pass, prefill_pass
from twin.kinds.rollouts.engine import Lines, StepTable, step_table

LINES = st.builds(
    Lines,
    st.floats(0.01, 0.1),
    st.floats(0.0, 1e-7),
    st.floats(0.001, 0.1),
    st.floats(1e-7, 1e-5),
)


def of(lines: Lines, groups: int = 1) -> StepTable:
    return StepTable(groups, (1, 10**6), (lines, lines), (1, 10), (0.0, 0.0), 0.0)


@pytest.mark.parametrize("model", ["kimi-k2", "deepseek-v3", "llama3-70b"])
@pytest.mark.parametrize("two", [True, False])
def test_a_step_takes_what_the_inference_model_says(model: str, two: bool) -> None:
    dense = model == "llama3-70b"
    size, more = (8, 0) if dense else (32, 32)
    tensor = 8 if dense else 1
    engine = made(model, gpus=size, tensor=tensor, redundant_experts=more, two_batches=two)
    table = step_table(engine, 256)
    for batch in (1, 60, 256):
        for context in (100, 30_000):
            running = batch * engine.groups
            got = table.seconds(running, running * context, 1)
            assert got == pytest.approx(decode_pass(engine, batch, context).seconds, rel=0.05)


def test_a_prefill_takes_what_the_inference_model_says() -> None:
    engine = made("kimi-k2")
    table = step_table(engine, 16)
    got = table.prefill(32, 32 * 3000, 0, shared=False)
    assert got == pytest.approx(prefill_pass(engine, 1, 3000).seconds, rel=0.03)
    long = table.prefill(32, 32 * 50_000, 0, shared=False)
    assert long > 3 * prefill_pass(engine, 1, 16_384).seconds
    shared = table.prefill(32, 32 * 3000, 0, shared=True)
    assert 0 < shared < got


@settings(max_examples=80)
@given(LINES, st.integers(1, 500), st.integers(0, 10**6), st.integers(1, 300))
def test_many_steps_are_the_sum_of_single_ones(
    lines: Lines, running: int, cached: int, steps: int
) -> None:
    table = of(lines, groups=4)
    single = (table.seconds(running, cached + k * running, 1) for k in range(steps))
    # The line changes within a step of the sum at most once.
    assert table.seconds(running, cached, steps) == pytest.approx(sum(single), rel=1e-9)


@settings(max_examples=80)
@given(LINES, st.integers(1, 500), st.integers(0, 10**6), st.floats(0.0, 30.0))
def test_the_step_under_way_is_the_first_that_ends_later(
    lines: Lines, running: int, cached: int, seconds: float
) -> None:
    table = of(lines, groups=4)
    steps = table.steps(running, cached, seconds)
    assert steps >= 1
    assert table.seconds(running, cached, steps) >= seconds - 1e-6
    if steps > 1:
        assert table.seconds(running, cached, steps - 1) < seconds + 1e-6


def test_each_further_prompt_of_a_pass_costs_the_host_its_part() -> None:
    light, heavy = (
        step_table(made(redundant_experts=32, sequence_overhead=each), 8) for each in ("0s", "10ms")
    )
    for joining in (32, 64, 160):
        more = [one.prefill(joining, 32_000, 0, shared=False) for one in (light, heavy)]
        assert more[1] - more[0] == pytest.approx(0.01 * joining / heavy.groups)
