"""Published rows as the page Reality has them: the answers that ship, those of this very twin,
predicted in another process, and a row as a plan."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from twin.errors import UsageError
from twin.evidence.validate import shipped_answers
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.leave_one_out import leave_one_out
from twin.evidence.validate.shipped_answers import ShippedAnswers, plan_of
from twin.evidence.validate.suite import PublishedRow, Unreadable, read_suite
from twin.evidence.validate.summary import summarize
from twin.evidence.validate.validate import at_once, validate
from twin.reports.interval import shipped as residuals
from twin.ui.answers import Bug, Failure, away, guarded
from twin.ui.desk import Draft
from twin.ui.jobs import Jobs, Pending
from twin.ui.worker import Note, Worker


@lru_cache(2)
def made_from(as_of: int) -> str:
    """What answers of this twin follow from, as its files stand at `as_of`."""
    del as_of
    return shipped_answers.made_from()


def again(made_from: str) -> Pending[ShippedAnswers | Failure]:
    """All published rows, predicted by this twin; in the making, or made."""
    return _VALIDATIONS.ask(made_from, lambda note: away(_VALIDATOR, predict, (), note))


def predict(note: Note) -> ShippedAnswers | Failure:
    """What the shipped rows come to, predicted in this process and others."""
    return guarded(lambda: _predict(read_suite(), note))


def _predict(rows: tuple[PublishedRow, ...], note: Note) -> ShippedAnswers:
    found: list[RowResult] = []
    for done, own in enumerate(validate(rows, at_once()), 1):
        found += own
        note(done / len(rows))
    try:
        left_out = leave_one_out(rows)
    except UsageError:  # scipy is an extra
        left_out = ()
    return shipped_answers.now(summarize(rows, found, residuals(), left_out))


def draft_of(row_id: str) -> Draft | Failure:
    """A published training row as a plan; the reason, where it has none."""

    def draft() -> Draft:
        row = next(row for row in _rows() if row.id == row_id)
        found = plan_of(row)
        return Draft(found.name, found.name, found.text, found.sets)

    try:
        return guarded(draft)
    except Unreadable as why:
        return Bug(str(why))


@lru_cache(1)
def _rows() -> tuple[PublishedRow, ...]:
    return read_suite()


_VALIDATIONS: Final = Jobs("twin validation")
_VALIDATOR: Final = Worker()
