"""Engines for tests."""

from __future__ import annotations

from functools import cache

from twin.inference.engine import Engine, engine
from twin.loading import load_part
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec


@cache
def cluster(node: str = "h800-8gpu", nodes: int = 32) -> ClusterSpec:
    return ClusterSpec(
        node=load_part("nodes", node).spec,
        nodes=nodes,
        fabric=load_part("fabrics", "rail-fat-tree-400g").spec,
    )


def made(model: str = "kimi-k2", node: str = "h800-8gpu", **spec: object) -> Engine:
    where = cluster(node)
    profile = load_part("calibrations", where.node.gpu.calibration).spec
    own = EngineSpec.model_validate({"gpus": 32, "expert_load": 1.0} | spec)
    return engine(own, load_part("models", model).spec, where, profile)
