"""Every number of the catalog's hardware says where it comes from, and none is unphysical."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from tests.hardware.catalog import CATALOG, leaf, leaves, plain, read, whole
from twin import units
from twin.network import topology
from twin.sources import KINDS
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import FabricSpec, GpuSpec, NodeSpec

SPECS = {
    "gpus": GpuSpec,
    "nodes": NodeSpec,
    "fabrics": FabricSpec,
    "calibrations": CalibrationSpec,
}
PARTS = sorted(f"{folder}/{path.stem}" for folder in SPECS for path in (CATALOG / folder).iterdir())
SOURCES = read(CATALOG / "sources.yaml")

# Last key of a path -> (dimension, low, high) in SI units: what devices of 2020 to 2026 can be.
BANDS: dict[str, tuple[units.Dimension, float, float]] = {
    "bf16_dense": ("flop_per_s", 50e12, 5e15),
    "fp8_dense": ("flop_per_s", 100e12, 20e15),  # Rubin, as announced: 17.5 PFLOP/s
    "memory_bandwidth": ("bytes_per_s", 0.5e12, 25e12),  # HBM4 of Rubin: 22 TB/s
    "memory_bandwidth_per_socket": ("bytes_per_s", 50e9, 1.5e12),  # of one Vera: 1.2 TB/s
    "latency": ("seconds", 0.1e-6, 20e-6),
    "hop_latency": ("seconds", 0.05e-6, 5e-6),
    "launch": ("seconds", 0.1e-6, 50e-6),
    "dispatch": ("seconds", 1e-6, 200e-6),
    "bytes": ("bytes", 1e6, 8e9),
}
RATES = {"nvlink": (50e9, 2e12), "nic": (5e9, 200e9), "pcie": (10e9, 500e9)}  # NVLink 6, NVLink-C2C


def is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(re.fullmatch(r"[0-9.]+ ?[A-Za-z/]+", value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers(part: str) -> list[tuple[str, dict[str, Any]]]:
    """Path and annotation of every number of a part, with its file's default source and kind."""
    return [(path, leaf) for path, leaf in leaves(whole(part)) if is_number(leaf["value"])]


@pytest.mark.parametrize("part", PARTS)
def test_every_number_has_a_known_source_and_a_kind(part: str) -> None:
    assert len(numbers(part)) >= 4
    for path, number in numbers(part):
        assert number["source"] in SOURCES, path
        assert number.get("kind") in KINDS, path
        assert set(number) <= {"value", "source", "kind", "range", "note"}, path


@pytest.mark.parametrize("part", PARTS)
def test_a_number_lies_in_its_range_and_an_assumption_says_why(part: str) -> None:
    for path, number in numbers(part):
        if "range" in number:
            low, value, high = (
                si(path, v) for v in (number["range"][0], number["value"], number["range"][1])
            )
            assert low <= value <= high, path
        if number["kind"] in ("assumed", "fitted"):
            assert number.get("note"), path


@pytest.mark.parametrize("part", [p for p in PARTS if p.startswith("calibrations/")])
def test_every_number_of_a_calibration_has_a_range_and_a_note(part: str) -> None:
    for path, number in numbers(part):
        if re.search(r"\.(sides|inner)\.\d$", path):
            continue  # what was measured, not what came of it
        assert number.get("range"), path
        assert number.get("note"), path


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_what_its_room_reads(part: str) -> None:
    folder, name = part.split("/")
    spec = SPECS[folder].model_validate(plain(part))
    if folder != "gpus":
        assert spec.name == name


@pytest.mark.parametrize("part", PARTS)
def test_rates_and_times_are_physical(part: str) -> None:
    for path, number in numbers(part):
        *_, section, key = ("", *path.split("."))
        value = si(path, number["value"])
        if key == "bandwidth" and section in RATES:
            low, high = RATES[section]
        elif key in BANDS:
            _, low, high = BANDS[key]
        elif key in ("efficiency", "gemm", "attention_forward", "attention_backward"):
            # Below a third: kernels of an older generation, as FlashAttention-2 on Blackwell and
            # the first one on Hopper. Below a seventh: those that compute what a mask drops.
            older = part in ("calibrations/b200-flash2", "calibrations/h100-llm-foundry")
            masked = part.endswith("-masked")
            low, high = 0.05 if masked else 0.1 if older else 0.3, 1.0
        else:
            continue
        assert low <= value <= high, path


def test_references_between_parts_hold() -> None:
    for part in PARTS:
        data = plain(part)
        if part.startswith("gpus/"):
            calibration = plain(f"calibrations/{data['calibration']}")
            assert calibration["gpu"] == data["name"]
        if part.startswith("fabrics/"):
            assert data["kind"] in topology.kinds()


def names_of(folder: str) -> set[str]:
    return {path.stem for path in (CATALOG / folder).iterdir()}


def test_every_gpu_has_a_node_and_every_node_a_gpu() -> None:
    nodes = {plain(f"nodes/{name}")["gpu"]["name"] for name in names_of("nodes")}
    assert nodes == {plain(f"gpus/{name}")["name"] for name in names_of("gpus")}


def test_every_gpu_of_the_published_measurements_is_there() -> None:
    """NVIDIA's data-centre GPUs from A100 to Blackwell Ultra that training rows are published
    for."""
    wanted = {"A100-80GB", "H100", "H100-96GB-HBM2e-500W", "H200", "H20", "H800"}
    wanted |= {"B200", "B300", "GB200", "GB300"}
    assert wanted <= {plain(f"gpus/{name}")["name"] for name in names_of("gpus")}


@pytest.mark.parametrize(
    ("gpu", "marketing"),
    [("h200", 141), ("h20", 96), ("b200", 180), ("b300", 288), ("gb200", 186), ("gb300", 288)],
)
def test_a_driver_exposes_not_the_gigabytes_of_the_datasheet(gpu: str, marketing: int) -> None:
    """0 to 7 % more than as many GB of 10^9 bytes, and less than as many GiB; each a whole number
    of MiB."""
    memory = si("memory", leaf(f"gpus/{gpu}", "memory")["value"])
    assert marketing * 1e9 <= memory < marketing * 2**30
    assert memory % 2**20 == 0


def test_an_nvl72_rack_is_one_nvlink_domain_of_72_gpus_and_36_sockets() -> None:
    for name, nic in (("gb200-nvl72", 50e9), ("gb300-nvl72", 100e9)):
        node = NodeSpec.model_validate(plain(f"nodes/{name}"))
        assert (node.gpus, node.host.sockets) == (72, 36)
        assert node.nvlink.bandwidth == 900e9
        assert node.nic.bandwidth == nic


def test_nics_are_those_of_each_generation() -> None:
    for name, rate in (
        ("h100", 50e9),
        ("h200", 50e9),
        ("h20", 50e9),
        ("b200", 50e9),
        ("b300", 100e9),
    ):
        assert NodeSpec.model_validate(plain(f"nodes/{name}-8gpu")).nic.bandwidth == rate


def test_oversubscribed_fabrics_have_that_many_fewer_links_up() -> None:
    for base in ("rail-fat-tree-400g", "clos-400g"):
        full = FabricSpec.model_validate(plain(f"fabrics/{base}"))
        for name in (f"{base}-2to1", f"{base}-4to1"):
            less = FabricSpec.model_validate(plain(f"fabrics/{name}"))
            assert full.spines / less.spines == less.oversubscription > 1


def test_a_calibration_without_rows_is_assumed_throughout() -> None:
    for part in (p for p in PARTS if p.startswith("calibrations/")):
        kinds = {number["kind"] for _, number in numbers(part)}
        unmeasured = whole(part)["software"]["value"].startswith("assumed")
        assert (kinds == {"assumed"}) == unmeasured, part


def test_every_source_can_be_looked_up() -> None:
    for name, source in SOURCES.items():
        assert set(source) == {"title", "url", "date"}, name
        ours = name in ("twin", "reference-presets", "gloo-netns")
        assert ours or source["url"].startswith("https://"), name


def test_an_80_gb_gpu_exposes_85_5_gb_and_keeps_a_few() -> None:
    for name in ("h800", "a100-80gb"):
        gpu = GpuSpec.model_validate(plain(f"gpus/{name}"))
        assert gpu.memory == pytest.approx(85.5e9, rel=1e-3)
        assert 1e9 < sum(entry.bytes for entry in gpu.reserve) < 8e9


def test_the_h800_node_carries_150_gb_per_s_on_nvlink_and_46_to_49_on_a_nic() -> None:
    """Up to the 160 GB/s that DeepSeek-V3's report calls usable."""
    node = NodeSpec.model_validate(plain("nodes/h800-8gpu"))
    assert node.nvlink.bandwidth * node.nvlink.efficiency == pytest.approx(150e9)
    assert node.nvlink.bandwidth * leaf("nodes/h800-8gpu", "nvlink.efficiency")["range"][1] == 160e9
    assert 46e9 <= node.nic.bandwidth * node.nic.efficiency <= 49e9
    assert node.host.pcie.bandwidth * node.host.pcie.efficiency == pytest.approx(55e9, rel=0.01)


def test_two_gpus_on_one_nic_get_half_each() -> None:
    shared = NodeSpec.model_validate(plain("nodes/a100-80gb-8gpu-4x200g"))
    own = NodeSpec.model_validate(plain("nodes/a100-80gb-8gpu-8x200g"))
    assert shared.nic.bandwidth * 2 == own.nic.bandwidth == 25e9


def test_latencies_between_nodes_are_the_published_ones() -> None:
    """Table 5 of the ISCA paper: RoCE on H800, InfiniBand borrowed for A100; one leaf, and three
    switches."""
    rows = {
        "h800-8gpu": ("400g", 3.6e-6, 5.6e-6),
        "a100-80gb-8gpu-8x200g": ("200g", 2.8e-6, 3.7e-6),
    }
    for node, (fabric, same_leaf, cross_leaf) in rows.items():
        base = NodeSpec.model_validate(plain(f"nodes/{node}")).nic.latency
        hop = FabricSpec.model_validate(plain(f"fabrics/rail-fat-tree-{fabric}")).hop_latency
        assert base + hop == pytest.approx(same_leaf)
        assert base + 3 * hop == pytest.approx(cross_leaf)


def test_2048_gpus_fill_the_400g_tree_at_full_bisection() -> None:
    """256 nodes x 8 rails: 64 leaves of 64 ports and 32 spines of 64 ports."""
    fabric = FabricSpec.model_validate(plain("fabrics/rail-fat-tree-400g"))
    leaves_needed = 256 // fabric.nodes_per_leaf * 8
    assert (leaves_needed, fabric.nodes_per_leaf + fabric.spines) == (64, 64)
    assert leaf("fabrics/rail-fat-tree-400g", "spines")["kind"] == "assumed"


def si(path: str, value: Any) -> float:
    """A written number in SI units; the last key of its path tells the dimension."""
    if not isinstance(value, str):
        return float(value)
    for dimension in get_args(units.Dimension):
        try:
            return units.parse(value, dimension)
        except units.QuantityError:
            continue
    raise AssertionError(f"{path}: {value} is no quantity")
