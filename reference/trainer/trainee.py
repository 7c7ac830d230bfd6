"""What a run changes: model, optimizer, place in the text, and how far it is; on one rank, its part
of each.

How much work a token is, counted from the model at hand, and what the device could do.

Model FLOP as in PaLM's MFU (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): 6 per weight in a
matrix product that the token passes (2 forward, 4 backward), and attention's two products over the
visible half of the sequence. What recomputation adds is not counted; neither are norms, SwiGLU,
softmax, the optimizer, nor the lookup of embeddings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self, cast

import torch

from reference.checkpoint.piece import on_first
from reference.config import RunSpec
from reference.memory.optimizer_states import OptimizerStates
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.optim.qk_clip import least_threshold
from reference.parallel.messages import Messages
from reference.parallel.overlap import ExpertExchange, Pace, Turns, load_pace
from reference.parallel.replicas import Alone, Holders, Replicas
from reference.parallel.runtime import Runtime
from reference.parallel.world import World, stage_of
from reference.text.dialogs import PreparedDialogs, prepare_dialogs
from reference.text.loader import Batch, Loader, Weighed
from reference.text.prepare import Prepared, prepare
from reference.trainer.settings import DTYPES, copy_weights, read_start, refuse_other_text
from reference.trainer.stages import Stage, stages_of
from twin.errors import Problem, UsageError
from twin.loading import catalog_parts, load_part
from twin.spec.model import LatentAttention, ModelSpec

_PER_WEIGHT: Final = 6


def matmul_weights_per_token(model: Transformer) -> int:
    """Weights of the matrix products that one token passes: of routed experts `top_k`, of tied
    embeddings the head's use, of the input embedding none."""
    moe = model.spec.moe
    total = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() == 3 and moe is not None:
            total += parameter.numel() * moe.top_k // moe.experts
        elif parameter.dim() == 2 and not name.startswith("embedding."):
            total += parameter.numel()
    return total + (model.embedding.weight.numel() if model.spec.tied_embeddings else 0)


def attention_flop_per_token(spec: ModelSpec, sequence: int) -> float:
    """Of queries times keys and probabilities times values, forward and backward, on average over
    a causal sequence: 3 x 2 x H (Q + V) (T + 1) / 2 per layer."""
    attention = spec.attention
    if isinstance(attention, LatentAttention):
        query = attention.qk_nope_head_dim + attention.qk_rope_head_dim
        widths = attention.heads * (query + attention.v_head_dim)
    else:
        widths = attention.heads * 2 * attention.head_dim
    return spec.layers * 3 * 2 * widths * (sequence + 1) / 2


def flop_per_token(model: Transformer, sequence: int) -> float:
    """Model FLOP of one trained token in a sequence of this many tokens."""
    weights = matmul_weights_per_token(model)
    return _PER_WEIGHT * weights + attention_flop_per_token(model.spec, sequence)


def peak_flop_per_s(device: torch.device, dtype: torch.dtype) -> float | None:
    """Dense matrix FLOP/s of the device's datasheet, from the catalog's GPUs; None where the
    catalog does not know it, as for CPUs, or for fp32, whose peak depends on a setting (TF32)."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return None
    return catalog_peak(torch.cuda.get_device_name(device))


def catalog_peak(device_name: str) -> float | None:
    """The bf16 peak of the GPU whose catalog name begins with a word of the device's. The catalog
    holds SXM boards; PCIe and NVL ones of the same name are slower, and unknown."""
    words = device_name.lower().replace("-", " ").split()
    known = [name for name in catalog_parts("gpus") if name.split("-")[0] in words]
    if not known or {"pcie", "nvl"} & {*words}:
        return None
    return load_part("gpus", min(known, key=len)).spec.bf16_dense


class Feed(Protocol):
    """Where micro-batches come from: text, dialogues, or what a policy wrote."""

    def __next__(self) -> Batch | Weighed:
        """The next micro-batch of this rank."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, equal on every rank."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where another one stood."""
        ...

    def with_sequences(self, sequence: int, micro_batch: int) -> Self:
        """One that goes on from here with rows of another length or number."""
        ...


@dataclass(slots=True)
class Trainee:
    """The state of a run between two steps on one rank, and the device that it is on."""

    world: World
    parts: Mapping[int, Transformer]
    """The rank's parts of the model by chunk, in the model's order."""
    optimizer: Alone | Replicas
    runtime: Runtime
    prepared: Prepared | PreparedDialogs
    loader: Feed
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

    @property
    def all_learned(self) -> bool:
        """Whether every token has a target, as those of text have."""
        return not isinstance(self.prepared, PreparedDialogs)

    def enter(self, stage: Stage) -> None:
        """Take the positions and batches of a stage; weights and place in the text stay."""
        for model in self.models:
            model.stretch(stage.rope)
        self.loader = self.loader.with_sequences(stage.sequence, stage.micro_batch)

    def next_batch(self) -> Batch | Weighed:
        """Tokens and targets of the next micro-batch, [B, T] each, on the device; the weights of
        targets, where they have some."""
        moved = tuple(one.to(self.device) for one in next(self.loader))
        return cast("Batch | Weighed", moved)

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


Text = tuple[Prepared | PreparedDialogs, Feed]
"""What is learned, and the rank's batches of it."""


def build(run: RunSpec, world: World, device: torch.device, *, resumes: bool = False) -> Trainee:
    """The run before its first step, on one rank; one that resumes needs no other run's weights.
    Raises UsageError where it cannot be cut for these ranks, and for what it cannot begin with."""
    start = None if resumes or run.start is None else read_start(Path(run.start), run.model)

    def text() -> Text:
        prepared, train = _prepared(run, world), run.train
        if start is not None:
            refuse_other_text(start, prepared)
        place = world.data_index, world.mesh.data
        shape = train.sequence, train.micro_batch
        if run.dialogs is None:
            return prepared, Loader(prepared.training, *shape, run.data.seed, *place)
        shortest = min(stage.sequence for stage in stages_of(run))
        given = prepare_dialogs(run.dialogs, prepared, run.model.vocab, shortest)
        return given, given.loader(shape, run.data.seed, place)

    begin = None if start is None else partial(copy_weights, start)
    return assemble(run, world, device, text, begin=begin)


def assemble(
    run: RunSpec,
    world: World,
    device: torch.device,
    text: Callable[[], Text],
    *,
    begin: Callable[[Mapping[int, Transformer]], None] | None = None,
    balanced: bool = False,
) -> Trainee:
    """The same on a text that is made when the rest has been; `begin` gives the parts other first
    weights, `balanced` is as in `ExpertExchange`."""
    dtype, turns = DTYPES[run.train.precision], Turns(world.tape)
    experts = world.groups["expert"]
    exchange = ExpertExchange(experts, turns, balanced=balanced) if experts.size > 1 else None
    parts = stage_of(run.model, world.mesh, world.rank, exchange, device=device, dtype=dtype)
    for part in parts.values():
        initialize(part, run.train.seed, part.part.first_expert(run.model))
        for router in part.routers():
            router.forced = run.balance.forced
        for attention in part.attentions():
            attention.exact_above = least_threshold(run.optimizer.clip)
    if begin is not None:
        begin(parts)
    prepared, loader = text()
    stage_of_chunk = world.mesh.chunk_map.stage_of
    wrong = run.memory.obstacles(run.parallel.pipeline, len(stage_of_chunk))
    if isinstance(run.memory.by_stage, str):
        message = "this trainer does not know how much memory its stages have"
        fix = "write what `twin run --json` names under memory.by_stage"
        wrong = [Problem("TW129", "memory.by_stage", message, fix)]
    if wrong:
        raise UsageError(wrong)
    policies = run.memory.of_chunks(stage_of_chunk)
    return Trainee(
        world=world,
        parts=parts,
        optimizer=_optimizer(run, world, parts),
        runtime=Runtime(parts, Messages(world.route, world.tape), turns, policies, _pace(run)),
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
