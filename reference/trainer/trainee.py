"""What a run changes: model, optimizer, place in the text, and how far it is; on one rank, its part
of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from reference.checkpoint.ranks import on_first
from reference.config import RunSpec
from reference.data.loader import Batch, Loader
from reference.data.prepare import prepare
from reference.data.prepared import Prepared
from reference.memory.optimizer_states import OptimizerStates
from reference.model import Transformer
from reference.model.initialize import initialize
from reference.parallel.alone import Alone
from reference.parallel.exchange import ExpertExchange
from reference.parallel.messages import Messages
from reference.parallel.pace import Pace, load_pace
from reference.parallel.replicas import Holders, Replicas
from reference.parallel.runtime import Runtime
from reference.parallel.stage import stage_of
from reference.parallel.turns import Turns
from reference.parallel.world import World
from reference.trainer.flop import peak_flop_per_s
from reference.trainer.settings import DTYPES
from reference.trainer.stages import Stage


@dataclass(slots=True)
class Trainee:
    """The state of a run between two steps on one rank, and the device that it is on."""

    world: World
    parts: Mapping[int, Transformer]
    """The rank's parts of the model by chunk, in the model's order."""
    optimizer: Alone | Replicas
    runtime: Runtime
    prepared: Prepared
    loader: Loader
    device: torch.device
    dtype: torch.dtype
    """Of parameters and activations."""
    counted: Transformer
    """The whole model without numbers, to count its work."""
    peak_flop_per_s: float | None
    """Of the device's datasheet; None where it is not known."""
    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Tokens trained on, by all ranks."""

    @property
    def optimizer_ns(self) -> float:
        """What an update's computing takes at least (`train.pace`)."""
        return self.runtime.pace.update(self.world.mesh.stage(self.world.rank)) * 1e9

    @property
    def models(self) -> tuple[Transformer, ...]:
        """The rank's parts, in the model's order."""
        return tuple(self.parts.values())

    def enter(self, stage: Stage) -> None:
        """Take the positions and batches of a stage; weights and place in the text stay."""
        for model in self.models:
            model.stretch(stage.rope)
        self.loader = self.loader.with_sequences(stage.sequence, stage.micro_batch)

    def next_batch(self) -> Batch:
        """Tokens and targets of the next micro-batch, [B, T] each, on the device."""
        tokens_BT, targets_BT = next(self.loader)
        return tokens_BT.to(self.device), targets_BT.to(self.device)

    def reset_counts(self) -> None:
        """Forget maximum logits and expert loads: they belong to one step."""
        for model in self.models:
            for attention in model.attentions():
                attention.reset_max_logit()
            for router in model.routers():
                router.reset_load()

    def load_imbalance(self) -> float:
        """Tokens of the fullest expert over the mean, in the worst layer here; 0 without
        experts."""
        loads = [router.load_E.float() for model in self.models for router in model.routers()]
        return max(((one.max() / one.mean()).item() for one in loads), default=0.0)

    def peak_bytes(self) -> int:
        """The most device memory so far on CUDA, else of the process's resident memory."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        import resource  # noqa: PLC0415  not on Windows, where CUDA may be all there is

        unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes on Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def build(run: RunSpec, world: World, device: torch.device) -> Trainee:
    """The run before its first step, on one rank. Raises UsageError where it cannot be cut for
    these ranks."""

    def text() -> tuple[Prepared, Loader]:
        prepared, train = _prepared(run, world), run.train
        place = world.data_index, world.mesh.data
        shape = train.sequence, train.micro_batch
        return prepared, Loader(prepared.training, *shape, run.data.seed, *place)

    return assemble(run, world, device, text)


def assemble(
    run: RunSpec,
    world: World,
    device: torch.device,
    text: Callable[[], tuple[Prepared, Loader]],
    *,
    balanced: bool = False,
) -> Trainee:
    """The same on a text that is made when the rest has been; `balanced` as in `ExpertExchange`."""
    dtype, turns = DTYPES[run.train.precision], Turns(world.tape)
    experts = world.groups["expert"]
    exchange = ExpertExchange(experts, turns, balanced=balanced) if experts.size > 1 else None
    parts = stage_of(run.model, world.mesh, world.rank, exchange, device=device, dtype=dtype)
    for part in parts.values():
        initialize(part, run.train.seed, part.part.first_expert(run.model))
        for router in part.routers():
            router.forced = run.balance.forced
    prepared, loader = text()
    return Trainee(
        world=world,
        parts=parts,
        optimizer=_optimizer(run, world, parts),
        runtime=Runtime(parts, Messages(world.route, world.tape), turns, run.memory, _pace(run)),
        prepared=prepared,
        loader=loader,
        device=device,
        dtype=dtype,
        counted=Transformer(run.model, device="meta"),
        peak_flop_per_s=peak_flop_per_s(device, dtype),
    )


def _optimizer(run: RunSpec, world: World, parts: Mapping[int, Transformer]) -> Alone | Replicas:
    states = OptimizerStates(run.memory)
    named = [list(part.named_parameters()) for part in parts.values()]
    if world.ranks == 1:
        return Alone([one for part in named for one in part], run.optimizer, states)
    groups, expert = world.groups, world.groups["expert"]
    holders = Holders(
        groups["data"], groups["expert_data"], run.parallel.zero, expert.index, expert.size
    )
    return Replicas(named, run.optimizer, holders, states)


def _prepared(run: RunSpec, world: World) -> Prepared:
    """The text: the first rank makes it where nobody did before, and the others read that."""
    handle = world.groups["world"].handle
    if handle is not None:
        on_first(handle, lambda: prepare(run.data, run.model.vocab) and None)
    return prepare(run.data, run.model.vocab)


def _pace(run: RunSpec) -> Pace:
    return load_pace(None if run.train.pace is None else Path(run.train.pace))
