"""Evidence: predictions against published measurements and real runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twin.ui.accuracy import accuracy_section
from twin.ui.profiler_trace import trace_section
from twin.ui.real_run import live_section, real_section
from twin.ui.session import section

_SECTIONS: Final[dict[str, Callable[[], None]]] = {
    "Accuracy": accuracy_section,
    "Real run": real_section,
    "Profiler trace": trace_section,
    "Live run": live_section,
}

_SECTIONS[section("Evidence", _SECTIONS)]()
