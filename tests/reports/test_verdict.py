"""The verdict answers in plain words: fits, how long, how much, what is in the way."""

from __future__ import annotations

from dataclasses import replace

from tests.reports import made
from twin.planning.types import DeviceMemory
from twin.reports import fitting, memory_report, report, verdict


def test_a_plan_that_fits_is_answered_in_one_breath() -> None:
    assert verdict(report(made.plan(), made.trace())) == (
        "Fits with 30 GiB to spare on the fullest GPU (stage 0). "
        "A step takes 2.00 s at 0.0249 % MFU. 1.28k tokens take 0.000231 d and cost 0.0444 USD "
        "without failures. The largest loss beside compute is pipeline bubble, 25.0 % of the step."
    )


def test_a_plan_that_does_not_fit_names_stage_tensors_and_excess() -> None:
    plan = made.plan(gib=(96.0, 92.0))
    assert verdict(report(plan, made.trace())).startswith(
        "Does not fit: stage 0 needs 96 GiB for tensors and has 90 GiB (100 GiB less 10 GiB "
        "reserve), 6 GiB too much; largest there: parameters 48 GiB, activations 24 GiB, "
        "gradients 24 GiB. 2 of 2 stages are over. If it did fit: a step takes 2.00 s "
    )


def test_without_a_price_the_verdict_is_silent_on_money() -> None:
    plan = made.plan(cost=None)
    assert "USD" not in verdict(report(plan, made.trace()))


def test_compute_alone_is_said_to_be_alone() -> None:
    answer = report(made.plan(), made.trace(({"compute": 10**9},)))
    assert verdict(answer).endswith("Nothing but compute takes time (100 % of the step).")


def test_exactly_full_still_fits() -> None:
    plan = made.plan(gib=(90.0, 40.0))
    assert plan.memory.fits
    assert fitting(memory_report(plan.memory)).startswith("Fits with 0 B to spare")


def test_a_peak_whose_interval_crosses_the_budget_may_turn_out_otherwise() -> None:
    gib = 2.0**30
    memory = made.plan(gib=(60.0, 40.0)).memory
    told = {
        (50, 89): "",
        (50, 91): " It may not fit: the peak's 80 % interval is 50 GiB to 91 GiB.",
    }
    for (low, high), words in told.items():
        known = memory_report(memory, interval=(low * gib, high * gib))
        assert fitting(known) == f"Fits with 30 GiB to spare on the fullest GPU (stage 0).{words}"
    over = memory_report(made.plan(gib=(96.0, 40.0)).memory, interval=(88 * gib, 105 * gib))
    assert fitting(over).endswith(" It may fit: the peak's 80 % interval is 88 GiB to 105 GiB.")


def test_what_the_allocator_gives_back_to_fit_is_told() -> None:
    device = DeviceMemory(allocated=1.0, reserved=2.0, in_use=3.0, given_back=2.0**30)
    tight = memory_report(made.plan().memory, device)
    assert "PyTorch's allocator must give back 1 GiB to fit" in fitting(tight)
    full = memory_report(made.plan(gib=(96.0, 40.0)).memory, device)
    assert "give back" not in fitting(full)


def test_the_host_is_named_where_something_is_kept_there_and_where_it_is_full() -> None:
    gib = 2.0**30
    memory = made.plan().memory
    roomy = replace(memory, host={"activations": 30 * gib}, host_capacity=100 * gib)
    assert fitting(memory_report(roomy)) == (
        "Fits with 30 GiB to spare on the fullest GPU (stage 0) and 70 GiB in the host memory of "
        "the fullest node."
    )
    full = replace(roomy, host={"activations": 90 * gib, "optimizer_expert": 20 * gib})
    assert not full.fits
    assert fitting(memory_report(full)) == (
        "Does not fit: a node has 100 GiB of host memory and its GPUs keep 110 GiB there, 10 GiB "
        "too much; largest there: activations 90 GiB, optimizer expert 20 GiB. The GPUs have room: "
        "30 GiB to spare on the fullest GPU (stage 0)."
    )
    both = replace(full, stages=made.plan(gib=(96.0, 40.0)).memory.stages)
    assert "Nor does it fit on the host: a node has 100 GiB" in fitting(memory_report(both))


def test_the_report_gives_what_is_kept_before_offload_and_where_it_is() -> None:
    memory = replace(made.plan().memory, host={"activations": 8.0}, host_capacity=9.0)
    kept = tuple(replace(stage, kept_bytes=5.0 + stage.stage) for stage in memory.stages)
    document = memory_report(replace(memory, stages=kept)).to_json()
    assert document["host"] == {
        "peak_bytes_per_node": 8.0,
        "capacity": 9.0,
        "categories": {"activations": 8.0},
    }
    assert document["kept_bytes"] == 6.0
    assert [stage["kept_bytes"] for stage in document["stages"]] == [5.0, 6.0]
