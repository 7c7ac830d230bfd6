"""Actions in columns: the same actions, and how far steps of two lengths begin alike."""

from __future__ import annotations

from itertools import product

import pytest

from twin.planning.columns import alike, columns, columns_of
from twin.planning.offload import Trip, trips
from twin.schedules import KNOWN
from twin.schedules.base import Action, Schedule

KIMI = {"extra_warmup": 1, "overlap_all_to_all": True, "defer_weight_grad": True}
SCHEDULES = [
    *(member.model_validate({"kind": kind}) for kind, member in KNOWN.items()),
    KNOWN["interleaved_1f1b"].model_validate({"kind": "interleaved_1f1b", **KIMI}),
]
SHAPES = list(product((1, 2, 4, 8), (1, 2, 3), (1, 2, 5, 8, 12, 16, 24, 40)))


def cases() -> list[tuple[Schedule, int, int, int]]:
    return [
        (schedule, *shape)
        for schedule, shape in product(SCHEDULES, SHAPES)
        if not schedule.problems(*shape)
    ]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: f"{one.kind}-{one.pairs}")
def test_columns_hold_every_action(schedule: Schedule) -> None:
    for one, *shape in cases():
        if one != schedule:
            continue
        for actions in one.order(*shape):
            held = columns(actions)
            assert [held.action(at) for at in range(len(held))] == list(actions)
            past = held.past(len(actions) // 2)
            kinds = [action.kind for action in actions[: len(actions) // 2]]
            assert past == {kind: kinds.count(kind) for kind in "FBIW"}


def test_a_longer_step_begins_alike_while_every_chunk_has_forwards_to_come() -> None:
    """The law that spares the ledger the longer order; and where that ends is where they differ."""
    compared = 0
    for schedule, stages, chunks, microbatches in cases():
        period = schedule.period(stages, chunks, microbatches)
        longer = microbatches + (period or 0)
        if period is None or schedule.problems(stages, chunks, longer):
            continue
        if microbatches < schedule.warmup_microbatches(stages, chunks, longer) + period:
            continue
        orders = zip(
            schedule.order(stages, chunks, microbatches),
            schedule.order(stages, chunks, longer),
            strict=True,
        )
        for stage, (short, long) in enumerate(orders):
            pairs = enumerate(zip(short, long, strict=False))
            differ = next((at for at, (one, other) in pairs if one != other), len(short))
            assert alike(schedule, (stages, chunks), stage, (microbatches, longer)) == differ
            assert (
                columns_of(schedule, stages, chunks, microbatches)[stage].forwards_for_all < differ
            )
            compared += 1
    assert compared > 200


def test_what_a_pair_brings_back_at_once_does_not_leave() -> None:
    """The backward of a pair begins with its forward, so the copies out and back would meet."""

    def order(*, paired: bool) -> list[Action]:
        forwards = [Action("F", 0, 9), Action("F", 0, 0), Action("F", 0, 1, paired)]
        return [*forwards, Action("B", 0, 9), Action("B", 0, 0)]

    assert trips(order(paired=False)) == {(0, 0): Trip(out=2, gone=3, back=3)}
    assert trips(order(paired=True)) == {}
