"""One step of one rank, counted: the trainer's own code under `reference.shapes.watch`, without the
other ranks and without the device.

Tensors of the device are on torch's meta device under a `FakeTensorMode`, which keeps apart what is
on a host; collectives and messages end when they begin. Where the code asks for a number there is
none to give: `Answers` says 1, so that the loss is finite, nothing is divided by zero, and every
attention head counts as one that QK-clip scales, as late in a bad run.

Counts as JSON, one file for all ranks; and what a device holds at the fullest moment of a step.

Categories have the names of the simulator's ledger: what stands between steps; `activations` that
passes left behind for others; messages between stages, waited for, or on their way
(`pipeline_buffers`); and the `working_set` of the passes that run, all-to-alls included. What the
embedding, the head and the loss keep counts as activations, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, cast
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from reference.config import RunSpec
from reference.ending import Stop
from reference.kernels.path import counted
from reference.memory.optimizer_states import Bytes, standing
from reference.memory.saved_tensor import KeptBytes
from reference.memory.stash import persistent
from reference.model.rope import forget_tables
from reference.parallel.mesh import mesh_of
from reference.parallel.world import World, world_of
from reference.shapes.watch import MESSAGE, Pass, Places, Storage, Watch, fullest
from reference.text.loader import Batch, Loader
from reference.text.prepare import Prepared
from reference.trainer.stages import balanced, microbatches, stages_of
from reference.trainer.step import train_step
from reference.trainer.trainee import Trainee, assemble
from twin.errors import Problem, UsageError

DEVICE: Final = torch.device("meta")
"""What stands for the device."""


class Answers(TorchDispatchMode):
    """Says 1, in the type that is asked for, where a tensor without numbers is asked for its."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self._fake = fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001 - its only name
            kind = args[0].dtype
            return 1.0 if kind.is_floating_point else kind == torch.bool or 1
        if func.overloadpacket is torch.ops.aten.set_:
            # torch remembers what such a call gave by its arguments: storages, which it so keeps.
            with patch.object(self._fake, "cache_enabled", new=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def pretended(rank: int, ranks: int) -> Iterator[None]:
    """Within, this process is one rank of so many, without a device."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    forget_tables()
    try:
        with FakeTensorMode() as fake, Answers(fake):
            yield
    finally:
        forget_tables()
        dist.destroy_process_group()


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, or a message between stages, by its name: how often, and bytes in all."""

    name: str
    group: str
    kind: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A storage that the first forward of a chunk keeps for its backward."""

    chunk: int
    layer: int | None
    """None: outside of layers."""
    name: str
    device: int
    host: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What one rank does in one step."""

    rank: int
    stage: int
    microbatches: int
    """Of this rank."""
    collectives: tuple[Collective, ...]
    parameters: dict[str, int]
    """Bytes by name."""
    standing: dict[str, Bytes]
    """What stands between steps, by category."""
    kept: tuple[Kept, ...]
    flop: dict[Pass | None, float]
    """Of each pass; None: of what is between passes."""
    storages: tuple[Storage, ...]
    """All of the step, and what was there before."""
    ends: Mapping[Pass, int]
    """The last event of each pass."""
    at: int
    """The event after which the device is fullest."""


class _Texts:
    """Batches of the right shape, without end."""

    def __init__(self, sequences: int, tokens: int) -> None:
        self._shape = sequences, tokens

    def __next__(self) -> Batch:
        made = [torch.empty(self._shape, dtype=torch.int64, device=DEVICE) for _ in range(2)]
        return made[0], made[1]


def count(run: RunSpec, rank: int, ranks: int) -> Counts:
    """Run the first step of a run on one of so many ranks, and count. Routing is balanced whatever
    the run says, since nobody has numbers to route by.

    Raises UsageError where the run cannot be cut for these ranks, or asks for what only numbers can
    answer.
    """
    mesh = mesh_of(run.parallel, ranks, microbatches(run))
    _assert_answerable(run, rank, ranks)
    balance = run.balance.model_copy(update={"forced": True})
    run = run.model_copy(update={"balance": balance})
    with pretended(rank, ranks):
        world = world_of(mesh, rank)
        return _counted(run, world)


def _counted(run: RunSpec, world: World) -> Counts:
    stage, places = stages_of(run)[0], Places()
    trainees: list[Trainee] = []

    def running() -> Pass | None:
        found = trainees[0].runtime.running if trainees else None
        return (found.name, *found.place) if found else None

    with Watch(running, places.now) as watch, counted(watch.compute):
        trainee = _assembled(run, world)
        trainees.append(trainee)
        before = _known(trainee, watch)
        trainee.runtime.ledgers = ledgers = {}
        term = run.balance.sequence_loss
        with places.followed(trainee.models), balanced(trainee.models, term, stage.sequence):
            train_step(run, stage, trainee, Stop())
    made = _made_first(watch.every)
    kept = [
        _kept(chunk, one, made[chunk].get(one.storage, ""))
        for chunk, ledger in ledgers.items()
        for one in ledger
    ]
    tape = world.tape
    return Counts(
        rank=world.rank,
        stage=world.mesh.stage(world.rank),
        microbatches=stage.accumulate // world.mesh.data,
        collectives=tuple(
            Collective(*one, number, tape.bytes[one]) for one, number in tape.counts.items()
        ),
        parameters={
            name: one.nbytes for model in trainee.models for name, one in model.named_parameters()
        },
        standing=standing(nn.ModuleList(trainee.models), trainee.optimizer),
        kept=tuple(kept),
        flop=dict(watch.flop),
        storages=tuple(watch.every),
        ends=watch.last,
        at=fullest(watch.every, before),
    )


def _assembled(run: RunSpec, world: World) -> Trainee:
    def text() -> tuple[Prepared, Loader]:
        made: Any = _Texts(run.train.micro_batch, run.train.sequence)
        return cast("Prepared", None), made

    trainee = assemble(run, world, DEVICE, text, balanced=True)
    # The whole model's, which the step's work is counted with where the device's peak is known,
    # would be memory here.
    trainee.counted = trainee.models[0]
    return trainee


def _known(trainee: Trainee, watch: Watch) -> int:
    """Name what stands; returns the last event before the step."""
    optimizer = trainee.optimizer
    for model in trainee.models:
        for weight in model.parameters():
            # A parameter is none to torch here, but a `FakeTensor`.
            watch.rename(persistent(weight), "parameters")
            if weight.grad is not None:
                watch.rename(weight.grad, "gradients")
    for block in optimizer.blocks:
        for state in optimizer.states.kept(block).values():
            watch.rename(state, f"optimizer_{'expert' if block.expert else 'dense'}")
    return watch.events


def _made_first(storages: Sequence[Storage]) -> Mapping[int, Mapping[int, str]]:
    """By chunk: the names of what its first forward made, or was the first to read, by key."""
    first: dict[int, Pass] = {}
    found: dict[int, dict[int, str]] = defaultdict(dict)
    for one in storages:
        if one.during is not None and one.during[0] == "F" and not one.copied:
            chunk = one.during[1]
            if first.setdefault(chunk, one.during) == one.during:
                found[chunk][one.key] = one.name
    return found


def _kept(chunk: int, one: KeptBytes, place: str) -> Kept:
    """Called by the name of the policy, if it has one, else after the place where it was made."""
    prefix = f"layers.{one.layer}"
    name = one.name or place.removeprefix(prefix).removeprefix(".") or "block"
    return Kept(chunk, one.layer, name, one.device, one.host)


def _assert_answerable(run: RunSpec, rank: int, ranks: int) -> None:
    problems: list[Problem] = []
    if not 0 <= rank < ranks:
        message = f"there is no rank {rank} among {ranks}"
        problems.append(Problem("TW360", "rank", message, f"ranks are 0 to {ranks - 1}"))
    if run.optimizer.clip.variant == "adaptive":
        message = "QK-clip `adaptive` chooses by numbers, and there are none"
        fix = "`--set optimizer.qk_clip.variant=per_head`"
        problems.append(Problem("TW361", "optimizer.qk_clip.variant", message, fix))
    moe, shared = run.model.moe, run.parallel.expert
    tokens = run.train.micro_batch * run.train.sequence
    if moe is not None and shared > 1 and tokens * moe.top_k % shared:
        message = f"{tokens * moe.top_k} rows of experts cannot be even over {shared} ranks"
        fix = "choose another `train.sequence`"
        problems.append(Problem("TW362", "train.sequence", message, fix))
    if problems:
        raise UsageError(problems)


STANDING: Final = ("parameters", "gradients", "optimizer_dense", "optimizer_expert")
NAMED: Final = 1 << 20
"""Bytes from which on a storage is listed by itself."""


@dataclass(frozen=True, slots=True)
class FullestStorage:
    """A storage at the fullest moment."""

    category: str
    name: str
    during: Pass | None
    bytes: int


def held(counts: Counts) -> tuple[FullestStorage, ...]:
    """All that the device holds then, largest first."""
    alive = [one for one in counts.storages if not one.host and one.alive(counts.at)]
    found = [
        FullestStorage(_category(one, counts), one.name, one.during, one.bytes) for one in alive
    ]
    return tuple(sorted(found, key=lambda one: -one.bytes))


def by_category(every: tuple[FullestStorage, ...]) -> dict[str, int]:
    """Bytes of each category."""
    total: Counter[str] = Counter()
    for one in every:
        total[one.category] += one.bytes
    return dict(total)


def _category(one: Storage, counts: Counts) -> str:
    """What a pass has made is its working set, unless it outlives the pass: then it waits for
    another one."""
    if one.name in STANDING:
        return one.name
    if one.name == MESSAGE or (one.read is not None and one.read > counts.at):
        return "pipeline_buffers"
    if one.during is None:
        return "working_set"
    kind, end = one.during[0], counts.ends.get(one.during, counts.at)
    outlives = one.died is None or one.died > end
    return "activations" if outlives and (kind == "F" or end <= counts.at) else "working_set"


VERSION: Final = 1


def report(run: RunSpec, ranks: int, several: Sequence[Counts]) -> dict[str, Any]:
    """What was run, and each rank's counts."""
    return {
        "version": VERSION,
        "model": run.model.name,
        "ranks": ranks,
        "sequence": run.train.sequence,
        "micro_batch": run.train.micro_batch,
        "precision": run.train.precision,
        "parallel": run.parallel.model_dump(mode="json"),
        "memory": run.memory.model_dump(mode="json"),
        "counted": [one_rank(counts) for counts in several],
    }


def one_rank(counts: Counts) -> dict[str, Any]:
    """Of a rank: bytes, FLOP, and the fullest moment with all storages of 1 MiB and more."""
    every = held(counts)
    listed = [one for one in every if one.bytes >= NAMED]
    return {
        "rank": counts.rank,
        "stage": counts.stage,
        "microbatches": counts.microbatches,
        "collectives": [asdict(one) for one in counts.collectives],
        "parameters": counts.parameters,
        "standing": {name: asdict(one) for name, one in counts.standing.items()},
        "kept": [asdict(one) for one in counts.kept],
        "flop": flop(counts),
        "fullest": {
            "bytes": sum(one.bytes for one in every),
            "categories": by_category(every),
            "storages": [asdict(one) for one in listed],
        },
    }


def flop(counts: Counts) -> list[dict[str, Any]]:
    """FLOP of one pass of each kind and chunk, and of the optimizer."""
    total: defaultdict[tuple[str, int], float] = defaultdict(float)
    times: Counter[tuple[str, int]] = Counter()
    for one, number in counts.flop.items():
        place = ("optimizer", -1) if one is None else one[:2]
        total[place] += number
        times[place] += 1
    return [
        {
            "kind": kind,
            "chunk": chunk,
            "passes": times[kind, chunk],
            "flop": number / times[kind, chunk],
        }
        for (kind, chunk), number in sorted(total.items())
    ]
