"""Weights and gradients of one chunk as flat buffers that replicas cut into equal shards.

A region holds the dense weights or the routed experts of a chunk that Muon, or AdamW, moves. Its
gradients and its weights are one flat tensor each, of which the parameters and their `.grad` are
views, so that a collective over replicas copies nothing. Replica r of R owns the r-th of R equal
parts; where a part begins and ends has nothing to do with matrices (Rajbhandari et al. 2020,
arXiv:1910.02054, section 5, as Megatron-LM's distributed optimizer lays it out). Muon and AdamW
have regions of their own, so that each replica gets an equal share of either's work.

OURS: within a region matrices of one shape are neighbours, so that those which a shard touches are
one stack; parameters begin at multiples of 32 numbers, since kernels want 16 bytes; and a shard is
updated in blocks of limited size that begin and end with a matrix where they can, so that states
may stream from host memory and no matrix is orthogonalised twice on a rank.

Shapes: X any, M matrices, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import Parameter

from reference.optim.blocks import Algorithm, ParameterBlock, is_expert, matrices, most_weights
from reference.optim.muon import precision

Shape = tuple[int, int]
Kind = tuple[bool, Algorithm, torch.dtype, torch.device]
"""Weights of one region: whether experts', and what else they have in common."""
ALIGNED: Final = 32
"""Numbers; of bf16 64 bytes, a line of a cache."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Which of how many equal parts of each region is this rank's."""

    index: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A parameter in a region."""

    name: str
    param: Parameter
    start: int
    """The place of its first number."""
    gradient: Tensor
    """Where its gradient is summed."""

    @property
    def stop(self) -> int:
        """The place behind its last number."""
        return self.start + self.param.numel()


@dataclass(frozen=True, slots=True)
class Run:
    """Matrices of one shape without a gap between them, or for AdamW all of a region."""

    shape: Shape | None
    start: int
    stop: int


@dataclass(slots=True, eq=False)
class Region:
    """Weights of one chunk that one algorithm moves, all dense or all of routed experts."""

    name: str
    part: int
    """The chunk, in the order of the model's parts."""
    expert: bool
    algorithm: Algorithm
    members: tuple[Member, ...]
    runs: tuple[Run, ...]
    cut: Cut
    values_X: Tensor
    """The weights, and nothing but zeros between and behind them."""
    gradients_X: Tensor
    """This rank's, summed over micro-batches in fp32; float64 of float64 weights. Behind the
    reduction `directions` use its memory."""
    reduced: Tensor | None = None
    """The shard's gradients summed over replicas, between reduction and update."""

    @property
    def start(self) -> int:
        """Where the shard begins."""
        return self.cut.index * self.length

    @property
    def length(self) -> int:
        """Numbers of the shard."""
        return self.values_X.numel() // self.cut.count

    @property
    def summed(self) -> Tensor:
        """`reduced`, which must be there."""
        assert self.reduced is not None, "reduce the gradients of all parts before they are used"
        return self.reduced

    @property
    def directions(self) -> Tensor:
        """What Muon orthogonalises, all replicas' shards: in the memory of the gradients, which
        nobody needs any more. A rank that has no others reads its gradients there still, but never
        those before the place that it writes, which numbers that are no wider fall behind."""
        return self.gradients_X.view(precision(self.gradients_X.dtype)).narrow(
            0, 0, self.values_X.numel()
        )

    def overlaps(self, start: int, stop: int) -> Iterator[tuple[Member, int, int]]:
        """Parameters with numbers from `start` up to `stop`, and the first and last of these."""
        for member in self.members:
            first, end = max(start, member.start), min(stop, member.stop)
            if first < end:
                yield member, first, end


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A block of a rank's shard of a region: what one update takes."""

    region: Region
    run: Run
    start: int
    stop: int
    """Places in the region."""
    block: ParameterBlock
    """Its numbers as one flat parameter, with its states; of Muon those of the momentum alone."""
    masters: ParameterBlock | None
    """Muon's masters, if it has any, in a block of their own: they are needed only when the
    momentum of other ranks has come."""

    @property
    def values(self) -> Tensor:
        """The weights."""
        return self.block.params[0]

    @property
    def gradient(self) -> Tensor:
        """Summed over replicas."""
        before = self.region.start
        return self.region.summed[self.start - before : self.stop - before]

    @property
    def own_direction(self) -> Tensor:
        """The place of its numbers in `Region.directions`."""
        return self.region.directions[self.start : self.stop]

    def touched(self) -> tuple[Tensor, slice]:
        """The directions of all matrices that the shard has some numbers of, whole, [M, R, C], and
        where its numbers are in them, flattened."""
        assert self.run.shape is not None
        size = self.run.shape[0] * self.run.shape[1]
        before = (self.start - self.run.start) % size
        first, end = self.start - before, self.stop + (self.run.start - self.stop) % size
        stack_MRC = self.region.directions[first:end].view(-1, *self.run.shape)
        return stack_MRC, slice(before, before + self.stop - self.start)


def regions(
    parts: Sequence[Sequence[tuple[str, Parameter]]], *, muon: bool, dense: Cut, expert: Cut
) -> tuple[Region, ...]:
    """The regions of a rank's chunks, their parameters moved into them; without `muon` AdamW moves
    all. Parameters that want no gradient stay out."""
    found: list[Region] = []
    for number, named in enumerate(parts):
        grouped: dict[Kind, list[tuple[str, Parameter]]] = {}
        for name, param in named:
            if param.requires_grad:
                matrix = muon and matrices(name, param.detach()) is not None
                kind = is_expert(name), "muon" if matrix else "adamw", param.dtype, param.device
                grouped.setdefault(kind, []).append((name, param))
        # One order on all ranks of a group, whatever a chunk begins with.
        for kind in sorted(grouped, key=str):
            of_experts, algorithm, *_ = kind
            cut = expert if of_experts else dense
            found.append(_region(number, algorithm, grouped[kind], cut))
    return tuple(found)


def _region(
    part: int, algorithm: Algorithm, named: list[tuple[str, Parameter]], cut: Cut
) -> Region:
    runs: list[Run] = []
    starts: list[int] = []
    named = _neighbours(named, algorithm)
    for name, param in named:
        starts.append(_up(runs[-1].stop, ALIGNED) if runs else 0)
        _extend(runs, Run(_shape(name, param, algorithm), starts[-1], starts[-1] + param.numel()))
    first = named[0][1]
    wide = torch.float64 if first.dtype == torch.float64 else torch.float32
    values_X = torch.zeros(_up(runs[-1].stop, cut.count), dtype=first.dtype, device=first.device)
    gradients_X = torch.zeros_like(values_X, dtype=wide)
    members = tuple(
        Member(name, param, start, _move_in(param, values_X[start:], gradients_X[start:]))
        for (name, param), start in zip(named, starts, strict=True)
    )
    expert = is_expert(named[0][0])
    name = f"part {part} {'expert' if expert else 'dense'} {algorithm} {first.dtype}"
    return Region(name, part, expert, algorithm, members, tuple(runs), cut, values_X, gradients_X)


def _neighbours(
    named: list[tuple[str, Parameter]], algorithm: Algorithm
) -> list[tuple[str, Parameter]]:
    """Matrices of one shape next to each other, else in the order in which they come."""
    by_shape: dict[Shape | None, list[tuple[str, Parameter]]] = {}
    for name, param in named:
        by_shape.setdefault(_shape(name, param, algorithm), []).append((name, param))
    return [pair for some in by_shape.values() for pair in some]


def _shape(name: str, param: Parameter, algorithm: Algorithm) -> Shape | None:
    if algorithm == "adamw":
        return None
    stack_MRC = matrices(name, param.detach())
    assert stack_MRC is not None
    return stack_MRC.shape[1], stack_MRC.shape[2]


def _extend(runs: list[Run], run: Run) -> None:
    """Join what needs no gap: neighbouring matrices, and for AdamW everything."""
    last = runs[-1] if runs else None
    if (
        last is not None
        and last.shape == run.shape
        and (run.shape is None or last.stop == run.start)
    ):
        runs[-1] = Run(run.shape, last.start, run.stop)
    else:
        runs.append(run)


@torch.no_grad()
def _move_in(param: Parameter, values_X: Tensor, gradients_X: Tensor) -> Tensor:
    """Put a parameter where the buffers begin, and its gradient; returns that."""
    value = values_X[: param.numel()].view(param.shape)
    gradient = gradients_X[: param.numel()].view(param.shape)
    value.copy_(param)
    param.data = value
    if param.grad is not None:
        gradient.copy_(param.grad)
        param.grad = None
    param.grad_dtype = gradient.dtype
    param.grad = gradient
    return gradient


def shards(region: Region) -> Iterator[Shard]:
    """The blocks of this rank's shard."""
    for run in region.runs:
        start = max(run.start, region.start)
        last = min(run.stop, region.start + region.length)
        while start < last:
            stop = min(last, _block_end(run, start, region.values_X.device))
            yield _shard(region, run, start, stop)
            start = stop


def _block_end(run: Run, start: int, device: torch.device) -> int:
    """Where a block that begins here may end at most: with a matrix, if it is one of matrices."""
    size = 1 if run.shape is None else run.shape[0] * run.shape[1]
    each = max(1, most_weights(device) // size)
    return run.start + ((start - run.start) // size + each) * size


def _shard(region: Region, run: Run, start: int, stop: int) -> Shard:
    name = f"{region.name} from {start}"
    values = region.values_X.detach()[start:stop]
    values.grad_dtype = region.gradients_X.dtype
    muon = region.algorithm == "muon"
    block = ParameterBlock(
        region.algorithm, (name,), (values,), run.shape, region.expert, stop - start, at_once=0
    )
    masters = replace(block, names=(f"{name}, masters",)) if muon and block.has_master else None
    return Shard(region, run, start, stop, block, masters)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
