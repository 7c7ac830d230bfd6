"""What the engine holds on the device while it plays, against what the ledger says it may."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate

import pytest

import twin
from twin.engine.events import play
from twin.engine.graph import Graph
from twin.engine.played import Played
from twin.engine.program import COMPUTE, FROM_HOST, TO_HOST
from twin.engine.unroll import unroll
from twin.planning.footprint import Footprint, footprints
from twin.planning.walk import walk

K2 = "kimi-k2-2048xh800"
SLOW = "cluster.node.host.pcie.efficiency=0.1"
"""Copies that take longer than passes: what waits for them piles up, if nothing holds it back."""
SHORT = "train.global_batch=2048seq"
SMALL = 1e6
"""Bytes that no ledger notices."""
PLAIN = ("parallel.virtual=1", "train.global_batch=4096seq")


@pytest.mark.parametrize(
    "overrides",
    [
        (SHORT,),
        (SHORT, SLOW),
        (*PLAIN, SLOW, "parallel.schedule=1f1b"),
        (*PLAIN, SLOW, "parallel.schedule=zb_h1"),
        (*PLAIN, SLOW, "parallel.schedule=zb_h2"),
        (*PLAIN, SLOW, "parallel.schedule=dualpipe"),
    ],
    ids=["paired", "paired, slow copies", "1f1b", "zb_h1", "zb_h2", "dualpipe"],
)
def test_the_played_step_never_holds_more_activations_than_the_ledger(
    overrides: tuple[str, ...],
) -> None:
    plan = twin.plan(twin.load(K2, overrides))
    program = twin.lower(plan)
    graph = unroll(program, program.microbatches)
    needs = footprints(plan.chunks)
    held = most_held(graph, play(graph, program), needs)
    shape = program.stages, program.chunks_per_stage, program.microbatches
    allowed = [
        walk(actions, needs).during[:, 0].max() for actions in program.schedule.order(*shape)
    ]
    assert len(held) == len(allowed)
    for role, most in enumerate(allowed):
        assert held[role] <= most * (1 + 1e-9), f"role {role}"
    # Else the bound would say nothing.
    assert max(held[role] / most for role, most in enumerate(allowed)) > 0.9


def most_held(graph: Graph, played: Played, needs: dict[int, Footprint]) -> dict[int, float]:
    """Most bytes at once, by role: from the start of a forward, or of the copy back, to the end of
    the copy out, or of the backward; then what the weights' half waits with, to its end."""
    spans: dict[tuple[int, int, int], dict[str, tuple[int, int]]] = defaultdict(dict)
    for op, (role, microbatch) in enumerate(
        zip(graph.role.tolist(), graph.microbatch.tolist(), strict=True)
    ):
        if microbatch < 0 or (kind := _kind(graph, op)) is None:
            continue
        own = spans[role, int(graph.chunk[op]), microbatch]
        start = own[kind][0] if kind in own else played.start[op]
        own[kind] = start, played.end[op]
    changes: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for (role, chunk, _), own in spans.items():
        need = needs[chunk]
        if "forward" not in own or "backward" not in own:
            # An empty chunk, and the halves of the embedding's backward: some bytes of indices.
            assert need.kept.activations < SMALL
            continue
        stays = [(own["forward"][0], own["backward"][1], need.kept.activations)]
        if "out" in own:
            away = own["out"][1], own["back"][0]
            stays = [(stays[0][0], away[0], stays[0][2]), (away[1], stays[0][1], stays[0][2])]
        if "weight" in own:
            stays.append((own["backward"][1], own["weight"][1], need.late.activations))
        for begin, end, size in stays:
            changes[role] += [(begin, size), (end, -size)]
    # Of one instant, what leaves comes first.
    return {
        role: max(accumulate(size for _, size in sorted(all_))) for role, all_ in changes.items()
    }


def _kind(graph: Graph, op: int) -> str | None:
    match graph.stream[op], graph.names[graph.name[op]]:
        case (stream, _) if stream == TO_HOST:
            return "out"
        case (stream, _) if stream == FROM_HOST:
            return "back"
        case (stream, name) if stream == COMPUTE and name != "empty":
            return {"forward": "forward", "backward_weight": "weight"}.get(name, "backward")
        case _:
            return None
