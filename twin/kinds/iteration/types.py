"""What an iteration of reinforcement learning is made of: the plan (who has which GPUs, what is in
memory when), and the trace (what ran when, and what GPUs did)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from twin.inference.engine import Engine
from twin.inference.kv_capacity import KvCapacity
from twin.kinds.rollouts.plan import RolloutTrace
from twin.kinds.weight_update.plan import UpdatePlan
from twin.loading.files import table
from twin.planning.types import Plan, Warning
from twin.scenario import Scenario
from twin.spec.iteration import IterationSpec
from twin.spec.rollout import RolloutSpec

NAME: Final = "rl_iteration"
"""Of the kind that these nouns are of."""

Phase = Literal[
    "rollout",
    "rewards",
    "prepare",
    "sleep",
    "load",
    "score",
    "swap",
    "train",
    "unload",
    "update",
    "wake",
]
"""What happens: requests are written; the last one's reward is waited for; the host makes a batch
of what was written; engines give their
memory back; the trainer's states come from the host; log-probabilities; weights of the trainer and
of the reference model change places, twice; optimizer steps; states go to the
host; new weights come to the engines; engines make room for caches."""
PHASES: Final[dict[Phase, str]] = table(__name__, "PHASES")
"""Phases in words, in the order of time."""

Work = Literal["writing", "prefilling", "scoring", "training"]
WORKS: Final[dict[Work, str]] = table(__name__, "WORKS")
"""What GPUs work at, in words."""

Cause = Literal[
    "tail",
    "sandbox",
    "rewards",
    "prepare",
    "switch",
    "weights",
    "awaiting_training",
    "awaiting_rollouts",
    "spare",
]
CAUSES: Final[dict[Cause, str]] = table(__name__, "CAUSES")
"""Why GPUs are idle, in words."""

Side = Literal["engines", "trainers", "all"]


@dataclass(frozen=True, slots=True)
class Switch:
    """Bytes of the trainer's states on the fullest GPU, and nanoseconds of their way from the host,
    and back."""

    bytes: float
    ns: int
    back_ns: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes of one phase against what there is: of the fullest device, or of the fullest node."""

    name: str
    bytes: float
    capacity: float

    @property
    def fits(self) -> bool:
        """True where there is room."""
        return self.over <= 0

    @property
    def over(self) -> float:
        """Bytes for which there is no room; negative where some is left."""
        return self.bytes - self.capacity


@dataclass(frozen=True, slots=True)
class IterationPlan:
    """The resolved iteration. `trainer` is a step of the trainer's GPUs, with micro-batches as
    large as they may become; `update` the way of new weights to `engines` of `server`, whose GPUs
    have `room`."""

    kind: ClassVar[str] = NAME

    scenario: Scenario
    spec: IterationSpec
    rollouts: RolloutSpec
    trainer: Plan
    server: Engine
    room: KvCapacity
    engines: int
    rollout_gpus: int
    update: UpdatePlan
    switch: Switch
    backup_ns: int
    """Of the engines' weights to the host, and as long back."""
    swap_ns: int
    """Of the trainer's weights to the host, of the reference model's to the device, and of the
    trainer's back."""
    handing_ns: int
    """From trainers' devices to their hosts, of the weights alone, where engines have GPUs of their
    own."""
    fits: tuple[Fit, ...]
    warnings: tuple[Warning, ...] = ()

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.scenario.cluster.gpus

    @property
    def train_gpus(self) -> int:
        """Those that train."""
        return self.trainer.scenario.cluster.gpus

    @property
    def engine_gpus(self) -> int:
        """Those that some engine has."""
        return self.engines * self.server.spec.gpus

    @property
    def colocated(self) -> bool:
        """Whether engines and trainers have the same GPUs."""
        return self.spec.mode == "colocated"


@dataclass(frozen=True, slots=True)
class Batch:
    """What the trainer makes of the sequences of an iteration: `steps` holds the micro-batches of
    each replica in each optimizer step. A micro-batch of the replica with most attention has
    `tokens` tokens on average, and a token attends to sequences of `reach` tokens on average."""

    sequences: int
    trained: int
    steps: tuple[int, ...]
    tokens: float
    reach: float
    filled: float
    """Share of the micro-batches' room that some sequence's tokens take."""


@dataclass(frozen=True, slots=True)
class Span:
    """A phase on some GPUs, in nanoseconds from the begin of its round."""

    phase: Phase
    side: Side
    gpus: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Round:
    """One iteration as it was played. GPU-nanoseconds of all `busy_ns` and `idle_ns` sum to GPUs x
    length."""

    spans: tuple[Span, ...]
    length_ns: int
    parts_ns: Mapping[Phase, int]
    busy_ns: Mapping[Work, int]
    idle_ns: Mapping[Cause, int]
    batch: Batch
    early_ns: int = 0
    """By which trainers are at work before the last rollout ends."""


@dataclass(frozen=True, slots=True)
class IterationTrace:
    """The settled iterations, one after the other, and the rollouts that they are of."""

    kind: ClassVar[str] = NAME

    rounds: tuple[Round, ...]
    rollouts: RolloutTrace
    update_ns: int
    events: int

    @property
    def length_ns(self) -> int:
        """Nanoseconds of all of them."""
        return sum(one.length_ns for one in self.rounds)
