"""The key figures by which a run is judged, defined once: name, unit, and which direction is good.

`twin.reports.kpis` computes them; a scenario may say what it expects of them (`twin.spec.expect`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from twin.units import Dimension

Unit = Literal[
    "s",
    "tok/s",
    "tok/s/GPU",
    "%",
    "TFLOP/s",
    "bytes",
    "bytes/s",
    "d",
    "GPU-h",
    "USD",
    "kWh",
    "t",
    "W",
    "/d",
]
Better = Literal["lower", "higher"]

MEASURES: Mapping[Unit, tuple[Dimension, float]] = MappingProxyType(
    {
        "s": ("seconds", 1.0),
        "d": ("seconds", 86400.0),
        "tok/s": ("tokens_per_s", 1.0),
        "tok/s/GPU": ("tokens_per_s_per_gpu", 1.0),
        "TFLOP/s": ("flop_per_s", 1e12),
        "bytes": ("bytes", 1.0),
        "bytes/s": ("bytes_per_s", 1.0),
        "GPU-h": ("gpu_hours", 1.0),
        "USD": ("usd", 1.0),
        "kWh": ("kwh", 1.0),
        "t": ("tonnes", 1.0),
        "W": ("watts", 1.0),
    }
)
"""What a planner writes to compare a figure of this unit with, and how much of it one unit is.
Shares (`%`) and how often a day (`/d`) are plain numbers."""


@dataclass(frozen=True, slots=True)
class Kpi:
    """One key figure: its name in the JSON, what people call it, its unit, and which direction is
    good."""

    key: str
    label: str
    unit: Unit
    better: Better


KPIS = (
    Kpi("step_seconds", "Step time", "s", "lower"),
    Kpi("tokens_per_second", "Tokens per second", "tok/s", "higher"),
    Kpi("tokens_per_second_per_gpu", "Tokens per second per GPU", "tok/s/GPU", "higher"),
    Kpi("mfu", "Model FLOP utilisation (MFU)", "%", "higher"),
    Kpi("hfu", "Hardware FLOP utilisation (HFU)", "%", "higher"),
    Kpi("model_tflops_per_gpu", "Model FLOP rate per GPU", "TFLOP/s", "higher"),
    Kpi("bubble_fraction", "Pipeline bubble", "%", "lower"),
    Kpi("exposed_communication_seconds", "Exposed communication", "s", "lower"),
    Kpi("peak_device_bytes", "Peak device memory, without reserve", "bytes", "lower"),
    Kpi("peak_host_bytes_per_node", "Peak host memory per node", "bytes", "lower"),
    Kpi("days", "Run time, no failures", "d", "lower"),
    Kpi("gpu_hours", "GPU-hours, no failures", "GPU-h", "lower"),
    Kpi("cost_usd", "Cost, no failures", "USD", "lower"),
    Kpi("energy_kwh", "Energy at the meter", "kWh", "lower"),
    Kpi("energy_cost_usd", "Cost of energy", "USD", "lower"),
    Kpi("co2_tonnes", "CO2e of energy", "t", "lower"),
    Kpi("average_watts_per_gpu", "Mean power of a GPU", "W", "lower"),
    Kpi("goodput_fraction", "Effective share of the time", "%", "higher"),
    Kpi("days_with_failures", "Run time, with failures", "d", "lower"),
    Kpi("cost_usd_with_failures", "Cost, with failures", "USD", "lower"),
)
"""Every key figure, in the order of the public contract."""
OF_A_SITE: frozenset[str] = frozenset(("energy_kwh", "energy_cost_usd", "co2_tonnes"))
"""Those that only a scenario with a site has."""
OF_SERVING: frozenset[str] = frozenset(("first_token_seconds", "next_token_seconds"))
"""Those that only rollouts with arrivals or a pool that prefills have."""
OF_FAILURES: frozenset[str] = frozenset(
    ("goodput_fraction", "days_with_failures", "cost_usd_with_failures")
)
"""Those that only a scenario with a section `goodput` has."""
WITH_FAILURES: Mapping[str, str] = MappingProxyType(
    {"days": "days_with_failures", "cost_usd": "cost_usd_with_failures"}
)
"""Key figures without failures, and the same with them."""

UPDATE_KPIS = (
    Kpi("update_seconds", "Update time", "s", "lower"),
    Kpi("gather_seconds", "Gathering metadata, before it", "s", "lower"),
    Kpi("bytes_per_second", "Checkpoint bytes per second", "bytes/s", "higher"),
    Kpi("peak_device_bytes", "Device memory, without reserve", "bytes", "lower"),
    Kpi("peak_host_bytes_per_node", "Host memory per node", "bytes", "lower"),
    Kpi("gpu_hours", "GPU-hours of one update", "GPU-h", "lower"),
    Kpi("cost_usd", "Cost of one update", "USD", "lower"),
)
"""The key figures of a weight update."""

ROLLOUT_KPIS = (
    Kpi("rollout_seconds", "Rollouts of an iteration", "s", "lower"),
    Kpi("tokens_per_second", "Tokens written per second", "tok/s", "higher"),
    Kpi("tokens_per_second_per_gpu", "Tokens written per second, per GPU", "tok/s/GPU", "higher"),
    Kpi("tail_share", "Time after nine of ten requests are done", "%", "lower"),
    Kpi("idle_share", "GPUs with nothing to do", "%", "lower"),
    Kpi("cost_usd_of_rollouts", "Cost of an iteration's rollouts", "USD", "lower"),
    Kpi("first_token_seconds", "Time to first token, of nine in ten requests", "s", "lower"),
    Kpi("next_token_seconds", "Time per further token", "s", "lower"),
)
"""The key figures of rollouts alone, in their steady state."""

ITERATION_KPIS = (
    Kpi("iteration_seconds", "Iteration of reinforcement learning", "s", "lower"),
    Kpi("iterations_per_day", "Iterations per day", "/d", "higher"),
    Kpi("rollout_seconds", "Rollouts of an iteration", "s", "lower"),
    Kpi("train_seconds", "Training of an iteration", "s", "lower"),
    Kpi("trained_tokens_per_second_per_gpu", "Trained tokens per second", "tok/s/GPU", "higher"),
    Kpi("idle_share", "GPUs with nothing to do", "%", "lower"),
    Kpi("cost_usd_per_iteration", "Cost of an iteration", "USD", "lower"),
)
"""The key figures of an iteration of reinforcement learning, in its steady state."""
