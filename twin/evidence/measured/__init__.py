"""Real runs: what a trainer's ranks wrote down, as the traces that simulated steps have.

`folder` reads the timelines of a run, `lines` one rank's file, `layout` says who speaks with whom,
`breakdown` names what each rank waited for, `step` makes one step a `Trace`, `summary` looks over
all of them, and `beside` puts a prediction beside what was measured.
"""

from twin.evidence.measured.beside import Beside, beside, sentence
from twin.evidence.measured.folder import MeasuredRun, found, is_run, read
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import Summary, summary
from twin.evidence.measured.together import together

__all__ = [
    "Beside",
    "MeasuredRun",
    "Summary",
    "beside",
    "found",
    "is_run",
    "read",
    "sentence",
    "summary",
    "together",
    "trace",
]
