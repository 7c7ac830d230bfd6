"""The app. New plan asks a question; Plan, Result, Compare, Explore and Evidence are rows of
sections. A page reads the state, asks the twin, and places figures; no formula lives here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PAGES: Final = Path(__file__).parent / "pages"

NEW: Final = _PAGES / "new.py"
PLAN: Final = _PAGES / "plan.py"
RESULT: Final = _PAGES / "result.py"
COMPARE: Final = _PAGES / "compare.py"
EXPLORE: Final = _PAGES / "explore.py"
EVIDENCE: Final = _PAGES / "evidence.py"
