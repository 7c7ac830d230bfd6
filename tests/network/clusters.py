"""Small clusters for the tests of this room, with rates that are easy to reckon with."""

from __future__ import annotations

from twin.spec.cluster import ClusterSpec


def cluster(nodes: int, **fabric: object) -> ClusterSpec:
    """`nodes` nodes of 4 GPUs: NVLink 100 GB/s x 0.5, NIC 10 GB/s x 0.8, two nodes per leaf, three
    spines."""
    link = {"efficiency": 0.5, "latency": "2us"}
    gpu = {
        "name": "g",
        "memory": "80GiB",
        "memory_bandwidth": "2TB/s",
        "bf16_dense": "100TFLOP/s",
        "sms": 100,
        "calibration": "c",
    }
    host = {
        "memory": "1TB",
        "memory_bandwidth_per_socket": "200GB/s",
        "sockets": 2,
        "pcie": {"bandwidth": "50GB/s"} | link,
    }
    node = {
        "name": "n",
        "gpu": gpu,
        "gpus": 4,
        "nvlink": {"bandwidth": "100GB/s"} | link,
        "nic": {"bandwidth": "10GB/s", "efficiency": 0.8, "latency": "3us"},
        "host": host,
    }
    wires = {
        "name": "f",
        "kind": "rail_fat_tree",
        "nodes_per_leaf": 2,
        "spines": 3,
        "efficiency": 0.5,
        "hop_latency": "1us",
    }
    return ClusterSpec.model_validate({"node": node, "nodes": nodes, "fabric": wires | fabric})
