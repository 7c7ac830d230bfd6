"""A profile fitted on seconds that the twin itself made up must be the one that made them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import twin
from reference.measure.catalog import write_loop, write_parts
from reference.measure.clock import summary
from reference.measure.groups import GROUPS
from reference.measure.limits import EngineTimes, device_limits, fit_links
from reference.measure.points import MeasuredPoint, TimedCase
from reference.measure.profile import Number, Profile, _beyond_host, _host, _Points, fit_profile
from tests.reference.measure.machines import CORE, H200, runnable, setting, timed
from tests.reference.measure.twins import twin_seconds
from twin.kinds.iteration.plan import plan
from twin.kinds.iteration.simulate import simulate
from twin.loading import load_part
from twin.spec.calibration import (
    CalibrationSpec,
    MatmulSpec,
    MatmulsSpec,
    StreamingSpec,
)

GPU = load_part("gpus", "h200").spec
SCENARIO = """\
schema: 1
name: Kimi K2's layers on one measured GPU
model: kimi-k2-small
cluster: {node: h200-here, nodes: 1, fabric: clos-400g}
parallel: {schedule: 1f1b, micro_batch: 1, zero: 0}
memory: {recompute: []}
train: {tokens: 1G, global_batch: 4seq, sequence: 4096tok, optimizer: muonclip}
calibration: h200-here
"""


STREAMING = StreamingSpec.model_validate(
    {
        kind: {"bandwidth": 0.2 + 0.08 * place, "launch": f"{1 + place}us"}
        for place, kind in enumerate(StreamingSpec.model_fields)
    }
)
"""A share and a launch of its own for each kind."""


def truth(whole_tiles: bool) -> CalibrationSpec:
    """A profile with no number that a fit starts from."""
    shipped = load_part("calibrations", "h200-hopper-bf16").spec
    law = MatmulSpec(
        efficiency=0.81,
        ramp=140.0,
        launch="5us",  # pyright: ignore[reportArgumentType]
        whole_tiles=whole_tiles,
        grouped=0.87,
        group_launch="2us",  # pyright: ignore[reportArgumentType]
        weight_gradient=0.92,
        sides=(64, 16384),
        inner=(512, 18432),
    )
    return shipped.model_copy(
        update={
            "matmuls": MatmulsSpec(bf16=law),
            "attention_forward": 0.71,
            "attention_backward": 0.63,
            "attention_forward_ramp": 120.0,
            "attention_backward_ramp": 260.0,
            "attention_forward_width": 21.0,
            "attention_backward_width": 34.0,
            "attention_forward_launch": 6e-6,
            "attention_backward_launch": 4e-6,
            "streaming": STREAMING,
            "bandwidth": 0.84,
            "launch": 3.2e-6,
            "dispatch": 7e-6,
        }
    )


def points(
    profile: CalibrationSpec, noise: Callable[[], float] = lambda: 1.0
) -> list[MeasuredPoint]:
    """Every case of a GPU, as long as the twin says of it, times noise."""
    here = setting("cuda", "kimi-k2")
    names = ("launch", "bandwidth", "gemm", "grouped", "attention", "optimizer")
    return [
        timed(name, case, _seconds(case, profile) * noise())
        for name in names
        for case in runnable(GROUPS[name](here))
        if case.op != "newton_schulz"
    ]


def _seconds(case: TimedCase, profile: CalibrationSpec) -> float:
    if case.op.startswith("dispatch"):
        return case.kernels * profile.dispatch
    if case.op == "grouped_uneven":
        return 1.2 * twin_seconds(case, GPU, profile)
    return twin_seconds(case, GPU, profile)


def fitted(own: list[MeasuredPoint]) -> Profile:
    return fit_profile(own, H200, device_limits(own, H200, "median"), "median")


ENDS = ("", "_ramp", "_width", "_launch")


def flat(profile: CalibrationSpec) -> dict[tuple[str, ...], float]:
    """The numbers of a profile that measurements give."""
    assert profile.matmuls is not None
    assert profile.matmuls.bf16 is not None
    law = profile.matmuls.bf16
    names = ("efficiency", "ramp", "launch", "grouped", "group_launch", "weight_gradient")
    numbers = {("matmuls", "bf16", name): getattr(law, name) for name in names}
    whole = ("bandwidth", "launch", "dispatch")
    kernels = [f"attention_{way}{end}" for way in ("forward", "backward") for end in ENDS]
    assert profile.streaming is not None
    numbers |= {
        ("streaming", kind, name): getattr(getattr(profile.streaming, kind), name)
        for kind in set(StreamingSpec.model_fields) - {"permute"}  # null: as gather
        for name in ("bandwidth", "launch")
    }
    return numbers | {(name,): getattr(profile, name) for name in (*whole, *kernels)}


@pytest.mark.parametrize("whole_tiles", [False, True])
def test_a_fit_finds_the_numbers_that_the_twin_made_the_seconds_with(whole_tiles: bool) -> None:
    known = truth(whole_tiles)
    found = fitted(points(known))
    assert found.whole_tiles is whole_tiles
    for key, value in flat(known).items():
        assert found.numbers[key].value == pytest.approx(value, rel=1e-3), key
    assert all(one.ninetieth < 1e-3 for one in found.residuals)


def test_noise_and_a_few_wild_points_move_a_fit_little() -> None:
    random = np.random.default_rng(0)

    def noise() -> float:
        wild = 3.0 if random.random() < 0.04 else 1.0
        return wild * float(np.exp(random.normal(0, 0.03)))

    known = truth(whole_tiles=False)
    found = fitted(points(known, noise))
    law = ("matmuls", "bf16")
    for key in ((*law, "efficiency"), (*law, "grouped"), ("bandwidth",)):
        assert found.numbers[key].value == pytest.approx(flat(known)[key], rel=0.04), key
        assert found.numbers[key].low <= flat(known)[key] <= found.numbers[key].high, key
    by_name = {one.name: one for one in found.residuals}
    assert 0.01 < by_name["bf16 products"].median < 0.05
    # Share, ramp and width of attention stand in for each other: the range says so, and together
    # they come as close as products do.
    share = found.numbers[("attention_forward",)]
    assert share.low <= flat(known)[("attention_forward",)] <= share.high
    assert by_name["attention, forward"].median < 0.05


def test_written_parts_load_as_what_was_fitted_and_a_scenario_that_names_them_runs(
    tmp_path: Path,
) -> None:
    own = points(truth(whole_tiles=False))
    limits = device_limits(own, H200, "median")
    found = fit_profile(own, H200, limits, "median")
    write_parts(tmp_path, H200, limits, found, fit_links(own, limits, "median"), None)
    part = load_part("calibrations", "h200-here", [tmp_path])
    for key, number in found.numbers.items():
        value = flat(part.spec).get(key, number.value)
        assert value == pytest.approx(number.value, rel=1e-3), key
    assert part.ledger["matmuls.bf16.ramp"].kind == "fitted"
    assert part.ledger["dispatch"].kind == "measured"
    source = part.ledger["dispatch"].source
    assert source is not None
    assert source.id == "h200-here"
    # What was not measured stays what the shipped profile of this GPU says.
    assert part.spec.expert_sms == load_part("calibrations", "h200-hopper-bf16").spec.expert_sms
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    plan = twin.plan(twin.load(file))
    assert plan.scenario.cluster.gpus == 1
    assert "calibration-of-another-gpu" not in {warning.code for warning in plan.warnings}
    report = twin.report(plan, twin.simulate(twin.lower(plan)))
    assert (report.kpis["step_seconds"] or 0) > 0


def test_a_core_without_a_datasheet_has_its_fastest_product_as_its_peak() -> None:
    own = points(truth(whole_tiles=False))
    fastest = max(p.flop / p.timing.median for p in own if p.group == "gemm" and p.dtype == "bf16")
    assert device_limits(own, CORE, "median").peak >= fastest
    assert device_limits(own, CORE, "median").gpu is None


def test_an_engine_and_an_updater_are_written_where_they_were_measured(tmp_path: Path) -> None:
    """And the loop that names them is a scenario with all of its phases."""
    own = points(truth(whole_tiles=False))
    limits = device_limits(own, CORE, "least")
    found, links = fit_profile(own, CORE, limits, "least"), fit_links(own, limits, "least")
    host = EngineTimes(*(Number(n * 1e-4, 0.0, 1.0, "", "fitted", "seconds") for n in range(1, 6)))
    written = write_parts(tmp_path, CORE, limits, found, links, host)
    assert {path.parent.name for path in written} >= {"engines", "updaters"}
    made = plan(twin.load(write_loop(tmp_path, CORE, "kimi-k2-nano", host)))
    assert made.server.spec.step_overhead == 1e-4
    assert made.server.spec.sequence_overhead == 2e-4
    assert made.spec.update.updater.per_tensor == pytest.approx(3e-4)
    parts = simulate(made).rounds[0].parts_ns
    assert (parts["sleep"], parts["wake"]) == (400_000, 500_000)
    assert min(parts[name] for name in ("rollout", "score", "train", "update")) > 0


@pytest.mark.parametrize("missing", ["launch", "bandwidth", "gemm", "attention"])
def test_without_a_group_there_is_no_profile_and_its_name_is_told(missing: str) -> None:
    own = [point for point in points(truth(whole_tiles=False)) if point.group != missing]
    with pytest.raises(LookupError, match=missing):
        fit_profile(own, H200, device_limits(own, H200, "median"), "median")


def test_a_fit_beside_the_host_finds_what_bytes_add_to_its_items() -> None:
    """Norms of 40 us and 80 us reach a tenth of 50 GB/s, and their gradients a half of that."""
    items = {"norm": 40e-6, "norm_backward": 80e-6, "attention_block": 1e-6}
    points = [_point(f"item:{name}", 0, seconds) for name, seconds in items.items()]
    for size in (1e5, 1e6, 1e7):
        points.append(_point("rms_norm", size, 40e-6 + size / 5e9))
        points.append(_point("rms_norm_backward", size, 80e-6 + size / 2.5e9))
    own = _Points(points, "median", _host(points)).of("rms_norm", "rms_norm_backward")
    found, errors = _beyond_host(own, 50e9, "norms")
    assert found["bandwidth"].value == pytest.approx(0.1, rel=1e-3)
    assert found["backward"].value == pytest.approx(0.5, rel=1e-3)
    assert errors.ninetieth < 1e-3


def _point(op: str, size: float, seconds: float) -> MeasuredPoint:
    return MeasuredPoint("host", op, {}, "bf16", 0.0, size, 1, summary([seconds], 1))
