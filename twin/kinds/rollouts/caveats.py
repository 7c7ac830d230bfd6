"""What to know of the times of an engine before one relies on them: where they lie outside of what
was measured."""

from __future__ import annotations

from collections.abc import Iterable

from twin.inference import Engine
from twin.planning.types import Warning
from twin.scenario import Scenario


def caveats(scenario: Scenario, server: Engine) -> Iterable[Warning]:
    """Of the engine that a scenario's rollouts run on; numbers outside of `rl` are told by the
    plan (`twin.planning.caveats`)."""
    profile, gpu = server.calibration, server.cluster.node.gpu.name
    if profile.gpu != gpu:
        text = (
            f"Calibration {profile.name} of the engine was measured on {profile.gpu}, not on "
            f"{gpu}: times of rollouts are extrapolated."
        )
        yield Warning("calibration-of-another-gpu", text)
    measured = profile.matmuls is not None and profile.matmuls.fp8 is not None
    if server.spec.precision == "fp8" and not measured:
        text = (
            f"Calibration {profile.name} of the engine has no FP8 products: they are taken to reach"
            " the shares of the FP8 peak that bf16 ones reach of theirs. Block-scaled kernels reach"
            " less, so passes take longer than told here."
        )
        yield Warning("calibration-without-fp8", text)
    names = sorted(
        path
        for path, number in scenario.ledger.items()
        if number.kind == "assumed" and path.startswith("rl.")
    )
    if names:
        text = f"Assumed, neither measured nor fitted: {', '.join(names)}. Times move with them."
        yield Warning("assumed-calibration", text)
