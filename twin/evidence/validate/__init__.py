"""Published clusters reproduced: rows of measurements as scenarios, predicted and scored.

`suite` reads rows, `stacks` holds what software does that a row does not state, `training` makes
scenarios of rows, `validate` predicts. No number here is fitted: fitted numbers are in calibration
profiles, on rows whose `use` is `fit`.
"""
