"""Step times from what a trainer prints: the formats of `twin track` (Megatron-LM, NeMo,
torchtitan, DeepSpeed, verl), `metrics.jsonl`, and the files of TensorBoard and W&B offline runs.

A log does not say what was trained. That is the scenario beside it in its folder, or the one of
`--defaults`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source
from twin.evidence.live.drift import WARM_UP
from twin.evidence.live.step_time_estimate import step_time
from twin.evidence.live.trainer_log import Log
from twin.interop.recognise import read_by
from twin.loading.files import display

LOGGED: Final = "logged step"
"""What the median of a log's steps is called."""


@final
class TrainingLog(Source):
    """A trainer's log."""

    reads: ClassVar[tuple[str, ...]] = read_by("track")

    def read(self, path: Path) -> Findings:
        """The median of the steps after warming up."""
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
