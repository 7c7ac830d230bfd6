"""A run as a row of stages: what `train` describes, then the long-context ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from reference.config import MAIN, RunSpec, StageSpec, TrainSpec
from reference.optim.spec import learning_rate
from twin.spec.model import Rope, Yarn


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps of one kind. `first` and `end` count the run's steps from 0."""

    name: str
    first: int
    end: int
    sequence: int
    micro_batch: int
    accumulate: int
    rope: Rope
    rates: tuple[float, float] | None
    """Of the first and the last step; None: the schedule's."""

    @property
    def tokens(self) -> int:
        """Per step."""
        return self.sequence * self.micro_batch * self.accumulate

    def learning_rate(self, run: RunSpec, step: int) -> float:
        """Of the run's step at this place, from 0."""
        if self.rates is None:
            return learning_rate(step, run.schedule, run.optimizer.lr)
        first, last = self.rates
        return first + (last - first) * (step - self.first) / max(1, self.end - self.first - 1)


def stages_of(run: RunSpec) -> tuple[Stage, ...]:
    """All stages of a run, in order."""
    found = [_stage(MAIN, run.train, 0, run.model.rope, None)]
    for spec in run.stages:
        rope = _stretched(found[-1].rope, spec, run.train.sequence)
        rates = (spec.lr, spec.lr if spec.final_lr is None else spec.final_lr)
        found.append(_stage(spec.name, spec, found[-1].end, rope, rates))
    return tuple(found)


def _stage(
    name: str,
    spec: TrainSpec | StageSpec,
    first: int,
    rope: Rope,
    rates: tuple[float, float] | None,
) -> Stage:
    end = first + spec.steps
    return Stage(name, first, end, spec.sequence, spec.micro_batch, spec.accumulate, rope, rates)


def _stretched(rope: Rope, spec: StageSpec, original: int) -> Rope:
    """The rotations of a stage: as before, or stretched by its factor."""
    if spec.yarn is None:
        return rope
    if rope.yarn is not None:
        return rope.model_copy(update={"yarn": rope.yarn.model_copy(update={"factor": spec.yarn})})
    written = {"factor": spec.yarn, "original_context": f"{original}tok"}
    return rope.model_copy(update={"yarn": Yarn.model_validate(written)})


def microbatches(run: RunSpec) -> int:
    """Micro-batches that divide those of every stage's step: what replicas have to share."""
    return gcd(*(stage.accumulate for stage in stages_of(run)))
