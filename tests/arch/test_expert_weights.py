"""Routing weights on what experts give: one more op and one more tensor, by hand."""

from __future__ import annotations

from tests.arch.models import TINY_MOE
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers

ROWS = 2 * 16 * 2  # tokens x top-k


def test_weights_on_outputs_keep_an_fp32_copy_of_them() -> None:
    inside, outputs = (
        layers(TINY_MOE, Shape(2, 16, weigh_outputs=late))[2] for late in (False, True)
    )
    added = [item for item in outputs.items if item not in inside.items]
    assert [item for item in outputs.items if item in inside.items] == list(inside.items)
    (op,) = added
    assert isinstance(op, Op)
    values = ROWS * TINY_MOE.hidden
    assert op.saved == 4 * values
    # Cast 2 + 4, product 4 + 4, cast 4 + 2; backward cast, two products that read two, cast.
    assert op.forward.bytes == (6 + 8 + 6) * values
    assert op.backward.bytes == (6 + 8 + 8 + 6) * values
    assert outputs.items.index(op) == 1 + [i.name for i in outputs.items].index("experts_down")
