"""How tokens come to their experts and back: one module per dispatcher, each with `dispatch` (from
the hidden state to what experts read, which is kept) and `combine` (from what they give to one row
per token).

To add a dispatcher: one module here, its name in `twin.arch.ops.Dispatcher`, and one line below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twin.arch.dispatchers import allgather, alltoall, einsum, loop, merged, padded
from twin.arch.dispatchers.base import Way
from twin.arch.ops import Dispatcher as Name
from twin.arch.ops import Item, Shape
from twin.spec.model import Moe

Steps = Callable[[Way, Moe, Shape], tuple[Item, ...]]


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Both ways."""

    dispatch: Steps
    combine: Steps


_DISPATCHERS: Final[dict[Name, Dispatcher]] = {
    "alltoall": Dispatcher(alltoall.dispatch, alltoall.combine),
    "deepep": Dispatcher(merged.dispatch, merged.combine),
    "hybridep": Dispatcher(merged.dispatch, merged.combine),
    "allgather": Dispatcher(allgather.dispatch, allgather.combine),
    "einsum": Dispatcher(einsum.dispatch, einsum.combine),
    "padded": Dispatcher(padded.dispatch, padded.combine),
    "loop": Dispatcher(loop.dispatch, loop.combine),
}


def chosen(shape: Shape) -> Dispatcher:
    """That of a shape. Copies are merged only where there are several expert ranks."""
    if shape.arriving is not None:
        return _DISPATCHERS["deepep"]
    plain = shape.dispatcher in ("deepep", "hybridep")
    return _DISPATCHERS["alltoall" if plain else shape.dispatcher]
