"""The verdict answers in plain words: fits, how long, how much, what is in the way."""

from __future__ import annotations

from tests.report import made
from twin.report import fitting, memory_report, report, verdict


def test_a_plan_that_fits_is_answered_in_one_breath() -> None:
    assert verdict(report(made.plan(), made.trace())) == (
        "Fits with 30 GiB to spare on the fullest GPU (stage 0). "
        "A step takes 2.00 s; 1.28k tokens take 0.000231 days, 0.0222 GPU-hours and cost "
        "0.0444 USD, at 0.0249 % MFU. The largest loss beside compute is pipeline bubble, 25.0 % "
        "of the step."
    )


def test_a_plan_that_does_not_fit_names_stage_tensors_and_excess() -> None:
    plan = made.plan(gib=(96.0, 92.0))
    assert verdict(report(plan, made.trace())).startswith(
        "Does not fit: stage 0 needs 96 GiB for tensors and has 90 GiB (100 GiB less 10 GiB "
        "reserve), 6 GiB too much; largest there: parameters 48 GiB, activations 24 GiB, "
        "gradients 24 GiB. 2 of 2 stages are over. If it did fit: a step takes 2.00 s;"
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
