"""What a row says of its network decides the NIC rate of its GPUs."""

from __future__ import annotations

import pytest

from tests.evidence.validate.made import step
from twin.evidence.validate.network_words import nic_of
from twin.evidence.validate.steps import scenario_of
from twin.evidence.validate.training import express


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("4x100G RoCE", 50),
        ("8 x 100 Gb/s", 100),
        ("8x400G", 400),
        ("4 NICs of 200 Gb/s", 100),
        ("4 HDR InfiniBand ports", 100),
        ("8x NDR InfiniBand", 400),
        ("1.6 Tb/s per node", 200),
        ("3200 Gb/s per node, EFA", 400),
        ("RDMA 400 Gb/s per GPU", 400),
        ("InfiniBand HDR100", 100),
        ("InfiniBand EDR", 100),
        ("200 Gb/s RoCE", 200),
        ("800 Gbps", 100),
        ("25G Ethernet", 3.125),
        ("100G Ethernet with RoCE", 100),
    ],
)
def test_words_give_the_rate_of_each_gpu(words: str, rate: float) -> None:
    assert nic_of(words, "H100", 8, 400).rate == rate


@pytest.mark.parametrize(
    "words", ["", "RoCE, up to 4 nodes", "PCIe Gen5 x16 / NVLink4", "IB 8x400G (H100) / cloud A100"]
)
def test_without_a_rate_the_catalogs_is_assumed_and_told(words: str) -> None:
    found = nic_of(words, "A100-80GB", 8, 200)
    assert found.rate is None
    assert "200 Gb/s per GPU" in found.assumed


def test_a_dgx_has_the_nics_of_its_data_sheet() -> None:
    assert nic_of("DGX reference (8x400G NDR)", "B300", 8, 800).rate is None


@pytest.mark.parametrize(
    ("words", "open_question"),
    [("200 Gb/s RoCE", "per GPU"), ("800 Gbps", "node"), ("8x400G", None)],
)
def test_what_a_rate_leaves_open_is_told(words: str, open_question: str | None) -> None:
    assumed = nic_of(words, "H100", 8, 400).assumed
    assert open_question in assumed if open_question else not assumed


@pytest.mark.parametrize(
    ("gpu", "words", "rate"),
    [
        ("A100-80GB", "4x100G RoCE", 50),
        ("H100", "8x100G", 100),
        ("H800", "InfiniBand 200 Gb/s", 200),
    ],
)
def test_a_slower_nic_reaches_the_scenario(gpu: str, words: str, rate: float) -> None:
    row = step("row", system={"gpu": gpu, "gpus": 16, "network": words})
    node = scenario_of(express(row)).cluster.node
    assert node.nic.bandwidth == rate * 1e9 / 8


def test_nodes_have_as_many_gpus_as_the_row_says() -> None:
    system = {"gpu": "A100-80GB", "gpus": 8, "gpus_per_node": 4, "network": "4x100G"}
    cluster = scenario_of(express(step("row", system=system))).cluster
    assert (cluster.nodes, cluster.node.gpus) == (2, 4)
    assert cluster.node.nic.bandwidth == 100e9 / 8


def test_a_sister_chip_has_the_nvlink_that_its_words_say() -> None:
    system = {"gpu": "A100-80GB", "gpus": 8, "network": "NVLink 200GB/s"}
    node = scenario_of(express(step("row", system=system))).cluster.node
    assert node.nvlink.bandwidth == 200e9


def test_gpus_without_nvlink_talk_over_pcie() -> None:
    system = {"gpu": "A100-80GB", "gpus": 8, "network": "PCIe A100 without NVLink"}
    node = scenario_of(express(step("row", system=system))).cluster.node
    assert node.nvlink.bandwidth == node.host.pcie.bandwidth
    assert not node.nvlink_sharp
