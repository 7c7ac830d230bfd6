"""The pages of the app, in the order of the navigation."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PAGES: Final = Path(__file__).parent / "pages"

PLAN: Final = _PAGES / "plan.py"
RESULT: Final = _PAGES / "result.py"
MEMORY: Final = _PAGES / "memory.py"
NETWORK: Final = _PAGES / "network.py"
COMPARE: Final = _PAGES / "compare.py"
EXPLORE: Final = _PAGES / "explore.py"
SERVING: Final = _PAGES / "serving.py"
MEASURED: Final = _PAGES / "measured.py"
TRACK: Final = _PAGES / "track.py"
REALITY: Final = _PAGES / "reality.py"
CATALOG: Final = _PAGES / "catalog.py"
ASSUMPTIONS: Final = _PAGES / "assumptions.py"
WEIGHT_UPDATE: Final = _PAGES / "weight_update.py"
ITERATION: Final = _PAGES / "iteration.py"
