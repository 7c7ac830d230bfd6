"""Rows whose layout a public launch script has, and steps of several micro-batches."""

from __future__ import annotations

import pytest

from tests.evidence.validate.rows import shipped
from twin.evidence.validate.steps import measured_seconds, settled
from twin.evidence.validate.training import express

PAPER = "mcore-moe-paper-deepseek-v3-gb200-256-mxfp8-s4096"


def test_a_script_says_what_a_row_leaves_out() -> None:
    own, scenario = settled(express(shipped(PAPER)))
    parallel = scenario.parallel
    assert (parallel.tensor, parallel.pipeline, parallel.virtual, parallel.expert) == (1, 4, 4, 64)
    assert any("run_deepseek_v3_gb200.sh" in one for one in own.assumed)
    tokens = 8192 * 4096
    assert measured_seconds(shipped(PAPER), own, scenario) == pytest.approx(tokens / (4020 * 256))


def test_a_row_without_a_script_is_refused_as_before() -> None:
    with pytest.raises(ValueError, match="does not say batch and sequence"):
        express(shipped("mcore-moe-paper-qwen3-235b-a22b-gb300-256-mxfp8-s4096"))


def test_a_benchmark_of_two_micro_batches_takes_twice_the_time_of_one() -> None:
    row = shipped("primerl-qwen3-4b-instruct-2507-rl-lora-r-16-s16384-recompute-8xh100-hbm3")
    own, scenario = settled(express(row))
    assert scenario.train.global_batch_sequences == 2 * 8
    assert measured_seconds(row, own, scenario) == pytest.approx(2 * 2.69)
