"""Peak memory of published rows: batches of rows that time one micro-batch, adapters, and what a
peak counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.evidence.validate.rows import row
from twin.evidence.validate.stacks import stack_of
from twin.evidence.validate.steps import counted, peak_bytes, statistic_of, step_seconds
from twin.evidence.validate.suite import PublishedRow, read_suite
from twin.evidence.validate.training import express
from twin.planning.types import DeviceMemory

TITLE = "prime-rl trainer benchmarks"
STACK = stack_of(row({}, gpu="H200", source={"title": TITLE}), "H200")


def timed(workload: str, **layout: Any) -> PublishedRow:
    """A row of prime-rl on 8 GPUs that took 2 s for a micro-batch of 3 sequences."""
    return row(
        {"microbatch_step_s": 2.0},
        gpu="H200",
        category="train_step",
        gpus=8,
        source={"title": TITLE},
        model="qwen3-4b",
        workload=workload,
        parallelism={"fsdp": 8, "activation": "Recompute", **layout},
        precision="BF16",
        mbs=3,
        seq=1024,
    )


def test_a_step_is_two_micro_batches_on_every_replica() -> None:
    found = express(timed("RL Full", cp=2))
    assert found.tree["train"]["global_batch"] == "24seq"
    assert step_seconds(timed("RL Full")) == 2.0
    assert any("micro-batch" in words for words in found.assumed)


@pytest.mark.parametrize(
    ("workload", "lora", "loss"),
    [
        ("RL Full", None, "chunked"),
        ("SFT Full", None, "eager_held"),
        ("RL LoRA(r=8)", {"rank": 8, "adapters": 4}, "chunked"),
        ("RL LoRA", {"rank": 16, "adapters": 4}, "chunked"),
    ],
)
def test_a_workload_tells_adapters_and_loss(
    workload: str, lora: dict[str, int] | None, loss: str
) -> None:
    found = express(timed(workload))
    assert found.tree["train"].get("lora") == lora
    assert found.tree["train"]["cross_entropy"] == loss
    assert found.tree["memory"]["fully_shard"]
    told = any("rank 16" in words for words in found.assumed)
    assert told == (workload == "RL LoRA")


def test_a_row_is_compared_with_what_its_peak_counts() -> None:
    device = DeviceMemory(allocated=10.0, reserved=11.0, in_use=13.0)
    said = [
        replace(timed("RL Full"), fields={"statistic": name}) for name in ("in use", "allocated")
    ]
    assert [counted(device, statistic_of(one, STACK)) for one in said] == [13.0, 10.0]
    assert statistic_of(timed("RL Full"), STACK) == STACK.memory == "reserved"


def test_every_shipped_peak_says_what_it_counts() -> None:
    peaks = [one for one in read_suite() if peak_bytes(one) is not None]
    assert len(peaks) > 100
    assert {one.fields.get("statistic") for one in peaks} == {"allocated", "reserved"}


def test_selective_per_op_is_every_second_product() -> None:
    fields = dict(timed("RL Full").fields)
    layout = {"fsdp": 8, "activation_checkpointing": "selective per-op"}
    found = express(replace(timed("RL Full"), fields={**fields, "parallelism": layout}))
    assert found.tree["memory"]["recompute"] == ["alternate_products"]
