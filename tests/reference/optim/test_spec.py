"""The optimizer's section: defaults with a source, and what kinds mean for QK-clip."""

import pytest
from pydantic import ValidationError

from reference.optim.spec import OptimizerSpec, QkClipSpec, ScheduleSpec
from twin.spec.base import descriptions


def test_defaults_are_kimi_k2s_and_moonlights():
    spec = OptimizerSpec()
    assert (spec.kind, spec.lr, spec.weight_decay, spec.momentum) == ("muonclip", 2e-4, 0.1, 0.95)
    assert (spec.nesterov, spec.momentum_buffer, spec.ns_steps) == (False, "sum", 5)
    assert (spec.adamw.betas, spec.adamw.eps) == ((0.9, 0.95), 1e-8)
    assert (spec.qk_clip.variant, spec.qk_clip.threshold) == ("per_head", 100.0)


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_only_muonclip_clips(kind):
    clip = QkClipSpec(variant="per_layer", threshold=30.0)
    assert OptimizerSpec(qk_clip=clip).clip == clip
    assert OptimizerSpec(kind=kind, qk_clip=clip).clip.variant == "off"


@pytest.mark.parametrize(
    "wrong",
    [{"lr": 0.0}, {"momentum": 1.0}, {"ns_steps": 0}, {"ns_steps": 5.0}, {"lr": "2e-4"}, {"mu": 1}],
)
def test_values_out_of_bounds_and_unknown_keys_are_refused(wrong):
    with pytest.raises(ValidationError):
        OptimizerSpec(**wrong)


@pytest.mark.parametrize("spec", [OptimizerSpec, QkClipSpec, ScheduleSpec])
def test_every_field_says_what_it_means(spec):
    assert all(descriptions(spec).values())
