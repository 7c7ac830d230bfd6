"""Calibration: a few numbers of a profile, fitted on rows marked for it, and how well it meets rows
that a fit has not seen. `calibrate` is the verb for anybody's measurements; `a100`, `hopper`,
`trace` and `weight_update` are the fits behind shipped parts, `withheld` what ten rows can tell.

Rows that judge the twin are never among them. The fits need the extra `calibrate` (scipy).
"""
