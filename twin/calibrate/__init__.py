"""Calibration: a few numbers of a profile, fitted on rows marked for it, and how well it gives
those rows back (`kernels`, `trace`).

Rows that judge the twin are never among them. The fits need the extra `calibrate` (scipy).
"""
