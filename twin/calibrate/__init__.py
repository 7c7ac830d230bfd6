"""Calibration: a few numbers of a profile, fitted with the whole simulator on rows marked for it.

Rows that judge the twin are never among them. Needs the extra `calibrate` (scipy).
"""

from twin.calibrate.fit import Fit, fit
from twin.calibrate.rows import Row

__all__ = ["Fit", "Row", "fit"]
