"""The runs that studies are made of."""

from __future__ import annotations

import pytest

from reference.optim.spec import learning_rate
from reference.studies.runs import nano, with_experts


def test_a_run_of_half_the_length_has_the_same_schedule_in_half_the_steps() -> None:
    scale = nano(quick=False, steps=400)
    whole, half = scale.run(0, 0.01), scale.run(0, 0.01, 200)
    for step in (40, 200, 300, 398):
        long = learning_rate(step, whole.schedule, 0.01)
        assert learning_rate(step // 2, half.schedule, 0.01) == pytest.approx(long, rel=0.02)


def test_the_rate_falls_by_the_same_factor_whatever_it_is() -> None:
    for lr in (1e-3, 1e-2):
        run = nano(quick=False, steps=100).run(0, lr)
        assert learning_rate(100, run.schedule, lr) == pytest.approx(lr / 30)


def test_without_decay_the_rate_holds_to_the_end() -> None:
    run = nano(quick=False, steps=100).run(0, 0.02, decay=0.0)
    assert learning_rate(99, run.schedule, 0.02) == 0.02


def test_a_seed_changes_weights_and_order_and_nothing_else() -> None:
    scale = nano(quick=False, steps=100)
    first, second = scale.run(0, 0.01), scale.run(1, 0.01)
    assert (second.train.seed, second.data.seed) == (1, 1)
    facts = second.model_dump()
    facts["train"]["seed"] = facts["data"]["seed"] = 0
    assert facts == first.model_dump()


def test_optimizers_differ_in_their_kind_alone() -> None:
    scale = nano(quick=False, steps=100)
    adamw = scale.run(0, 0.01, kind="adamw").model_dump()
    adamw["optimizer"]["kind"] = "muonclip"
    assert adamw == scale.run(0, 0.01, kind="muonclip").model_dump()


def test_sparsity_changes_the_number_of_experts_and_nothing_else() -> None:
    run = nano(quick=False, steps=100).run(0, 0.01)
    facts = with_experts(run, 64).model_dump()
    assert facts["model"]["moe"]["experts"] == 64
    facts["model"]["moe"]["experts"] = 16
    assert facts == run.model_dump()
