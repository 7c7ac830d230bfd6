"""Plan to trace of an iteration: rollouts, the trainer's steps and the update are played, each by
its own simulator, and put together in the order of the mode.

Every nanosecond of every GPU is work or has a cause, exactly. What GPUs do inside of an optimizer
step is the step's own report; all of it counts as work here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from twin.errors import Problem, ScenarioError
from twin.kinds.iteration.plan import cache_tokens
from twin.kinds.iteration.training import at_once, batch, each_step, padded, trained
from twin.kinds.iteration.types import (
    CAUSES,
    WORKS,
    Batch,
    Cause,
    IterationPlan,
    IterationTrace,
    Phase,
    Round,
    Side,
    Span,
    Work,
)
from twin.kinds.rollouts.plan import Place, RolloutIteration, place_of, rules_of
from twin.kinds.rollouts.report import settled
from twin.kinds.rollouts.simulate import played
from twin.kinds.weight_update.lower import lower
from twin.kinds.weight_update.simulate import simulate as simulate_update

NEXT: Final = "one_step_off"
LEARNING: Final[tuple[Phase, ...]] = (
    "prepare",
    "sleep",
    "load",
    "score",
    "swap",
    "train",
    "unload",
)
"""What follows the rewards, in turn. Engines that have GPUs of their own stay awake."""

Parts = Mapping[Phase, int]


def simulate(
    plan: IterationPlan, progress: Callable[[float], None] | None = None
) -> IterationTrace:
    """Play the iterations of a plan; those that have settled are kept. `progress` is told the
    share that is done, 0 to 1.

    Raises `ScenarioError` where a sequence is longer than a micro-batch.
    """
    rollouts = played(plan.rollouts, plan.server, _place(plan), rules_of(plan.rollouts))
    update_ns = simulate_update(lower(plan.update)).update_ns
    kept = settled(rollouts)
    made: list[tuple[dict[Phase, int], Batch]] = []
    for at, one in enumerate(kept, 1):
        if progress is not None:
            progress(at / (len(kept) + 1))
        made.append(_parts(plan, one, update_ns))
    rounds: list[Round] = []
    for at, (parts, own) in enumerate(made):
        # Beside the training of one iteration the next one's rollouts run; the last one's, the
        # first's: so every one of them counts once.
        other = (at + 1) % len(made) if plan.spec.mode == NEXT else at
        whole: dict[Phase, int] = {**parts, "rollout": made[other][0]["rollout"]}
        rounds.append(_round(plan, whole, kept[other], own))
    return IterationTrace(tuple(rounds), rollouts, update_ns, rollouts.events)


def _place(plan: IterationPlan) -> Place:
    own = place_of(plan.rollouts, plan.server, plan.engines)
    return replace(own, tokens=cache_tokens(plan))


def _parts(
    plan: IterationPlan, one: RolloutIteration, update_ns: int
) -> tuple[dict[Phase, int], Batch]:
    """Nanoseconds of each phase of an iteration, and what was trained on."""
    train, spec = plan.trainer.scenario.train, plan.spec
    capacity = train.sequence * plan.trainer.scenario.parallel.micro_batch
    longest = max(one.lengths, default=0)
    room = capacity if spec.batching == "packed" else train.sequence
    if longest > room:
        message = f"a sequence of {longest:,} tokens is longer than a micro-batch of {room:,}"
        fix = f"write at least `{longest}tok`, or a smaller `longest` of `rl.rollout.written`"
        raise ScenarioError(
            plan.scenario.locate([Problem("TW189", "train.sequence", message, fix)])
        )
    lengths = _kept(one.lengths, spec.kept)
    made = _batch(plan, lengths, capacity)
    # Passes forward know no optimizer steps: what is dealt at once is even there.
    scored = made if spec.balance == "steps" else _batch(plan, lengths, capacity, scored=True)
    took = trained(plan.trainer, made, scored if spec.scores else None)
    there, back = (plan.switch.ns, plan.switch.back_ns) if plan.colocated else (0, 0)
    return {
        "rollout": one.length_ns,
        "rewards": round(1e9 * spec.rewards),
        "prepare": round(1e9 * spec.prepare * made.sequences),
        "sleep": round(1e9 * spec.sleep) + plan.backup_ns if plan.colocated else 0,
        "load": there,
        "score": spec.scores * took.score_ns,
        "swap": plan.swap_ns,
        "train": took.train_ns,
        "unload": back,
        "update": update_ns + plan.handing_ns,
        "wake": round(1e9 * spec.wake) + plan.backup_ns,
    }, made


def _batch(
    plan: IterationPlan, lengths: Sequence[int], capacity: int, *, scored: bool = False
) -> Batch:
    """Micro-batches by tokens, or by sequences; `scored`: of passes forward."""
    deal = at_once if plan.spec.balance == "iteration" else each_step
    steps = 1 if scored else plan.spec.optimizer_steps
    shares = deal(lengths, plan.trainer.mesh.data, steps)
    if plan.spec.batching == "packed":
        return batch(lengths, capacity, shares)
    size = plan.trainer.scenario.parallel.micro_batch
    most = plan.trainer.scenario.train.sequence
    return batch(lengths, size, shares, partial(padded, pad_to=plan.spec.pad_to or 1, most=most))


def _kept(lengths: Sequence[int], share: float) -> Sequence[int]:
    """Every so many-th of the sequences: what is dropped is so whatever its length."""
    count = max(1, round(share * len(lengths))) if lengths else 0
    return [lengths[at * len(lengths) // count] for at in range(count)]


def length_of(mode: str, parts: Mapping[Phase, float], early: float = 0.0) -> float:
    """How long an iteration of such parts takes, whose trainer begins so much before the last
    rollout ends."""
    rolled = parts["rollout"] + parts["rewards"]
    learnt = sum(parts[phase] for phase in LEARNING)
    begin = 0.0 if mode == NEXT else max(0.0, rolled - early)
    return max(rolled, begin + learnt) + parts["update"] + parts["wake"]


def _early(plan: IterationPlan, parts: Parts, one: RolloutIteration) -> int:
    """Nanoseconds by which a trainer that takes sequences in parts is at work before the last of
    them is done: each part is trained on once it is there and the trainer is free."""
    parted, rolled = plan.spec.stream, parts["rollout"] + parts["rewards"]
    learnt = sum(parts[phase] for phase in LEARNING)
    end = 0
    for at in range(1, parted + 1):
        done = (one.at(at / parted) or 0) + parts["rewards"]
        end = max(end, done if at < parted else rolled) + learnt // parted
    return max(0, rolled + learnt - end) if parted > 1 else 0


def _round(
    plan: IterationPlan, parts: dict[Phase, int], one: RolloutIteration, own: Batch
) -> Round:
    early = _early(plan, parts, one)
    spans = _spans(plan, parts, early)
    length = max(span.end_ns for span in spans)
    books = _Books(plan, parts, length)
    books.rollouts(one)
    books.turns()
    found = Round(spans, length, parts, books.busy, books.idle, own, early)
    whole = sum(found.busy_ns.values()) + sum(found.idle_ns.values())
    assert whole == plan.gpus * length, "all GPUs are somewhere all of the time"
    return found


def _spans(plan: IterationPlan, parts: Parts, early: int) -> tuple[Span, ...]:
    """The phases that take time, in the order of time."""
    found: list[Span] = []
    colocated = plan.colocated

    def add(phases: Sequence[Phase], side: Side, gpus: int, at: int) -> int:
        for phase in phases:
            if parts[phase]:
                found.append(Span(phase, side, gpus, at, at + parts[phase]))
            at += parts[phase]
        return at

    engines: Side = "all" if colocated else "engines"
    trainers: Side = "all" if colocated else "trainers"
    rolled = add(("rollout", "rewards"), engines, plan.rollout_gpus, 0)
    begin = 0 if plan.spec.mode == NEXT else rolled - early
    learnt = add(LEARNING, trainers, plan.train_gpus, begin)
    over = add(("update", "wake"), "all", plan.gpus, max(rolled, learnt))
    if not found:
        found.append(Span("rollout", engines, plan.rollout_gpus, 0, over))
    return tuple(found)


@dataclass(slots=True)
class _Books:
    """What GPUs do in an iteration, in GPU-nanoseconds."""

    plan: IterationPlan
    parts: Parts
    length: int
    busy: dict[Work, int]
    idle: dict[Cause, int]

    def __init__(self, plan: IterationPlan, parts: Parts, length: int) -> None:
        self.plan, self.parts, self.length = plan, parts, length
        self.busy = dict.fromkeys(WORKS, 0)
        self.idle = dict.fromkeys(CAUSES, 0)

    def rollouts(self, one: RolloutIteration) -> None:
        """While requests are written: the engines' own account, and GPUs without an engine."""
        each, spent = self.plan.server.spec.gpus, one.spent_ns
        self.busy["writing"] += each * spent["decode"]
        self.busy["prefilling"] += each * spent["prefill"]
        self.idle["sandbox"] += each * one.away_ns
        self.idle["tail"] += each * (spent["idle"] - one.away_ns)
        spare = self.plan.rollout_gpus - self.plan.engine_gpus
        self.idle["spare"] += spare * self.parts["rollout"]

    def turns(self) -> None:
        """All else: training, and who waits for whom."""
        plan, parts = self.plan, self.parts
        learnt = parts["score"] + parts["train"]
        self.busy["scoring"] += plan.train_gpus * parts["score"]
        self.busy["training"] += plan.train_gpus * parts["train"]
        self.idle["weights"] += plan.gpus * parts["update"]
        moved = sum(parts[phase] for phase in ("sleep", "load", "unload", "wake"))
        self.idle["switch"] += plan.gpus * moved + plan.train_gpus * parts["swap"]
        self.idle["prepare"] += plan.train_gpus * parts["prepare"]
        rolled = parts["rollout"] + parts["rewards"]
        if plan.colocated:
            self.idle["rewards"] += plan.gpus * parts["rewards"]
            return
        shared = self.length - parts["update"] - parts["wake"]
        self.idle["rewards"] += plan.rollout_gpus * parts["rewards"]
        self.idle["awaiting_training"] += plan.rollout_gpus * (shared - rolled)
        waited = shared - learnt - parts["prepare"] - parts["swap"]
        if plan.spec.mode != NEXT:
            rewards = min(waited, parts["rewards"])
            self.idle["rewards"] += plan.train_gpus * rewards
            waited -= rewards
        self.idle["awaiting_rollouts"] += plan.train_gpus * waited
