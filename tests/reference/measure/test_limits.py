"""Links fitted on copies and collectives of known rate and latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reference.measure import fitting
from reference.measure.catalog import gpu_text, node_text, several_text
from reference.measure.groups import GROUPS
from reference.measure.limits import DeviceLimits, device_limits, fit_links
from reference.measure.points import MeasuredPoint
from reference.measure.run import use
from tests.reference.measure.machines import CORE, H200, runnable, setting, timed
from twin.loading import load_part

BEST = DeviceLimits(1e11, 40e9, "fastest product", "fastest copy")


def copied(kind: str, rate: float, latency: float) -> list[MeasuredPoint]:
    cases = runnable(GROUPS["copies"](setting(kind, "kimi-k2-nano")))
    return [timed("copies", case, latency + case.bytes / rate) for case in cases]


def collected(ranks: int, rate: float, hop: float) -> list[MeasuredPoint]:
    found: list[MeasuredPoint] = []
    for case in runnable(GROUPS["collectives"](setting("cpu", "kimi-k2-nano", ranks=ranks))):
        sent, hops = fitting.sent(cast("Any", case.op), case.bytes, ranks)
        found.append(timed("collectives", case, sent / rate + hops * hop))
    return found


def text_of(folder: Path, kind: str, name: str, text: str) -> None:
    path = folder / "catalog" / kind / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    sources = folder / "catalog" / "sources.yaml"
    sources.write_text(
        'core: {title: t, url: u, date: "2026"}\nh200-here: {title: t, url: u, date: d}\n'
    )


def test_links_come_out_as_they_went_in() -> None:
    own = [*copied("cpu", 9e9, 2e-6), *collected(2, 1.5e9, 30e-6)]
    links = fit_links(own, BEST, "least")
    assert links.pcie_rate.value == pytest.approx(9e9, rel=1e-3)
    assert links.pcie_latency.value == pytest.approx(2e-6, rel=1e-3)
    assert links.rate.value == pytest.approx(1.5e9, rel=1e-3)
    assert links.latency.value == pytest.approx(30e-6, rel=1e-3)
    assert links.ranks == 2


def test_what_nobody_measured_is_said_to_be_assumed() -> None:
    links = fit_links([], BEST, "least")
    kinds = {one.kind for one in (links.rate, links.latency, links.pcie_rate, links.nic_rate)}
    assert kinds == {"assumed"}
    assert links.ranks == 1


def test_the_node_of_a_core_has_these_links(tmp_path: Path) -> None:
    links = fit_links([*copied("cpu", 9e9, 2e-6), *collected(2, 1.5e9, 30e-6)], BEST, "least")
    text_of(tmp_path, "gpus", "core", gpu_text(CORE, BEST))
    text_of(tmp_path, "nodes", "core", node_text(CORE, BEST, links))
    text_of(tmp_path, "nodes", "core-x2", several_text(CORE, 2))
    node = load_part("nodes", "core-x2", [tmp_path]).spec
    assert (node.gpus, node.gpu.name, node.gpu.calibration) == (2, "core", "core")
    assert node.gpu.bf16_dense == pytest.approx(1e11)
    assert node.gpu.memory * 2 == CORE.memory
    assert node.nvlink.bandwidth * node.nvlink.efficiency == pytest.approx(1.5e9, rel=1e-3)
    assert node.host.pcie.bandwidth == pytest.approx(9e9, rel=1e-3)
    assert load_part("nodes", "core", [tmp_path]).spec.gpus == 1


def test_a_gpu_that_the_catalog_knows_extends_its_parts(tmp_path: Path) -> None:
    own = copied("cuda", 50e9, 8e-6)
    limits = device_limits(own, H200, "median")
    assert (limits.gpu, limits.node) == ("h200", "h200-8gpu")
    text_of(tmp_path, "gpus", "h200-here", gpu_text(H200, limits))
    text_of(
        tmp_path, "nodes", "h200-here", node_text(H200, limits, fit_links(own, limits, "median"))
    )
    node = load_part("nodes", "h200-here", [tmp_path]).spec
    assert (node.gpu.name, node.gpu.memory, node.gpus) == ("H200", H200.memory, 1)
    assert node.gpu.bf16_dense == 989e12
    pcie = node.host.pcie
    assert pcie.bandwidth * pcie.efficiency == pytest.approx(50e9, rel=1e-3)
    assert node.nvlink == load_part("nodes", "h200-8gpu").spec.nvlink


@pytest.mark.parametrize(("call", "slowness"), [(27e-6, 2.0), (10e-6, 1.0)])
def test_a_gpus_host_is_as_slow_as_its_call_of_the_framework(
    call: float, slowness: float, tmp_path: Path
) -> None:
    """A linear layer takes 13.5 us on an H100 server, and no host counts as faster."""
    case, *_ = runnable(GROUPS["host"](setting("cuda", "kimi-k2")))
    own = [*copied("cuda", 50e9, 8e-6), timed("host", case, call)]
    limits = device_limits(own, H200, "median")
    text_of(tmp_path, "gpus", "h200-here", gpu_text(H200, limits))
    links = fit_links(own, limits, "median")
    text_of(tmp_path, "nodes", "h200-here", node_text(H200, limits, links))
    node = load_part("nodes", "h200-here", [tmp_path]).spec
    assert node.host.slowness == pytest.approx(slowness)
    assert use(H200, tmp_path).endswith(f"cluster.node.host.slowness: {slowness:g}")


@pytest.mark.parametrize(
    ("device", "memory", "units", "known"),
    [
        ("NVIDIA H200", 143771 * 2**20, 132, "h200"),
        ("NVIDIA H100 80GB HBM3", 81559 * 2**20, 132, "h100"),
        ("NVIDIA H800", 81559 * 2**20, 132, "h800"),
        ("NVIDIA A100-SXM4-80GB", 81920 * 2**20, 108, "a100-80gb"),
        ("NVIDIA H100 PCIe", 81559 * 2**20, 114, "h100-pcie"),  # fewer SMs, another peak
        ("NVIDIA GeForce RTX 4090", 24564 * 2**20, 128, None),
    ],
)
def test_a_gpu_is_known_by_its_name_memory_and_sms(
    device: str, memory: int, units: int, known: str | None
) -> None:
    machine = replace(H200, device=device, memory=memory, units=units)
    own: Sequence[MeasuredPoint] = ()
    assert device_limits(own, machine, "median").gpu == known
