"""Dispatchers beside each other: what they send and what their kernels move, by hand for one layer
of Mixtral 8x7B (8 experts, 2 per token, hidden 4,096) with 4,096 tokens on each of 4 ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from tests.arch.models import catalog
from twin.arch.dispatchers import chosen
from twin.arch.kernels import ELEMENT, SINGLE
from twin.arch.ops import Dispatcher, Exchange, Layer, Op, Shape
from twin.arch.stack import layers
from twin.loading import load
from twin.planning.chunks import shape_of

MIXTURE = catalog("mixtral-8x7b")
TOKENS, HIDDEN, RANKS, CHOSEN, EXPERTS = 4096, 4096, 4, 2, 8
VALUES = TOKENS * HIDDEN
PLAIN = Shape(1, TOKENS, expert=RANKS)
NAMES: tuple[Dispatcher, ...] = get_args(Dispatcher)


def layer(shape: Shape) -> Layer:
    return layers(MIXTURE, shape)[4]


def ops(shape: Shape) -> dict[str, Op]:
    return {item.name: item for item in layer(shape).items if isinstance(item, Op)}


def exchanges(shape: Shape) -> dict[str, Exchange]:
    return {item.name: item for item in layer(shape).items if isinstance(item, Exchange)}


def by(name: Dispatcher) -> Shape:
    return replace(PLAIN, dispatcher=name, capacity=1.0 if name == "einsum" else None)


@pytest.mark.parametrize("name", NAMES)
def test_every_dispatcher_brings_tokens_there_and_back(name: Dispatcher) -> None:
    """Experts compute the same rows, and results follow them in the opposite order."""
    names = [item.name for item in layer(by(name)).items]
    assert names.index("dispatch") < names.index("experts_up") < names.index("combine")
    assert ops(by(name))["experts_up"].forward == ops(PLAIN)["experts_up"].forward
    assert sum(item.saved for item in layer(by(name)).items) >= ELEMENT * CHOSEN * VALUES


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_exchanges_nothing(name: Dispatcher) -> None:
    assert not exchanges(replace(by(name), expert=1))


def test_allgather_brings_all_tokens_to_every_rank() -> None:
    """Hidden states of four ranks, fp32 routing weights of all experts, and a byte per choice, for
    which the host waits; an all-to-all of two copies per token carries half of that."""
    found = exchanges(by("allgather"))
    assert found["dispatch"].bytes == ELEMENT * RANKS * VALUES
    assert found["dispatch_weights"].bytes == SINGLE * RANKS * TOKENS * EXPERTS
    assert (found["expert_counts"].bytes, found["expert_counts"].asks) == (
        RANKS * TOKENS * EXPERTS,
        True,
    )
    kinds = [(one.forward, one.backward) for one in (found["dispatch"], found["combine"])]
    assert kinds == [("all_gather", "reduce_scatter"), ("reduce_scatter", "all_gather")]
    assert exchanges(PLAIN)["combine"].bytes == ELEMENT * CHOSEN * VALUES


def test_the_fullest_rank_receives_no_more_by_allgather() -> None:
    even, fuller = by("allgather"), replace(by("allgather"), expert_load=1.5)
    assert exchanges(even)["dispatch"] == exchanges(fuller)["dispatch"]
    rows = ops(fuller)["experts_up"].forward.flop / ops(even)["experts_up"].forward.flop
    assert rows == 1.5


def test_a_mask_makes_work_that_grows_with_the_square_of_tokens() -> None:
    """2 x 4,096 tokens x 8,192 places x 4,096 each way, and once more for the mask's gradient."""
    found, twice = ops(by("einsum")), ops(replace(by("einsum"), sequence=2 * TOKENS))
    product = 2.0 * TOKENS * CHOSEN * TOKENS * HIDDEN
    for name in ("dispatch_permute", "combine_unpermute"):
        assert found[name].forward.flop == found[name].backward.flop == product
        assert twice[name].forward.flop == 4 * product
    assert found["combine_scores"].backward.flop == product
    assert "expert_counts" not in exchanges(by("einsum"))


def test_places_are_sent_and_computed_whether_filled_or_not() -> None:
    for name in ("alltoall", "einsum"):
        more = replace(by(name), capacity=1.5, expert_load=3.0)
        known = replace(by(name), capacity=1.0)
        ratio = ops(more)["experts_up"].forward.flop / ops(known)["experts_up"].forward.flop
        assert ratio == 1.5
        assert exchanges(more)["combine"].bytes == 1.5 * exchanges(known)["combine"].bytes
        assert "expert_counts" not in exchanges(more)
    assert "expert_counts" in exchanges(PLAIN)


def test_unfused_sums_move_zeros_and_each_row_three_times() -> None:
    """Fused: tokens read once and copies written; unfused every copy is read, and sums are zeros to
    which each copy is added."""
    fused, unfused = ops(PLAIN), ops(replace(PLAIN, permute="unfused"))
    assert fused["dispatch_permute"].forward.bytes == ELEMENT * (1 + CHOSEN) * VALUES
    assert unfused["dispatch_permute"].forward.bytes == ELEMENT * 2 * CHOSEN * VALUES
    added = ELEMENT * (1 + 3 * CHOSEN) * VALUES
    assert unfused["dispatch_permute"].backward.bytes == added
    assert unfused["combine_unpermute"].forward.bytes == added
    assert fused["combine_unpermute"].forward.bytes == ELEMENT * (1 + CHOSEN) * VALUES


MEGATRON: dict[str, dict[str, tuple[float, float]]] = {
    "fused": {
        "dispatch_permute": (3, 3),
        "dispatch": (2, 2),
        "dispatch_sort": (4, 4),
        "combine_sort": (4, 4),
        "combine": (2, 2),
        "combine_unpermute": (3, 3),
    },
    "unfused": {
        "dispatch_permute": (4, 7),
        "dispatch": (2, 2),
        "dispatch_sort": (4, 4),
        "combine_sort": (4, 4),
        "combine": (2, 2),
        "combine_unpermute": (7, 4),
    },
    "fp8": {
        "dispatch_permute": (3, 3),
        "dispatch": (2, 2),
        "dispatch_sort": (4, 4),
        "experts_pad": (4, 4),
        "experts_cast": (6, 0),
        "experts_unpad": (4, 4),
        "combine_sort": (4, 4),
        "combine": (2, 2),
        "combine_unpermute": (3, 3),
    },
}
"""Megatron-LM's `alltoall`, counted by hand in its code (`token_dispatcher.py`, `moe_utils.py`,
`experts.py` at d98e8a64): what moves forward and for gradients, in bf16 tensors of one hidden state
per token; two experts per token are two such tensors. A permutation reads tokens and writes copies;
`index_select` reads copies, and back adds each to zeros (written, then two reads and a write per
copy); sorting by expert, padding and its removal read and write copies. The cast reads copies twice
for a scale per tensor, and writes them whole and turned, half as wide."""
SHAPES = {
    "fused": PLAIN,
    "unfused": replace(PLAIN, permute="unfused"),
    "fp8": replace(PLAIN, precision="fp8", scaling="current", pads=True),
}


@pytest.mark.parametrize("kind", MEGATRON)
def test_megatrons_dispatcher_moves_what_its_code_does(kind: str) -> None:
    tensor, wanted = ELEMENT * VALUES, MEGATRON[kind]
    found: dict[str, tuple[float, float]] = {}
    for item in layer(replace(SHAPES[kind], weights_apart=True)).items:
        if isinstance(item, Exchange):
            found[item.name] = item.payload() / tensor, item.payload(backward=True) / tensor
        else:
            found[item.name] = item.forward.bytes / tensor, item.backward.bytes / tensor
    around = [name for name in found if name in wanted or name.startswith(("dispatch", "combine"))]
    weights = CHOSEN * SINGLE / HIDDEN / ELEMENT  # fp32, one of each copy, by themselves
    assert found["dispatch_weights"] == (weights, weights)
    assert [name for name in around if name != "dispatch_weights"] == list(wanted)
    for name, moved in wanted.items():
        assert found[name] == pytest.approx(moved, rel=0.02), name  # room for scales


def test_padding_is_for_fp8_products_of_dropless_experts_alone() -> None:
    """Not on HybridEP, which pads on its way, nor with places of a fixed number."""
    base = ["train.precision=fp8", "train.fp8_scaling=current", "software=megatron-core-tuned"]
    apart = ["parallel.dispatcher=alltoall"]
    for sets, padded in (
        ([*base, *apart], True),
        ([*base, "parallel.dispatcher=deepep"], True),
        ([*base, "parallel.dispatcher=hybridep"], False),
        ([*base, *apart, "train.expert_capacity=1.0"], False),
        ([*base, *apart, "software.pads_experts=false"], False),
        ([*base[1:], *apart], False),
    ):
        assert shape_of(load("kimi-k2-256xh800", sets)).pads == padded, sets


def test_padded_rows_are_copied_twice_more() -> None:
    """Behind a row of zeros, then picked again: read and written both times."""
    found = ops(by("padded"))
    assert found["dispatch_sort"].forward.bytes == ELEMENT * 4 * CHOSEN * VALUES
    assert found["combine_sort"].forward.bytes == ELEMENT * 2 * CHOSEN * VALUES
    assert ops(replace(by("padded"), expert=1))["dispatch_sort"] == found["dispatch_sort"]


def test_copies_are_merged_only_between_ranks() -> None:
    assert chosen(replace(PLAIN, dispatcher="deepep")) is chosen(PLAIN)
    assert chosen(replace(PLAIN, dispatcher="deepep", arriving=1.5)) is not chosen(PLAIN)


def test_a_loop_over_experts_moves_all_tokens_for_each_of_them_backward() -> None:
    """A pick's gradient is zeros for all tokens (2 bytes a number), its rows added to them, and all
    of it added to the gradient so far (6 bytes); and each expert launches its own kernels."""
    one = replace(by("loop"), expert=1)
    found = ops(one)["dispatch_permute"]
    whole = EXPERTS * (ELEMENT + 3 * ELEMENT) * VALUES
    assert found.backward.bytes == whole + 3 * ELEMENT * CHOSEN * VALUES
    assert (found.forward.kernels, found.backward.kernels) == (4 * EXPERTS, 3 * EXPERTS)
    assert ops(by("loop"))["dispatch_permute"].forward.kernels == 4 * EXPERTS / RANKS
