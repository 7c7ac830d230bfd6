"""Published clusters reproduced: rows of measurements as scenarios, predicted and scored.

`suite` reads rows, `stacks` knows what software does that a row does not say, `training` makes
scenarios of rows, `validate` predicts. No number here is fitted: what was fitted is in calibration
profiles, on rows whose `use` is `fit`.
"""

from twin.evidence.validate.answer import Answer
from twin.evidence.validate.row import Row, Unreadable
from twin.evidence.validate.suite import read_suite
from twin.evidence.validate.validate import validate

__all__ = ["Answer", "Row", "Unreadable", "read_suite", "validate"]
