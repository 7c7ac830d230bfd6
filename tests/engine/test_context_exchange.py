"""How context ranks exchange: gathered, round a ring, by heads, and both; counts by hand, and laws
of whole steps."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from tests.engine.scenarios import dense
from twin.arch.ops import Exchange
from twin.engine import lower, plan, simulate
from twin.engine.cost_model import CostModel
from twin.engine.program import COMPUTE, CONTEXT
from twin.errors import TwinError
from twin.planning.types import Plan

RING = "parallel.context_ring=true"
SIZE = 2048 * 64 * (96 + 96) * 2
"""Bytes of keys and values of gpt-22b: 2,048 tokens, 64 heads of 96."""


def made(*more: str, context: int = 4) -> Plan:
    batch = f"train.global_batch={8 // context * 2}seq"
    usual = batch, "memory.recompute=[]", "train.attention_kernel=flash"
    return plan(dense(1, 1, 1, 1, f"parallel.context={context}", *usual, *more))


def exchanges(resolved: Plan) -> list[Exchange]:
    layer = resolved.chunks[0].layers[-2]
    return [one for one in layer.items if isinstance(one, Exchange) and one.group == "context"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_piece_of_a_ring_is_as_much_work(ranks: int) -> None:
    """Pairs of query and key, counted one by one, by rank and by whose keys they are. All pieces
    are whole squares of chunks but the rank's own, which has two half ones."""
    size, pieces = 4, Counter[tuple[int, int]]()

    def owner(token: int) -> int:
        chunk = token // size
        return min(chunk, 2 * ranks - 1 - chunk)

    tokens = range(2 * ranks * size)
    for query, key in product(tokens, tokens):
        if key <= query:
            pieces[owner(query), owner(key)] += 1
    assert len(pieces) == ranks * ranks
    for rank, other in pieces:
        square = 2 * size * size + (size if rank == other else 0)
        assert pieces[rank, other] == square


def test_a_ring_passes_on_what_a_gather_brings_and_gradients_beside_it() -> None:
    (ring,) = exchanges(made(RING))
    assert (ring.forward, ring.backward) == ("all_gather", "all_gather")
    assert (ring.payload(), ring.payload(backward=True), ring.circle) == (SIZE, 2 * SIZE, 4)


FAST = "cluster.node.nvlink={bandwidth: 90TB/s, latency: 0.1us}"


@pytest.mark.parametrize("links", ["cluster.node.nvlink.bandwidth=10GB/s", FAST])
def test_a_ring_takes_the_longer_of_kernel_and_transfer_and_one_piece(links: str) -> None:
    resolved = made(RING, links)
    costs, program = CostModel.of(resolved), lower(resolved)
    layer = resolved.chunks[0].layers[-2]
    place, ring = next(
        (at, one)
        for at, one in enumerate(layer.items)
        if isinstance(one, Exchange) and one.group == "context"
    )
    kernel = layer.items[place + 1]
    assert not isinstance(kernel, Exchange)
    whole = costs.kernels(kernel, "forward").seconds * 1e9
    launches = 3 * costs.calibration.launch * 1e9
    steps = program.passes["F", 0]
    at = next(i for i, step in enumerate(steps) if step.name == ring.name)
    sent = steps[at].alone_ns(program.capacity)
    beside, last = [s for s in steps[at + 1 :] if s.stream == COMPUTE][:2]
    assert steps[at].stream == CONTEXT
    assert at not in beside.after
    assert at in last.after
    assert beside.duration_ns == pytest.approx(0.75 * whole + launches, rel=0.01)
    assert (sent > whole) == (links != FAST)


def test_a_ring_is_exposed_only_where_it_is_slower_than_attention() -> None:
    def exposed(*more: str) -> float:
        return simulate(lower(made(*more))).breakdown_ns[0]["exposed_context"]

    assert exposed(FAST) > 0
    assert exposed(RING, FAST) == 0
    assert exposed(RING) > 0


def test_heads_and_tokens_change_places_by_two_exchanges() -> None:
    """A rank has 512 tokens of 64 heads: queries, keys and values of 96 out, and outputs back."""
    to_heads, to_tokens = exchanges(made("parallel.context_heads=4"))
    assert (to_heads.bytes, to_tokens.bytes) == (512 * 64 * 96 * 3 * 2, 512 * 64 * 96 * 2)
    assert {to_heads.forward, to_heads.backward, to_tokens.forward} == {"all_to_all"}


@pytest.mark.parametrize(("keys", "copies"), [(64, 64), (4, 4), (2, 4), (1, 4)])
def test_a_shared_head_goes_to_every_rank_that_needs_it(keys: int, copies: int) -> None:
    """By counting: of 64 query heads on 4 ranks, 16 each, which read 64 / `keys` to a head."""
    needed = {(query // 16, query * keys // 64) for query in range(64)}
    assert len(needed) == copies
    to_heads, _ = exchanges(made("parallel.context_heads=4", f"model.attention.kv_heads={keys}"))
    assert to_heads.bytes == 512 * 96 * 2 * (64 + 2 * copies)


@pytest.mark.parametrize("more", [(), (RING,)])
def test_neighbours_exchange_heads_and_others_keys(more: tuple[str, ...]) -> None:
    """Four neighbours to a group of eight: each rank then has 1,024 tokens of 16 heads, and two
    ranks have all tokens of these."""
    resolved = made("parallel.context_heads=4", *more, context=8)
    placed = resolved.placements
    assert (placed["context_heads"].size, placed["context_keys"].size) == (4, 2)
    found = {one.name: one for one in exchanges(resolved)}
    keys = found["context_ring" if more else "context_gather"]
    assert keys.payload() == 2048 * 16 * (96 + 96) * 2
    assert keys.place == "context_keys"
    assert found["context_to_heads"].place == "context_heads"


@pytest.mark.parametrize("ways", [("parallel.context_heads=4",), (RING,)])
def test_a_rank_computes_as_much_however_it_exchanges(ways: tuple[str, ...]) -> None:
    def flop(resolved: Plan) -> float:
        items = resolved.chunks[0].layers[-2].items
        ops = [one for one in items if not isinstance(one, Exchange)]
        return sum(one.forward.flop + one.backward.flop for one in ops)

    assert flop(made(*ways)) == flop(made())


def test_a_ring_holds_two_parts_and_a_gather_all() -> None:
    buffers = [made(*more).memory.stages[0].categories["context_buffers"] for more in ((), (RING,))]
    assert buffers == [2 * SIZE, 2 * (2 * SIZE) / 4]


@pytest.mark.parametrize(
    "changes",
    [
        ("parallel.context_heads=3",),
        ("parallel.context_heads=8",),
        ("parallel.context_heads=4", "model.attention.kv_heads=1", "parallel.tensor=32"),
        (RING, "train.attention_kernel=unfused"),
    ],
)
def test_what_context_ranks_cannot_do_is_refused(changes: tuple[str, ...]) -> None:
    with pytest.raises(TwinError) as refused:
        made(*changes)
    assert {"TW132", "TW102"} & {one.code for one in refused.value.problems}
