"""Training rows: step time and peak memory, predicted by playing the row's scenario."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twin.arch.count import flop_per_token
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.measured import Rate, held_bytes, peak_bytes, seconds_of, step_seconds
from twin.evidence.validate.play import Played, play, settled
from twin.evidence.validate.row import Row, Unreadable
from twin.evidence.validate.training import Expressed, express
from twin.scenario import Scenario

STEP = "step_seconds"
PEAK = "peak_device_bytes"


def answers(row: Row) -> tuple[Answer, ...]:
    """Step time, and peak memory where it was measured."""
    try:
        expressed, scenario = settled(express(row))
        played = play(scenario)
        measured = measured_seconds(row, expressed, scenario)
        peak = peak_bytes(row)
    except Unreadable as why:
        return (refused(row, STEP, str(why)),)
    known = _Known(row, expressed, scenario, played)
    found = [known.answer(STEP, played.step_seconds, measured)]
    if peak is not None:
        room = scenario.cluster.node.gpu.memory
        held = held_bytes(played.peak_bytes, expressed.stack, room)
        found.append(known.answer(PEAK, held, peak))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Known:
    row: Row
    expressed: Expressed
    scenario: Scenario
    played: Played

    def answer(self, metric: str, predicted: float, measured: float | None) -> Answer:
        train = self.scenario.train
        flop = flop_per_token(self.scenario.model, train.sequence) * train.global_batch
        return replace(
            blank(self.row, metric),
            predicted=predicted,
            measured=measured,
            reason="" if measured is not None else "the row has no time",
            stack=self.expressed.stack.name,
            assumed=self.expressed.assumed,
            flop=flop / self.scenario.cluster.gpus,
        )


def measured_seconds(row: Row, expressed: Expressed, scenario: Scenario) -> float | None:
    """Measured seconds of a step; a rate of FLOP counts as the row's stack does."""
    found = step_seconds(row)
    if not isinstance(found, Rate):
        return found
    if found.convention != "hardware":
        found = replace(found, convention=expressed.stack.convention)
    return seconds_of(found, scenario)
