"""Real runs: what a trainer's ranks wrote down, as the traces that simulated steps have.

`folder` reads the timelines of a run, `lines` one rank's file, `layout` says who speaks with whom,
`breakdown` names what each rank waited for, `step` makes one step a `Trace`, `summary` looks over
all of them, and `beside` puts a prediction beside what was measured.
"""

from twin.measured.beside import Beside, beside, sentence
from twin.measured.folder import MeasuredRun, found, is_run, read
from twin.measured.step import trace
from twin.measured.summary import Summary, summary
from twin.measured.together import together

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
