"""Templates put together from remembered stretches equal those made layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import twin
from twin.answers.nearest import document, replaced
from twin.arch.ops import Layer
from twin.engine import layer_cache, plan
from twin.engine.builder import Builder
from twin.engine.cost_model import CostModel
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import Template
from twin.planning.types import Plan

K2 = document(twin.load("kimi-k2-2048xh800"))
ONE_CHUNK = {"parallel.virtual": 1, "parallel.schedule": {"kind": "1f1b"}, "parallel.pipeline": 4}
TENSOR = {"parallel.tensor": 4, "parallel.sequence_parallel": True}
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": {"memory.recompute": ["full"]},
    "experts again": {"memory.recompute": ["norms", "moe"]},
    "zero 2": {"parallel.zero": 2},
    "zero 3": {"parallel.zero": 3},
    "zero 3, kept whole in between": {"parallel.zero": 3, "memory.recompute": ["full"], **TENSOR},
    "bulk": {"parallel.overlap_tensor": "bulk", **TENSOR},
    "pieces": {"parallel.overlap_tensor": "pieces", "parallel.sequence_copies": True, **TENSOR},
}


def templates(resolved: Plan, costs: Callable[[], CostModel]) -> list[Template]:
    """All passes of chunks of one to five layers of all kinds, of a costs each or of one for
    all."""
    layers = tuple(layer for chunk in resolved.chunks for layer in chunk.layers)
    cuts = [layers[:5], layers[1:3], layers[2:6], layers[-4:], layers[:1], layers[1:6]]
    return [
        made
        for chunk in cuts
        for made in (
            forward_pass(chunk, costs()),
            backward_pass(chunk, costs()),
            input_pass(chunk, costs()),
            weight_pass(chunk, costs()),
        )
    ]


@pytest.mark.parametrize("changes", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_remembered_layers_make_the_templates_of_layers_one_by_one(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = plan(replaced(K2, ONE_CHUNK | changes))
    shared = CostModel.of(resolved)
    remembered = templates(resolved, lambda: shared)
    assert len(shared.stretches) < sum(map(len, remembered))

    def one_by_one(layer: Layer, key: object, builder: Builder, make: Callable[[], None]) -> None:
        del layer, key, builder
        make()

    monkeypatch.setattr(layer_cache, "add", one_by_one)
    assert templates(resolved, lambda: CostModel.of(resolved)) == remembered
