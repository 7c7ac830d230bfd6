"""Loads of experts that differ from layer to layer: each layer has its own fullest rank."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from twin import load as read
from twin import lower, plan, simulate
from twin.arch.ops import Item, Op
from twin.errors import ScenarioError
from twin.planning.chunks import layers_of, shape_of
from twin.planning.types import Plan
from twin.routing import load
from twin.routing.base import rank_loads
from twin.routing.by_layer import ByLayer

LAYERS = ((3.0, 1.0, 2.0, 2.0), (1.0, 3.0, 2.0, 2.0), (1.0, 1.0, 5.0, 1.0))
RUN = """
schema: 1
name: uneven
model: mixtral-8x7b
cluster: {{node: h100-8gpu, nodes: 2, fabric: rail-fat-tree-400g}}
parallel: {{pipeline: 2, expert: 8, schedule: 1f1b}}
train: {{tokens: 1G, global_batch: 32seq, sequence: 4096tok, optimizer: adamw, routing: {routing}}}
"""


def made(routing: str, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    file = tmp_path_factory.mktemp("run") / "run.yaml"
    file.write_text(RUN.format(routing=routing))
    return plan(read(file))


def rows(*loads: int, layers: int = 32) -> str:
    """Each layer's loads are those of the first, moved on by an expert per layer."""
    own = [list(loads[at % 8 :] + loads[: at % 8]) for at in range(layers)]
    return f"{{kind: by_layer, loads: {own}}}"


def test_each_layer_has_its_own_fullest_rank() -> None:
    """Two ranks of two experts: 4 and 4, 4 and 4, 2 and 6 tokens."""
    routing = ByLayer(kind="by_layer", loads=LAYERS)
    assert routing.layer_loads(4, 2, 1) == pytest.approx((1.0, 1.0, 1.5))
    assert routing.layer_loads(4, 4, 1) == pytest.approx((1.5, 1.5, 2.5))
    assert load(routing, 4, 4) == pytest.approx((1.5 + 1.5 + 2.5) / 3)
    assert load(routing, 4, 1) == 1


def test_the_mean_layer_is_more_even_than_its_layers() -> None:
    routing = ByLayer(kind="by_layer", loads=LAYERS)
    assert sum(routing.shares(4)) == pytest.approx(1)
    assert max(rank_loads(routing, 4, 4)) < load(routing, 4, 4)


def test_layers_of_one_model_get_their_own_rows(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The first layer's fullest rank has twice the mean, all others are even."""
    uneven = [[2, *[6 / 7] * 7], *[[1] * 8] * 31]
    found = made(f"{{kind: by_layer, loads: {uneven}}}", tmp_path_factory)
    _, first, *others = (layer for chunk in found.chunks for layer in chunk.layers)
    rows = [_rows(layer.items) for layer in (first, *others[:31])]
    assert rows[0] == 2 * rows[1]
    assert set(rows[1:]) == {rows[1]}
    assert shape_of(found.scenario).kept_load == pytest.approx(1 + 1 / 32)


def _rows(items: Iterable[Item]) -> int:
    (op,) = [one for one in items if isinstance(one, Op) and one.name == "experts_up"]
    assert op.forward.product is not None
    return op.forward.product.rows


def test_full_ranks_that_change_cost_time_and_no_memory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The same loads in every layer, or moved on by an expert: as long a step, and less kept."""
    loads = (16, 8, 8, 8, 8, 8, 8, 8)
    moving = made(rows(*loads), tmp_path_factory)
    still = made(f"{{kind: histogram, loads: {list(loads)}}}", tmp_path_factory)
    steps = [simulate(lower(one)).step_ns for one in (moving, still)]
    assert steps[0] == steps[1]
    assert shape_of(moving.scenario).kept_load == pytest.approx(1.0)
    kept = [sum(one.saved for one in layers_of(made.scenario)[5].items) for made in (moving, still)]
    assert kept[0] < kept[1]


def test_stages_are_balanced_as_if_layers_were_alike(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    heavy = [[9, *[1] * 7]] * 8 + [[1] * 8] * 24
    found = made(f"{{kind: by_layer, loads: {heavy}}}", tmp_path_factory)
    even = made("balanced", tmp_path_factory)
    assert [len(c.layers) for c in found.chunks] == [len(c.layers) for c in even.chunks]


@pytest.mark.parametrize("loads", [rows(*[1] * 8, layers=31), rows(*[1] * 7)])
def test_every_layer_and_expert_has_to_be_named(
    loads: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(ScenarioError, match="TW136"):
        made(loads, tmp_path_factory)
