"""An iteration of reinforcement learning: who rolls out and who trains, on which GPUs, in which
order, and what happens between the two."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ValidationInfo, field_validator

from twin.errors import FieldError
from twin.spec.base import (
    UNWRITTEN,
    Bytes,
    BytesPerSecond,
    Count,
    Duration,
    Flag,
    Seconds,
    Share,
    Spec,
    Tokens,
    Whole,
)
from twin.spec.weight_update import WeightUpdateSpec

Mode = Literal["colocated", "disaggregated", "one_step_off"]
Batching = Literal["packed", "padded"]


class IterationSpec(Spec):
    """Rollouts, switch, scores, training, weight update, wake.

    `colocated`: the same GPUs in turns, as Kimi K2 does it (report, arXiv:2507.20534, section
    3.3.2); the side that is idle leaves the device. `disaggregated`: GPUs for rollouts and GPUs for
    training, one after the other. `one_step_off`: the same GPUs as that, with the rollouts of the
    next iteration beside the training of this one, on weights that are one version old.
    """

    mode: Mode
    """colocated: the same GPUs in turns; disaggregated: GPUs of their own, one after the other;
    one_step_off: the next rollouts beside this training"""
    rollout_nodes: Count | None = None
    """nodes that roll out, while the others train; null: colocated"""
    optimizer_steps: Count = 1
    """optimizer steps on what an iteration brings, which they share"""
    scores: Whole = 1
    """times that the trainer runs all sequences forward before it trains: 1 for their old
    log-probabilities, 2 with those of a reference model"""
    swap_reference: Flag = False
    """the reference model of `scores: 2` waits in host memory: for its pass the trainer's weights
    go to the host, its own come, and then the trainer's again"""
    stream: Count = 1
    """equal parts in which sequences go to the trainer as they are done, so that it trains on the
    first beside the engines that write the rest; with `mode: disaggregated` only"""
    batching: Batching = "packed"
    """packed: sequences fill micro-batches of `parallel.micro_batch` x `train.sequence` tokens;
    padded: `parallel.micro_batch` sequences of like length each, as long as the longest of them"""
    pad_to: Annotated[Tokens | None, UNWRITTEN] = None
    """with `batching: padded`: sequences of a micro-batch are as long as the next multiple of this,
    up to `train.sequence`, so that kernels see few shapes; null: as the longest of them"""
    balance: Literal["steps", "iteration"] = "steps"
    """steps: in every optimizer step each replica has as many tokens; iteration: only over all
    steps together, so that a step waits for the replica with the longest sequences in it"""
    kept: Share = 1.0
    """share of the sequences that are done on which the trainer trains: dynamic sampling drops
    groups of which all are right, or all wrong (DAPO, arXiv:2503.14476, section 3.2)"""
    prepare: Seconds = 0.0
    """time of the host for each sequence that is trained on, while GPUs wait: padding, sorting,
    copies to the trainer's processes"""
    rewards: Duration = 0.0
    """from the last request to its reward, which all wait for"""
    asleep: Bytes = 0.0
    """device memory that the side which sleeps keeps: contexts, communicators, captured graphs"""
    offload: Flag = True
    """the trainer's weights and states leave the device while engines work; false: they stay beside
    the engines"""
    unload: BytesPerSecond | None = None
    """what one GPU copies to the host per second when the trainer's states leave it: memory that is
    allocated anew and not pinned is slower than the link; null: as fast as links allow"""
    backup: Flag = False
    """engines that go to sleep copy their weights to the host, and back when they wake (the first
    level of vLLM's sleep), although an update brings new ones"""
    sleep: Duration = 0.0
    """until engines have given their memory back, before training"""
    wake: Duration = 0.0
    """from new weights to the first request: caches and graphs again"""
    update: WeightUpdateSpec
    """how new weights reach the engines"""

    @field_validator("stream")
    @classmethod
    def _streams_between_nodes(cls, stream: int, info: ValidationInfo) -> int:
        mode: Mode | None = info.data.get("mode")
        if stream > 1 and mode is not None and mode != "disaggregated":
            message = f"sequences do not stream with `mode: {mode}`"
            raise FieldError("TW186", message, "leave `stream` out, or write `disaggregated`")
        return stream

    @field_validator("rollout_nodes")
    @classmethod
    def _nodes_follow_the_mode(cls, nodes: int | None, info: ValidationInfo) -> int | None:
        mode: Mode | None = info.data.get("mode")
        if mode == "colocated" and nodes is not None:
            message = "colocated engines and trainers have all nodes in turns"
            raise FieldError("TW186", message, "leave `rollout_nodes` out, or choose another mode")
        return nodes

    @field_validator("update")
    @classmethod
    def _updates_only(cls, update: WeightUpdateSpec) -> WeightUpdateSpec:
        if update.event != "update":
            message = f"an iteration ends with an update, not with the event `{update.event}`"
            raise FieldError("TW186", message, "leave `event` out")
        return update
