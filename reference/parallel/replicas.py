"""The optimizer of one rank that shares its weights with others: MuonClip under replicas.

With `zero: 1` each replica keeps the states of one shard (ZeRO-1: Rajbhandari et al. 2020,
arXiv:1910.02054), and Muon runs as in Moonlight's algorithm 1 (arXiv:2502.16982, section 2.3):

    reduce    gradients of a chunk are reduce-scattered as soon as its last backward is done, while
              passes of other chunks go on
    advance   the momentum of the own shard; what is orthogonalised of it, in bf16
    gather    that of all shards, since Newton-Schulz needs whole matrices
    move      every matrix that the own shard touches is orthogonalised; the own slice of the
              masters moves, and AdamW's weights
    publish   new weights are all-gathered, after QK-clip has scaled masters of own slices

Dense weights may have other replicas than routed experts: each of these is then one collective
over either group, else one over all. With `zero: 0` gradients are all-reduced, and every replica
does the same to all of its weights. The arithmetic is `reference.optim`'s; the result is that of
one process which sums the same gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from reference.checkpoint.piece import Piece, piece_of
from reference.optim import adamw, muon
from reference.optim.blocks import MASTER, MOMENTUM, ParameterBlock, States, first_states
from reference.optim.muon import orthogonalize
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from reference.parallel.groups import Group, Sums, all_gather_parts
from reference.parallel.shards import Cut, Member, Region, Shard, regions, shards
from reference.parallel.timeline import NOWHERE
from twin.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds the same weights as this rank, and what each of them keeps of the states."""

    dense: Group
    expert: Group
    """Of routed experts."""
    zero: Literal[0, 1] = 1
    expert_rank: int = 0
    """Which share of each layer's experts this rank holds: its stacks [E, rows, columns] are parts
    of larger ones."""
    expert_ranks: int = 1

    def group(self, expert: bool) -> Group:
        """The replicas of one of the two."""
        return self.expert if expert else self.dense

    def cut(self, expert: bool) -> Cut:
        """The shard of this rank; everything without ZeRO."""
        group = self.group(expert)
        return Cut(group.index, group.size) if self.zero else Cut(0, 1)


class Replicas:
    """Moves every parameter that wants a gradient of a rank's chunks, given in the order of the
    model's parts.

    Parameters and their gradients become views of flat buffers: gradients are fp32 and stay where
    they are, so that `zero_grad` must be this optimizer's. They are summed over replicas: the loss
    is divided by the micro-batches of all.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[tuple[str, Parameter]]],
        spec: OptimizerSpec,
        holders: Holders,
        states: States | None = None,
    ) -> None:
        self.spec = spec
        self.holders = holders
        self.lr = spec.lr
        """The learning rate of the next step; AdamW's group multiplies it with its `lr_scale`."""
        self.states = states or States()
        self.regions = regions(
            parts, muon=spec.kind != "adamw", dense=holders.cut(False), expert=holders.cut(True)
        )
        every = [shard for region in self.regions for shard in shards(region)]
        self._muon = [shard for shard in every if shard.region.algorithm == "muon"]
        self._adamw = [shard for shard in every if shard.region.algorithm == "adamw"]
        self._coming: list[tuple[list[Region], Sums]] = []
        """Gradients on their way."""
        self._home: dict[Tensor, list[Shard]] = {}
        for shard in every:
            for member, _, _ in shard.region.overlaps(shard.start, shard.stop):
                self._home.setdefault(member.param, []).append(shard)
        self._moved: dict[Tensor, Member] = {
            one.param: one for region in self.regions for one in region.members
        }
        self._add_states()

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """Whatever has states, in the order in which a step asks for them."""
        masters = [shard.masters for shard in self._muon if shard.masters]
        return (
            *(shard.block for shard in self._muon),
            *masters,
            *(shard.block for shard in self._adamw),
        )

    @torch.no_grad()
    def reduce(self, part: int, chunk: int = NOWHERE) -> None:
        """Begin to sum the gradients of one of the parts over its replicas, once per step, when its
        last backward is done; `chunk` is its name in the timeline. Raises UsageError where a
        gradient is not where it should be."""
        name = "reduce_scatter_gradients" if self.holders.zero else "all_reduce_gradients"
        for group, some in self._apart():
            here = [region for region in some if region.part == part]
            for region in here:
                _assert_gradients(region)
            gradients = [region.gradients_X for region in here]
            whole = self.holders.zero == 0
            before = self._coming[-1][1] if self._coming else None
            sums = Sums(group, gradients, name, chunk, whole=whole, before=before)
            self._coming.append((here, sums))

    @torch.no_grad()
    def norm_squares(self) -> Tensor:
        """This rank's share of the sum of squares of all reduced gradients, float64: the sum over
        all ranks of the world is the whole model's."""
        self._arrive()
        total = torch.zeros((), dtype=torch.float64)
        for group, some in self._apart():
            alike = 1 if self.holders.zero else group.size
            for region in some:
                norm = torch.linalg.vector_norm(region.summed, dtype=torch.float64)
                total = total.to(norm.device) + norm**2 / alike
        return total

    def step(self) -> None:
        """Move the own shard by the reduced gradients. The gradients are used up."""
        self.advance()
        self.gather()
        self.move()

    @torch.no_grad()
    def advance(self) -> None:
        """The first part of a step: the momentum after these gradients."""
        self._arrive()
        for shard in self._muon:
            state = self.states.load(shard.block)
            momentum = state[MOMENTUM]
            direction = muon.advance(momentum, shard.gradient.to(momentum), self.spec)
            shard.own_direction.copy_(direction)
            self.states.store(shard.block, state)

    @torch.no_grad()
    def gather(self) -> None:
        """The second part: what is orthogonalised, from all replicas."""
        if self.holders.zero:
            for group, some in self._apart():
                muons = [region.directions for region in some if region.algorithm == "muon"]
                all_gather_parts(group, muons, "momentum_gather")

    @torch.no_grad()
    def move(self) -> None:
        """The last part: the weights."""
        for shard in self._muon:
            self._orthogonal_move(shard)
        for shard in self._adamw:
            state = self.states.load(shard.block)
            shard.values.grad = shard.gradient
            adamw.update(shard.block, state, self.lr, self.spec)
            shard.values.grad = None
            self.states.store(shard.block, state)
        for region in self.regions:
            region.reduced = None

    @torch.no_grad()
    def publish(self) -> None:
        """Give the new weights of the own shard to the other replicas, and get theirs."""
        if self.holders.zero:
            for group, some in self._apart():
                all_gather_parts(group, [region.values_X for region in some], "all_gather_weights")

    @torch.no_grad()
    def zero_grad(self) -> None:
        """Begin to sum anew."""
        for region in self.regions:
            region.gradients_X.zero_()

    @torch.no_grad()
    def multiply(self, param: Tensor, factors: Tensor) -> None:
        """Multiply the own slice of a weight: its masters and, rounded from them, the parameter.
        `factors` broadcast over the parameter. All replicas call it alike, before `publish`."""
        member = self._moved.get(param)
        if member is None:
            param.mul_(factors.to(param))
            return
        for shard in self._home.get(param, ()):
            first, end = max(shard.start, member.start), min(shard.stop, member.stop)
            own = _sliced(factors, param, first - member.start, end - member.start)
            values = shard.region.values_X[first:end]
            block = shard.masters or shard.block
            if not block.has_master:
                values.mul_(own.to(values))
                continue
            state = self.states.load(block)
            master = state[MASTER][first - shard.start : end - shard.start]
            values.copy_(master.mul_(own.to(master)))
            self.states.store(block, state)

    def pieces(self, *, once: bool = False) -> dict[str, tuple[Piece, ...]]:
        """What this rank has of the states of the whole model, `optimizer/<parameter>/<state>`:
        tensors that checkpoints read and fill. With `once` no two ranks give the same numbers, and
        together they give all."""
        found: dict[str, list[Piece]] = {}
        for shard in (*self._muon, *self._adamw):
            group = self.holders.group(shard.region.expert)
            if once and not self.holders.zero and group.index:
                continue
            for block in filter(None, (shard.block, shard.masters)):
                for key, flat in self.states.kept(block).items():
                    for name, piece in self._pieces(shard, flat, once=once):
                        found.setdefault(f"optimizer/{name}/{key}", []).append(piece)
        return {name: tuple(several) for name, several in found.items()}

    def _add_states(self) -> None:
        for shard in self._muon:
            self.states.add(shard.block, {MOMENTUM: first_states(shard.block)[MOMENTUM]})
        for shard in self._muon:
            if shard.masters:
                self.states.add(shard.masters, {MASTER: first_states(shard.masters)[MASTER]})
        for shard in self._adamw:
            self.states.add(shard.block, first_states(shard.block))

    def _apart(self) -> Iterator[tuple[Group, list[Region]]]:
        """Regions of dense weights, and of experts, with those who hold the same; all together
        where those are the same ranks."""
        dense, experts = (
            [region for region in self.regions if region.expert is expert]
            for expert in (False, True)
        )
        if self.holders.dense.ranks == self.holders.expert.ranks:
            yield self.holders.dense, dense + experts
            return
        yield self.holders.dense, dense
        yield self.holders.expert, experts

    def _arrive(self) -> None:
        """Wait for the sums of all gradients."""
        coming, self._coming = self._coming, []
        for some, sums in coming:
            for region, one in zip(some, sums.wait(), strict=True):
                region.reduced = one

    def _orthogonal_move(self, shard: Shard) -> None:
        stack_MRC, own = shard.touched()
        ortho_MRC = orthogonalize(stack_MRC, self.spec.ns_steps)
        decay, scale = muon.factors(shard.block, self.lr, self.spec)
        if shard.masters is None:
            muon.move(shard.values, ortho_MRC.reshape(-1)[own], decay, scale)
            return
        state = self.states.load(shard.masters)
        muon.move(state[MASTER], ortho_MRC.reshape(-1)[own], decay, scale)
        shard.masters.round_masters(state[MASTER])
        self.states.store(shard.masters, state)

    def _pieces(self, shard: Shard, flat: Tensor, *, once: bool) -> Iterator[tuple[str, Piece]]:
        """Of each parameter in the shard; a number that belongs to all of a block is one of each
        parameter, and given `once` with the parameter's first number."""
        expert = shard.region.expert
        index, count = self.holders.expert_rank, self.holders.expert_ranks
        for member, first, end in shard.region.overlaps(shard.start, shard.stop):
            shape, size = tuple(member.param.shape), member.param.numel()
            before = 0
            if expert:
                before, shape = index * size, (shape[0] * count, *shape[1:])
            if flat.dim():
                numbers = flat[first - shard.start : end - shard.start]
                yield member.name, Piece(numbers, before + first - member.start, shape)
            elif not once or before + first == member.start:
                yield member.name, Piece(flat.view(1), 0, ())


def _sliced(factors: Tensor, param: Tensor, first: int, end: int) -> Tensor:
    """The factors of a flattened parameter's numbers from `first` up to `end`, without making those
    of all."""
    shape = param.shape or torch.Size((1,))
    rows = factors.expand(shape)
    each = shape[1:].numel()
    top = first // each
    some = rows[top : -(-end // each)].reshape(-1)
    return some[first - top * each : end - top * each]


def _assert_gradients(region: Region) -> None:
    """Refuse a gradient that was summed elsewhere: it would be lost without a word."""
    for member in region.members:
        if member.param.grad is not member.gradient:
            message = f"the gradient of `{member.name}` is not in the optimizer's buffer"
            fix = "clear gradients with the optimizer's `zero_grad`, and assign none"
            raise UsageError([Problem("TW300", member.name, message, fix)])


class Alone(MuonClip):
    """MuonClip of one rank."""

    def advance(self) -> None:
        """All of the step is its move."""

    def gather(self) -> None:
        """Every state is whole."""

    def move(self) -> None:
        """All of the step."""
        self.step()

    def reduce(self, part: int, chunk: int = NOWHERE) -> None:
        """The gradients are summed already."""

    def norm_squares(self) -> Tensor:
        """The sum of squares of all gradients, 0-dimensional."""
        gradients = [one.grad for one in self.param_groups[0]["params"] if one.grad is not None]
        return torch.nn.utils.get_total_norm(gradients).square()

    def publish(self) -> None:
        """Nobody else needs the new weights."""

    def pieces(self, *, once: bool = False) -> dict[str, Piece]:
        """All states, as they are and no copies: `optimizer/<parameter>/<state>`."""
        del once
        return {
            f"optimizer/{name}/{key}": piece_of(tensor)
            for name, states in self.state_dict()["state"].items()
            for key, tensor in states.items()
        }
