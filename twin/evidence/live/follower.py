"""Follows a run while it runs: reads new log lines and reports its status. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

from twin.errors import Problem, UsageError
from twin.evidence.live.cause import Cause, cause, measured, predicted
from twin.evidence.live.drift import WARM_UP, StepTimeChange, blocks, changes, leaves
from twin.evidence.live.seal import Seal
from twin.evidence.live.seals import BESIDE, Check, check, find, load
from twin.evidence.live.step_time_estimate import FEWEST, Remaining, StepTime, remaining, step_time
from twin.evidence.live.timeline_window import has_timeline, pause_share, window
from twin.evidence.live.trainer_log import (
    NAME,
    Log,
    LoggedStep,
    RunPlan,
    began,
    event_files,
    run_plan,
    tokens_per_step,
)

VERSION: Final = 1
"""Version of the JSON document."""
State = Literal["waiting", "running", "silent", "done"]
"""`silent`: not done, and without news for long."""


@dataclass(frozen=True, slots=True)
class SealComparison:
    """A sealed prediction beside the run. Seconds of a step."""

    seal: str
    name: str
    sealed: str
    predicted: float
    interval: tuple[float, float] | None
    measured: StepTime | None
    """Over all steps of the predicted size, without warm-ups."""
    different: str
    """Why the run's steps are not the predicted ones; empty where they are."""
    late: bool
    """Whether it was sealed after the run had begun."""
    left: int | None
    """The step at which the run was called outside of the interval, or, where none was sealed, more
    than 5 % away from the prediction; None where it was not."""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return None if self.measured is None else self.measured.seconds / self.predicted

    @property
    def inside(self) -> bool | None:
        """Whether the measured median lies in the sealed interval; None where there is none, or not
        enough was measured."""
        if self.interval is None or self.measured is None or self.measured.steps < FEWEST:
            return None
        return self.interval[0] <= self.measured.seconds <= self.interval[1]


@dataclass(frozen=True, slots=True)
class Track:
    """How a run stands."""

    run: str
    state: State
    step: int
    steps: int | None
    """Of the whole run; None where nothing says it."""
    stage: str
    tokens: int | None
    pace: StepTime | None
    """Of the newest steps since the last change."""
    tokens_per_second: float | None
    remaining: Remaining | None
    ends: str | None
    """When the last step will be done; ISO 8601, UTC."""
    pause_share: float | None
    """Time between steps over time in steps, which `remaining` counts in; None where no timeline
    says it, and then `remaining` is of steps only."""
    prediction: SealComparison | None
    changes: tuple[StepTimeChange, ...]
    cause: Cause | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One document of plain data."""
        beside, why = self.prediction, self.cause
        found: dict[str, Any] = {"version": VERSION} | asdict(self)
        found["changes"] = [asdict(one) | {"ratio": one.ratio} for one in self.changes]
        if beside is not None:
            found["prediction"] |= {"ratio": beside.ratio, "inside": beside.inside}
        if why is not None:
            likely = why.likely.kind if why.likely else None
            found["cause"] |= {"likely": likely, "words": why.words}
        return found


RECENT: Final = 200
"""Newest steps that pace and remaining time are taken from: OURS. Old ones say less of what
comes."""
_PROFILED: Final = 20
"""Steps of the timeline that are looked at on either side of a change."""
_TOLERANCE: Final = 0.05
"""How far from a prediction without an interval a run may go before it is said to leave it: OURS,
and no statement of how good the prediction is."""
_SILENT_STEPS, _SILENT_SECONDS = 20, 60.0
"""A log that is not done, and without news for so many median steps and so many seconds, is
silent."""


@dataclass(slots=True)
class Follower:
    """Follows one run. `look` reads on; what was read stays."""

    folder: Path
    log: Log
    seal: Seal | None = None
    known_steps: int | None = None
    """Steps of the run, where somebody said so."""
    causes: dict[tuple[int, ...], Cause | None] = field(
        default_factory=dict[tuple[int, ...], Cause | None]
    )
    """The newest cause that was looked for, by what it was looked for of."""

    def look(self, now: datetime | None = None) -> Track:
        """How the run stands now. Raises `UsageError` where the prediction beside it is none."""
        self.log.look()
        beside = self.folder / BESIDE
        if self.seal is None and beside.is_file():
            self.seal = load(beside)
        return _track(self, now or datetime.now(UTC))

    def check(self, now: datetime | None = None) -> Check | None:
        """The sealed prediction held against what was read of the run; None where there is none, or
        too little was read."""
        now = now or datetime.now(UTC)
        beside = _beside(self)
        if self.seal is None or beside is None or beside.different or beside.measured is None:
            return None
        if beside.measured.steps < FEWEST:
            return None
        place = str(self.folder.absolute())
        return check(self.seal, beside.measured, place, began(self.folder, self.log), now)


def follow(
    path: str | Path, against: str | None = None, steps: int | None = None, *, wait: bool = False
) -> Follower:
    """Begin to follow a run: its folder, or its log. The prediction is the seal `against`, or else
    the file `prediction.json` beside the log, once there is one. With `wait` the folder may come
    later.

    Raises `UsageError` where there is no such folder (TW340), or the seal is none (TW341 to TW343).
    """
    place = Path(path)
    folder = place.parent if place.is_file() else place
    if not folder.is_dir() and not wait:
        message = f"there is no run `{path}`"
        fix = f"name the log, or the folder that the trainer writes `{NAME}` into"
        raise UsageError([Problem("TW340", "", message, fix)])
    seal = None if against is None else find(against)
    log = place if place.is_file() or _event_folder(place) else folder / NAME
    return Follower(folder, Log(log), seal, steps)


def _event_folder(place: Path) -> bool:
    """Whether a folder has TensorBoard's or Weights & Biases' files, and no log of its own."""
    return not (place / NAME).exists() and bool(event_files(place))


def _track(follower: Follower, now: datetime) -> Track:
    log = follower.log
    stage = log.steps[-1].stage if log.steps else ""
    found = _course(follower)
    total = None if found.steps is None else max(found.steps, log.last)
    turns = _changes(log.steps)
    recent = _recent(log.steps, turns)
    tokens = tokens_per_step(log.steps)
    middle = step_time(recent)
    pauses = pause_share(follower.folder)
    left = _left(found, log, tokens, recent, pauses)
    state = _state(follower, total, middle, now)
    beside = _beside(follower)
    return Track(
        run=str(follower.folder),
        state=state,
        step=log.last,
        steps=total,
        stage=stage,
        tokens=log.steps[-1].tokens if log.steps else None,
        pace=middle,
        tokens_per_second=tokens / middle.seconds if tokens and middle else None,
        remaining=left,
        ends=_ends(left, state, now),
        pause_share=pauses,
        prediction=beside,
        changes=turns,
        cause=_cause(follower, turns, beside),
        notes=tuple(_notes(follower, beside, pauses)),
    )


def _course(follower: Follower) -> RunPlan:
    """What the run's folder says of its end, else what the prediction does."""
    found = run_plan(follower.folder, follower.known_steps or follower.log.lines.steps)
    seal = follower.seal
    if found.steps is None and seal is not None and not _different(follower, seal):
        return run_plan(follower.folder, seal.prediction.steps)
    return found


def _changes(steps: Sequence[LoggedStep]) -> tuple[StepTimeChange, ...]:
    """Changes within each stage: from stage to stage steps differ anyway."""
    stages = (list(rows) for _, rows in groupby(steps, key=lambda one: one.stage))
    return tuple(one for rows in stages for one in changes(blocks(rows)))


def _recent(steps: Sequence[LoggedStep], turns: Sequence[StepTimeChange]) -> list[float]:
    """Seconds of the newest steps of the stage, since its last change, without warm-ups."""
    since = turns[-1].step if turns else 0
    found: list[float] = []
    for one in reversed(steps):
        if one.step < since or one.stage != steps[-1].stage or len(found) == RECENT:
            break
        if one.fresh >= WARM_UP:
            found.append(one.seconds)
    return found[::-1]


def _left(
    found: RunPlan, log: Log, tokens: int | None, recent: Sequence[float], pauses: float | None
) -> Remaining | None:
    """What is left, with what lies between steps."""
    left = found.left(log.last, tokens)
    if left is None:
        return None
    steps = remaining(recent, *left)
    if steps is None or not pauses:
        return steps
    longer = 1 + pauses
    interval = (steps.interval[0] * longer, steps.interval[1] * longer) if steps.interval else None
    return Remaining(steps.seconds * longer, interval, steps.steps)


def _state(follower: Follower, total: int | None, middle: StepTime | None, now: datetime) -> State:
    if not follower.log.steps:
        return "waiting"
    if total is not None and follower.log.last >= total:
        return "done"
    patience = max(_SILENT_SECONDS, _SILENT_STEPS * (middle.seconds if middle else 0.0))
    written = follower.log.written
    if written is None:
        return "silent"
    age = now.timestamp() - written
    return "silent" if age > patience else "running"


def _ends(left: Remaining | None, state: State, now: datetime) -> str | None:
    if left is None or state != "running" or left.seconds > timedelta(days=36500).total_seconds():
        return None
    return (now + timedelta(seconds=left.seconds)).isoformat(timespec="seconds")


def _beside(follower: Follower) -> SealComparison | None:
    seal, log = follower.seal, follower.log
    if seal is None:
        return None
    different = _different(follower, seal)
    own = [] if different else _like(log.steps, seal.prediction.tokens_per_step)
    low, high = seal.interval or (
        seal.seconds / (1 + _TOLERANCE),
        seal.seconds * (1 + _TOLERANCE),
    )
    left = leaves(blocks(own), low, high)
    start = began(follower.folder, log)
    return SealComparison(
        seal=seal.digest,
        name=seal.name,
        sealed=seal.sealed,
        predicted=seal.seconds,
        interval=seal.interval,
        measured=step_time([one.seconds for one in own if one.fresh >= WARM_UP]),
        different=different,
        late=start is not None and datetime.fromisoformat(seal.sealed) > start,
        left=None if left is None else left[0],
    )


def _different(follower: Follower, seal: Seal) -> str:
    """Why none of the run's steps is a predicted one."""
    steps, wanted = follower.log.steps, seal.prediction.tokens_per_step
    if not steps or tokens_per_step(steps) is None or _like(steps, wanted):
        return ""
    return f"its steps have {tokens_per_step(steps):,} tokens, and the predicted ones {wanted:,}"


def _like(steps: Sequence[LoggedStep], tokens: int) -> list[LoggedStep]:
    """The steps of so many tokens; all of a log that does not count them."""
    if not any(one.tokens for one in steps):
        return list(steps)
    before = [None, *steps[:-1]]
    return [
        one
        for one, last in zip(steps, before, strict=True)
        if one.tokens is not None and _own_tokens(one, last) == tokens
    ]


def _own_tokens(step: LoggedStep, before: LoggedStep | None) -> int | None:
    """Tokens of one step, of those since the line before it; None where they differ."""
    if step.tokens is None:
        return None
    if before is None:
        return step.tokens if step.step == 1 else None
    if before.tokens is None or before.step >= step.step:
        return None
    each, rest = divmod(step.tokens - before.tokens, step.step - before.step)
    return None if rest else each


def _cause(
    follower: Follower, turns: Sequence[StepTimeChange], beside: SealComparison | None
) -> Cause | None:
    """Why the newest steps are slow: against those before the last change where that made them
    slower, else against the prediction where they have left it."""
    last = follower.log.last
    turn = turns[-1] if turns and turns[-1].ratio > 1 else None
    ratio = beside.ratio if beside is not None else None
    slow = beside is not None and beside.left is not None and ratio is not None and ratio > 1
    if (turn is None and not slow) or not has_timeline(follower.folder):
        return None
    # Looked at again once as many steps have passed as are looked at.
    key = (turn.step if turn else 0, turn.called if turn else 0, last // _PROFILED)
    if key not in follower.causes:
        follower.causes.clear()
        follower.causes[key] = _found_cause(follower, turn, beside)
    return follower.causes[key]


def _found_cause(
    follower: Follower, turn: StepTimeChange | None, beside: SealComparison | None
) -> Cause | None:
    folder, last = follower.folder, follower.log.last
    first = max(last - _PROFILED + 1, turn.step if turn else 1)
    now = window(folder, first, last)
    if now is None:
        return None
    if turn is not None:
        before = window(folder, turn.step - _PROFILED, turn.step - 1)
        if before is None:
            return None
        excess = turn.after - turn.before
        return cause(measured(before), measured(now), excess, "before")
    if follower.seal is None or beside is None or beside.measured is None:
        return None
    said = follower.seal.prediction
    excess = beside.measured.seconds - follower.seal.seconds
    return cause(predicted(said.stages, said.actions), measured(now), excess, "prediction")


def _notes(follower: Follower, beside: SealComparison | None, pauses: float | None) -> list[str]:
    """What one should know beside the figures."""
    found: list[str] = []
    log = follower.log
    if log.lines.damaged:
        found.append(f"{log.lines.damaged} lines of the log are no JSON, and were left out.")
    if not log.steps:
        found.append(f"No step is in `{log.path}` yet.")
    if beside is not None and beside.different:
        found.append(f"The prediction is of other steps: {beside.different}.")
    if beside is not None and beside.late:
        found.append("The prediction was sealed after the run had begun: no hit rate counts it.")
    if beside is not None and beside.interval is None:
        found.append("The prediction was sealed without an interval, so nothing can be inside it.")
    if log.steps and not has_timeline(follower.folder):
        found.append(
            "The run writes no timeline: causes of drift cannot be told, and the remaining time "
            "leaves out evaluations and checkpoints."
        )
    elif log.steps and pauses is None:
        found.append("The remaining time leaves out evaluations and checkpoints.")
    return found
