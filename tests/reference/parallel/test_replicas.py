"""The optimizer under replicas is the single process's, with shards whose ends cut matrices."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.memory.optimizer_states import OptimizerStates, unique_bytes
from reference.optim import blocks
from reference.optim.blocks import MASTER, is_expert, matrices
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from reference.parallel import replicas
from reference.parallel.groups import Group
from reference.parallel.replicas import Holders, Replicas
from reference.parallel.timeline import Tape
from tests.reference.memory import small
from tests.reference.parallel.ranks import run_ranks
from tests.reference.parallel.shared_weights import ODD, WIDE, Case, Rank, alone, rank_of, whole
from twin.errors import UsageError
from twin.spec.memory import MemorySpec

MUON = OptimizerSpec(lr=0.02)
ADAMW = OptimizerSpec(kind="adamw", lr=0.02)
CASES = [
    Case(MUON.model_copy(update={"nesterov": nesterov, "momentum_buffer": buffer}))
    for nesterov in (False, True)
    for buffer in ("sum", "average")
] + [
    Case(MUON, zero=0),
    Case(ADAMW),
    Case(ADAMW, zero=0),
]
LAYOUTS = [(1, 1), (2, 1), (2, 2), (4, 2)]
"""Ranks, and how many of them share a layer's experts."""


def trained(rank: int, world: int, cases: list[Case]) -> list[tuple[dict[str, Tensor], Rank]]:
    """Weights, and what the rank counted."""
    found = []
    for case in cases:
        one = rank_of(rank, world, case)
        one.train(0, case.steps)
        found.append((one.weights(), dict(one.tape.bytes), dict(one.tape.counts)))
    return found


@pytest.mark.parametrize(
    ("ranks", "expert_ranks"),
    [pytest.param(*one, marks=[] if one == (4, 2) else [pytest.mark.slow]) for one in LAYOUTS],
)
def test_ranks_train_what_one_process_trains(
    ranks: int, expert_ranks: int, monkeypatch: pytest.MonkeyPatch
):
    # Two to five matrices at a time, so that shards have several blocks.
    monkeypatch.setitem(blocks.SHARED_WEIGHTS, "cpu", 100)
    cases = [replace(case, expert_ranks=expert_ranks) for case in CASES]
    results = run_ranks(ranks, trained, cases)
    for number, case in enumerate(cases):
        expected, _ = alone(case)
        for rank, result in enumerate(results):
            for name, found in result[number][0].items():
                wanted = expected[name].detach()
                if is_expert(name):
                    wanted = wanted.chunk(expert_ranks)[rank % expert_ranks]
                torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


def with_masters(rank: int, world: int, cases: list[Case]) -> list[dict[str, Any]]:
    found = []
    for case in cases:
        one = rank_of(rank, world, case)
        one.train(0, case.steps)
        states = {key: _copied(pieces) for key, pieces in one.optimizer.pieces().items()}
        found.append({"weights": one.weights(), "states": states})
    return found


def test_sums_that_are_exact_give_matrices_of_the_same_bits():
    """AdamW's numbers may differ in the last one: torch's fused kernel computes the end of a tensor
    with other instructions, and shards end elsewhere."""
    cases = [
        Case(MUON, expert_ranks=2, shapes=WIDE, dtype=kind, draw=whole)
        for kind in (torch.float32, torch.bfloat16)
    ]
    results = run_ranks(4, with_masters, cases)
    for number, case in enumerate(cases):
        expected, optimizer = alone(case)
        for rank, result in enumerate(results):
            for name, found in result[number]["weights"].items():
                wanted = expected[name].detach()
                wanted = wanted.chunk(2)[rank % 2] if is_expert(name) else wanted
                if matrices(name, found) is not None:
                    assert torch.equal(found, wanted), name
                torch.testing.assert_close(found.float(), wanted.float(), rtol=1e-6, atol=0)
            for key, pieces in result[number]["states"].items():
                _, name, state = key.split("/")
                wanted = optimizer.state[expected[name]][state].view(-1)
                for offset, piece in pieces:
                    if matrices(name, expected[name]) is not None:
                        assert torch.equal(piece, wanted[offset : offset + len(piece)]), key


def padded(numbers: int, ranks: int) -> int:
    return -(-numbers // ranks) * ranks


def lengths(*, expert: bool, muon: bool, ranks: int, share: int = 1) -> int:
    """Numbers of the odd model's regions of a kind, counted by hand: parameters begin at multiples
    of 32, regions end at multiples of the ranks."""
    total = 0
    for part in ODD:
        end, of_shapes = 0, {}
        for name, shape in part.items():
            matrix = matrices(name, torch.empty(shape)) is not None
            if matrix == muon and is_expert(name) == expert:
                stack = matrices(name, torch.empty(shape)) if muon else None
                key = None if stack is None else stack.shape[1:]
                of_shapes.setdefault(key, []).append(torch.Size(shape).numel() // share)
        for size in (size for sizes in of_shapes.values() for size in sizes):
            end = padded(end, 32) + size
        total += padded(end, ranks)
    return total


def test_bytes_of_a_step_are_those_of_moonlights_algorithm():
    """Gradients, momentum of matrices, and weights, 8 bytes each in float64;
    dense weights over all ranks, experts over those with the same ones; one collective each.
    Without ZeRO only gradients travel."""
    cases = [
        Case(MUON, zero=1, expert_ranks=2, steps=1),
        Case(MUON, zero=0, expert_ranks=2, steps=1),
    ]
    for (_, sent, counts), (_, plainly_sent, plain_counts) in run_ranks(4, trained, cases):
        for group, expert, ranks, share in (("data", False, 4, 1), ("expert_data", True, 2, 2)):
            of = {"expert": expert, "ranks": ranks, "share": share}
            muon, adamw = lengths(muon=True, **of), lengths(muon=False, **of)
            reduced = "reduce_scatter_gradients", group, "reduce_scatter"
            gathered = "momentum_gather", group, "all_gather"
            published = "all_gather_weights", group, "all_gather"
            assert sent[reduced] == 8 * (muon + adamw)
            assert sent[gathered] == 8 * muon
            assert sent[published] == 8 * (muon + adamw)
            assert counts[reduced] == (1 if expert else 2)  # chunks
            assert counts[gathered] == counts[published] == 1
            of["ranks"] = 1
            plainly = "all_reduce_gradients", group, "all_reduce"
            assert plainly_sent[plainly] == 8 * (
                lengths(muon=True, **of) + lengths(muon=False, **of)
            )
            assert plain_counts[plainly] == counts[reduced]
        assert (len(sent), len(plainly_sent)) == (6, 2)


def norms(rank: int, world: int, cases: list[Case]) -> list[float]:
    found = []
    for case in cases:
        one = rank_of(rank, world, case)
        one.backward(0)
        found.append(one.optimizer.norm_squares().item())
    return found


@pytest.mark.parametrize(("ranks", "expert_ranks"), [(2, 1), (4, 2)])
def test_shares_of_the_norm_add_up_to_the_whole_models(ranks: int, expert_ranks: int):
    cases = [Case(MUON, zero=zero, expert_ranks=expert_ranks) for zero in (0, 1)]
    gradients: dict[str, Tensor] = {}
    for text in range(4):
        for _, name, one in cases[0].gradients(0, text):
            gradients[name] = gradients.get(name, 0) + one
    wanted = sum(one.square().sum().item() for one in gradients.values())
    for found in zip(*run_ranks(ranks, norms, cases), strict=True):
        assert sum(found) == pytest.approx(wanted, rel=1e-12)


def clipped(rank: int, world: int, case: Case) -> dict[str, Any]:
    """Two steps, then some weights multiplied, as QK-clip does between step and gather."""
    one = rank_of(rank, world, case)
    one.train(0, 2)
    before = {key: _copied(pieces) for key, pieces in one.optimizer.pieces().items()}
    for part in one.parts:
        for name, param in part.items():
            if name.endswith(("q_up.weight", "experts.up", "gain")):
                one.optimizer.multiply(param, factors_of(param))
    one.optimizer.publish()
    after = {key: _copied(pieces) for key, pieces in one.optimizer.pieces().items()}
    return {"before": before, "after": after, "weights": one.weights()}


def factors_of(param: Tensor) -> Tensor:
    """One for each row of the first dimension, none of them a power of two."""
    rows = 1 / (1.5 + torch.arange(param.shape[0], dtype=torch.float64))
    return rows.view(-1, *(1 for _ in param.shape[1:]))


def _copied(pieces: tuple[Any, ...]) -> list[tuple[int, Tensor]]:
    return [(piece.offset, piece.tensor.clone()) for piece in pieces]


def test_a_clip_scales_every_slice_of_a_master_and_all_ranks_round_it_alike():
    results = run_ranks(4, clipped, Case(MUON, shapes=WIDE, dtype=torch.bfloat16))
    for name, weight in results[0]["weights"].items():
        master = torch.full((weight.numel(),), torch.nan)
        scaled = name.endswith(("q_up.weight", "experts.up", "gain"))
        gamma = factors_of(weight).float().expand(weight.shape).reshape(-1)
        key = f"optimizer/{name}/{MASTER}"
        for result in results:
            pairs = zip(result["before"].get(key, ()), result["after"].get(key, ()), strict=True)
            for (offset, old), (_, new) in pairs:
                own = slice(offset, offset + old.numel())
                assert torch.equal(new, old * gamma[own] if scaled else old)
                master[own] = new
        assert not master.isnan().any()
        for result in results:
            assert torch.equal(result["weights"][name].view(-1), master.bfloat16()), name


POLICIES = [
    MemorySpec.model_validate({"offload": [which], "optimizer_update": place})
    for which, place in (
        ("optimizer", "device"),
        ("optimizer", "host"),
        ("optimizer_dense", "device"),
        ("optimizer_expert", "host"),
    )
]


def offloaded(rank: int, world: int, cases: list[Case]) -> None:
    for case in cases:
        expected = rank_of(rank, world, case)
        expected.train(0, 3)
        for policy in POLICIES:
            states = OptimizerStates(policy)
            one = rank_of(rank, world, case, states)
            one.train(0, 2)
            one.train(2, 3)
            assert all(torch.equal(one.weights()[n], w) for n, w in expected.weights().items())
            mine, theirs = one.optimizer.pieces(), expected.optimizer.pieces()
            assert mine.keys() == theirs.keys()
            for key, pieces in mine.items():
                pairs = zip(pieces, theirs[key], strict=True)
                assert all(torch.equal(a.tensor, b.tensor) for a, b in pairs), key
            rests = {states.on_host(some) for some in one.optimizer.blocks if some.expert}
            assert rests == {"optimizer_dense" not in policy.offload}


def test_states_in_host_memory_give_the_same_bits(monkeypatch: pytest.MonkeyPatch):
    # Several blocks in a shard.
    monkeypatch.setitem(blocks.SHARED_WEIGHTS, "cpu", 200)
    cases = [Case(MUON, shapes=WIDE, dtype=kind) for kind in (torch.bfloat16, torch.float32)]
    run_ranks(2, offloaded, cases)


def taken(rank: int, world: int, cases: list[Case]) -> list[dict[str, Any]]:
    """States, and weights, of some steps, and the weights of later ones."""
    found = []
    for case in cases:
        one = rank_of(rank, world, case)
        one.train(0, 2)
        states = {key: _copied(pieces) for key, pieces in one.optimizer.pieces(once=True).items()}
        weights = one.weights()
        one.train(2, 4)
        found.append({"states": states, "weights": weights, "later": one.weights()})
    return found


def resumed(
    rank: int, world: int, saved: list[tuple[Case, dict[str, Tensor], dict[str, Tensor]]]
) -> list[dict[str, Tensor]]:
    """The same from the middle, in another layout."""
    found = []
    for case, states, weights in saved:
        one = rank_of(rank, world, case)
        with torch.no_grad():
            for part in one.parts:
                for name, param in part.items():
                    param.copy_(one.share(name, weights[name]))
        for key, pieces in one.optimizer.pieces().items():
            for piece in pieces:
                piece.tensor.copy_(states[key][piece.offset : piece.end])
        one.train(2, 4)
        found.append(one.weights())
    return found


def joined(results: list[Any], expert_ranks: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Flat states of the whole model, from pieces that name every number once; and its weights."""
    sizes = {name: torch.Size(shape).numel() for part in ODD for name, shape in part.items()}
    states, seen = {}, {}
    for result in results:
        for key, pieces in result["states"].items():
            size = 1 if key.endswith("/step") else sizes[key.split("/")[1]]
            for offset, tensor in pieces:
                whole = states.setdefault(key, torch.zeros(size, dtype=tensor.dtype))
                whole[offset : offset + tensor.numel()] = tensor
                seen.setdefault(key, torch.zeros(size))[offset : offset + tensor.numel()] += 1
    assert all(torch.equal(times, torch.ones_like(times)) for times in seen.values())
    weights = dict(results[0]["weights"])
    for name in filter(is_expert, weights):
        weights[name] = torch.cat([one["weights"][name] for one in results[:expert_ranks]])
    return states, weights


def test_pieces_of_one_layout_go_on_in_another():
    """From 4 ranks, 2 of which share experts, to 2 without and the other way of ZeRO."""
    cases = [Case(MUON, expert_ranks=2), Case(ADAMW, expert_ranks=2)]
    cases += [replace(case, zero=0) for case in cases]
    results = run_ranks(4, taken, cases)
    saved, expected = [], []
    for number, case in enumerate(cases):
        ranks = [result[number] for result in results]
        other = replace(case, zero=0 if case.zero else 1, expert_ranks=1)
        saved.append((other, *joined(ranks, 2)))
        expected.append(joined([{**one, "weights": one["later"]} for one in ranks], 2)[1])
    for found in run_ranks(2, resumed, saved):
        for mine, theirs in zip(found, expected, strict=True):
            for name, one in mine.items():
                torch.testing.assert_close(one, theirs[name], rtol=1e-12, atol=1e-14)


def orthogonalised(rank: int, world: int, case: Case) -> int:
    """How many matrices this rank's step takes."""
    counted = 0
    plain = replicas.orthogonalize

    def counting(stack_MRC: Tensor, *args: Any) -> Tensor:
        nonlocal counted
        counted += len(stack_MRC)
        return plain(stack_MRC, *args)

    replicas.orthogonalize = counting
    one = rank_of(rank, world, case)
    one.train(0, 1)
    return counted


def test_a_rank_orthogonalises_what_its_shard_touches_and_nothing_twice():
    case = Case(MUON)
    named = [(name, torch.empty(shape)) for part in ODD for name, shape in part.items()]
    every = sum(len(one) for name, empty in named if (one := matrices(name, empty)) is not None)
    assert run_ranks(1, orthogonalised, case) == [every]
    counts = run_ranks(4, orthogonalised, case)
    # A cut between two ranks falls into one matrix at most: 3 cuts in each of 3 regions.
    assert every <= sum(counts) <= every + 9
    assert max(counts) < every / 2


def recorded(rank: int, world: int, folder: Path) -> None:
    """A step whose timeline is written."""
    one = rank_of(rank, world, Case(MUON))
    one.tape.open(folder, rank, {})
    begun = time_ns()
    for part in (1, 0):
        one.optimizer.reduce(part, chunk=part + 4)
    one.optimizer.step()
    one.optimizer.publish()
    one.tape.end_step(begun)


def test_every_collective_is_a_span_of_the_timeline(tmp_path: Path):
    run_ranks(2, recorded, tmp_path)
    for rank in (0, 1):
        lines = (tmp_path / f"rank-0000{rank}.jsonl").read_text().splitlines()
        spans = [line for line in map(json.loads, lines) if line["kind"] == "span"]
        reductions = [span for span in spans if span["name"] == "reduce_scatter_gradients"]
        # Experts of the second part have the replicas of dense weights: they go together.
        assert sorted(span["chunk"] for span in reductions) == [4, 5]
        assert Counter(span["name"] for span in spans) == {
            "reduce_scatter_gradients": 2,
            "momentum_gather": 1,
            "all_gather_weights": 1,
        }
        for span in spans:
            assert span["stream"] == "data"
            assert span["start"] < span["end"]
            assert span["bytes"] > 0


def test_a_gradient_that_was_summed_elsewhere_is_refused():
    (report,) = run_ranks(1, refused)
    assert "TW300" in report
    assert "`layers.0.attention.q_up.weight`" in report


def refused(rank: int, world: int) -> str:
    one = rank_of(rank, world, Case(MUON))
    one.parts[0]["layers.0.attention.q_up.weight"].grad = None
    with pytest.raises(UsageError) as caught:
        one.backward(0)
    return str(caught.value)


def by_hand(policy: MemorySpec, *, replicated: bool) -> tuple[dict[str, Tensor], int]:
    """Gradients of two micro-batches of a model, and the bytes of what holds them."""
    made = small.model(dtype=torch.bfloat16)
    alone_here = Group("data", (0,), 0, None, Tape())
    named = list(made.named_parameters())
    if replicated:
        Replicas([named], MUON, Holders(alone_here, alone_here))
    else:
        MuonClip(named, MUON)
    for batch in (2, 3):
        loss, _ = small.forward(made, small.tokens(made, batch), policy)
        loss.backward()
    found = small.gradients(made)
    return found, unique_bytes(one.grad for one in made.parameters() if one.grad is not None)


@pytest.mark.parametrize("policy", ["nothing", "all", "full and offload"])
def test_weights_that_are_views_of_buffers_have_the_same_gradients_under_every_policy(policy: str):
    """What waits for a backward pass is told apart by its storage, and the weights share one."""
    mine, size = by_hand(small.EXACT[policy], replicated=True)
    theirs, least = by_hand(small.EXACT[policy], replicated=False)
    small.assert_same_bits(mine, theirs)
    # Gains of 48, 20 and 16 numbers begin at multiples of 32.
    assert least <= size < 1.02 * least
