"""Step times from what a trainer prints: the formats of `twin track` (Megatron-LM, NeMo,
torchtitan, DeepSpeed, verl), `metrics.jsonl`, and the files of TensorBoard and W&B offline runs.

A log does not say what was trained. That is the scenario beside it in its folder, or the one of
`--defaults`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source, packed
from twin.evidence.live.drift import WARM_UP
from twin.evidence.live.event_files import is_event_file
from twin.evidence.live.log_lines import LineReader
from twin.evidence.live.step_time_estimate import step_time
from twin.evidence.live.trainer_log import Log
from twin.loading.files import display

LOGGED: Final = "logged step"
"""What the median of a log's steps is called."""


@final
class TrainingLog(Source):
    """A trainer's log."""

    words: ClassVar[str] = "training log"

    def recognises(self, head: bytes) -> bool:
        """By a line that tells of a step and its time, or as a file of events."""
        if is_event_file(head[:64]):
            return True
        reader = LineReader()
        return any(_is_step(reader, line) for line in head.splitlines())

    def read(self, path: Path) -> Findings:
        """The median of the steps after warming up."""
        if packed(path):
            return Findings(unused=(f"{display(path)}: a packed log is not read; unpack it",))
        log = Log(path)
        log.look()
        steady = [step.seconds for step in log.steps if step.fresh >= WARM_UP]
        found = step_time(steady)
        where = display(path)
        if found is None:
            why = f"{where}: {len(log.steps)} steps, and the first {WARM_UP} warm up"
            return Findings(unused=(why,))
        unused = (f"{where}: {log.lines.damaged} damaged lines",) if log.lines.damaged else ()
        took = f"the median of {found.steps} steps"
        step = Measurement(LOGGED, 0.0, 0, 0, found.seconds, "s", where)
        return Findings((took,), unused, "", (step,))


def _is_step(reader: LineReader, line: bytes) -> bool:
    facts = reader.facts(line)
    return facts is not None and "step" in facts and "seconds" in facts
