"""The folder of seals: one file per prediction, written once, and `checks.jsonl`, to which each
check appends a line. `TWIN_SEALS` names another folder than `seals`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from twin.answers.run_store import unwritable, write_file
from twin.errors import Problem, UsageError
from twin.evidence.live.seal import Checked, Seal, checked, digest_of, read, same
from twin.evidence.live.step_time_estimate import StepTime
from twin.loading.files import opened, read_bytes
from twin.loading.tree import hint

VERSION: Final = 1
"""Version of a check's line."""
_CONFIDENCE: Final = 0.95
"""Of the interval of the hit rate."""


@dataclass(frozen=True, slots=True)
class Check:
    """One sealed prediction against one measured step time. Seconds throughout."""

    version: Literal[1]
    seal: str
    """Its digest."""
    checked: str
    """When; ISO 8601, UTC."""
    run: str
    """The run's folder, or what was said of a number."""
    steps: int
    """Measured ones that the median was taken over; 0 of a single number."""
    measured: float
    measured_interval: tuple[float, float] | None
    """Of the median; None where nothing is known of it."""
    predicted: float
    interval: tuple[float, float] | None
    began: str | None
    """When the run began; None where nobody knows."""
    blind: bool | None
    """Whether the prediction was sealed before the run began; None where that is not known."""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted

    @property
    def hit(self) -> bool | None:
        """Whether the measured median lies in the sealed interval; None where there is none."""
        if self.interval is None:
            return None
        return self.interval[0] <= self.measured <= self.interval[1]


@dataclass(frozen=True, slots=True)
class HitRate:
    """How often sealed intervals held what was measured, each prediction counted once. `interval`
    is where the long-run share lies with 95 % confidence (None: nothing counted)."""

    hits: int
    counted: int
    interval: tuple[float, float] | None
    sealed: int
    """Predictions that were sealed."""
    unchecked: int
    """Of them: that no run has been held against."""
    without_interval: int
    """Of them: checked, but sealed without an interval, so that there is nothing to hit."""
    late: int
    """Of them: checked only against runs that had begun before, or nobody knows when."""

    @property
    def share(self) -> float | None:
        """Hits among those counted; None of none."""
        return self.hits / self.counted if self.counted else None


def check(seal: Seal, measured: StepTime, run: str, began: datetime | None, now: datetime) -> Check:
    """Hold a seal against a measured step."""
    sealed = datetime.fromisoformat(seal.sealed)
    return Check(
        version=VERSION,
        seal=seal.digest,
        checked=now.isoformat(timespec="seconds"),
        run=run,
        steps=measured.steps,
        measured=measured.seconds,
        measured_interval=measured.interval,
        predicted=seal.seconds,
        interval=seal.interval,
        began=None if began is None else began.isoformat(timespec="seconds"),
        blind=None if began is None else sealed <= began,
    )


def counting(checks: Iterable[Check]) -> Check | None:
    """The one check of a prediction that counts: of the first run that is known to have begun after
    it was sealed, the latest, which knows most of that run. So no prediction counts twice, and
    checking again, or on another run, cannot turn a miss into a hit. None where there is none."""
    fair = [one for one in checks if one.blind]
    return next((one for one in reversed(fair) if one.run == fair[0].run), None)


def hit_rate(seals: Sequence[Seal], checks: Sequence[Check]) -> HitRate:
    """The share of sealed and checked predictions whose interval held. Predictions without an
    interval, and those not known to be sealed before the run began, are counted apart."""
    by_seal = {one.digest: [row for row in checks if row.seal == one.digest] for one in seals}
    chosen = {digest: counting(rows) for digest, rows in by_seal.items()}
    judged = [one.hit for one in chosen.values() if one is not None]
    counted = [hit for hit in judged if hit is not None]
    return HitRate(
        hits=sum(counted),
        counted=len(counted),
        interval=wilson(sum(counted), len(counted)),
        sealed=len(seals),
        unchecked=sum(not rows for rows in by_seal.values()),
        without_interval=len(judged) - len(counted),
        late=sum(bool(rows) and chosen[digest] is None for digest, rows in by_seal.items()),
    )


def residuals(seals: Sequence[Seal], checks: Sequence[Check]) -> dict[str, float]:
    """ln(measured / predicted) of every prediction that was checked, by the digest of its seal."""
    found: dict[str, float] = {}
    for one in seals:
        chosen = counting(row for row in checks if row.seal == one.digest)
        if chosen is not None:
            found[one.digest] = log(chosen.ratio)
    return found


def wilson(hits: int, counted: int) -> tuple[float, float] | None:
    """Where the share behind `hits` of `counted` lies, with 95 % confidence (Wilson, JASA 22, 1927,
    209-212; close to its confidence for few, too: Brown, Cai and DasGupta, Statistical Science 16,
    2001, section 4). None of none.

    >>> [round(one, 3) for one in wilson(8, 10)]
    [0.49, 0.943]
    """
    if not counted:
        return None
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    share, weight = hits / counted, z * z / counted
    middle = (share + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * sqrt(share * (1 - share) / counted + weight / (4 * counted))
    # At the ends the bound is exactly 0 or 1, and rounding must not move it.
    low = 0.0 if hits == 0 else middle - reach
    return low, 1.0 if hits == counted else middle + reach


CHECKS: Final = "checks.jsonl"
BESIDE: Final = "prediction.json"
"""The name of a seal beside a run's log."""
_CHECK = TypeAdapter(Check)
_LARGEST: Final = 1 << 24
"""Bytes beyond which a file is no seal."""


@dataclass(frozen=True, slots=True)
class SealFolder:
    """What a folder of seals holds: sound seals, the oldest first, every check, and what was
    refused with the reason."""

    folder: Path
    seals: tuple[Seal, ...]
    checks: tuple[Check, ...]
    refused: tuple[Problem, ...]

    @property
    def hit_rate(self) -> HitRate:
        """Over all its sealed and checked predictions."""
        return hit_rate(self.seals, self.checks)

    def of(self, seal: Seal) -> list[Check]:
        """The checks of one seal, the oldest first."""
        return [one for one in self.checks if one.seal == seal.digest]


def seals_folder() -> Path:
    """Where seals are kept: `TWIN_SEALS`, or `seals` where the command runs."""
    return Path(os.environ.get("TWIN_SEALS") or "seals")


def read_seals(folder: Path | None = None) -> SealFolder:
    """Everything in a folder of seals; empty where there is none."""
    place = folder or seals_folder()
    found: dict[str, Seal] = {}
    refused: list[Problem] = []
    for path in sorted(place.glob("*.json")) if place.is_dir() else ():
        try:
            one = load(path)
        except UsageError as error:
            refused += error.problems
        else:
            found.setdefault(one.digest, one)
    checks, torn = _checks(place / CHECKS)
    ordered = sorted(found.values(), key=lambda one: (one.sealed, one.digest))
    return SealFolder(place, tuple(ordered), checks, (*refused, *torn))


def load(path: Path) -> Seal:
    """The seal in a file. Raises `UsageError` where it cannot be read (TW341), or was changed
    (TW342)."""
    try:
        with opened(path) as file:
            data = file.read(_LARGEST)
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror}"
        raise UsageError([Problem("TW341", "", message, "name a seal's file")]) from None
    return read(data, str(path))


def find(name: str, folder: Path | None = None) -> Seal:
    """The seal that is this file, or whose digest or file name alone begins with this.

    Raises `UsageError` where there is none, or more than one (TW343), or it was changed (TW342).
    """
    path = Path(name)
    if path.is_file():
        return load(path)
    known = read_seals(folder)
    matches = [
        one for one in known.seals if one.digest.startswith(name) or one.filename.startswith(name)
    ]
    if name and len(matches) == 1:
        return matches[0]
    if name and matches:
        message = f"`{name}` begins the names of {len(matches)} seals"
        fix = "write more of it: " + ", ".join(one.digest[:12] for one in matches)
        raise UsageError([Problem("TW343", "", message, fix)])
    message = f"there is no seal `{name}` in `{known.folder}`"
    near = hint(name, [one.filename for one in known.seals])
    fix = near or "`twin run SCENARIO --seal` makes one"
    raise UsageError([Problem("TW343", "", message, fix), *known.refused])


def keep(seal: Seal, folder: Path | None = None) -> tuple[Seal, Path, bool]:
    """Write a seal into the folder, unless one of the same prediction is there: the one that counts
    (the older), its file, and whether it is new.

    Raises `UsageError` where the folder cannot be written (TW063).
    """
    place = folder or seals_folder()
    for old in read_seals(place).seals:
        if old.digest == seal.digest or same(old, seal):
            return old, place / old.filename, False
    path = place / seal.filename
    text = json.dumps(seal.to_json(), indent=2, allow_nan=False) + "\n"
    assert digest_of(json.loads(text)) == seal.digest, "what is written is what was sealed"
    try:
        write_file(path, text.encode(), once=True)
    except FileExistsError:
        message = f"`{path}` has a seal's name and is no seal"
        fix = "move it; seals are not replaced"
        raise UsageError([Problem("TW344", "", message, fix)]) from None
    except OSError as error:
        raise unwritable(path, error) from None
    return seal, path, True


def add(check: Check, folder: Path | None = None) -> bool:
    """Add a check, unless the last one of that seal and run says the same; whether it was added.

    Raises `UsageError` where the folder cannot be written (TW063).
    """
    place = folder or seals_folder()
    same_run = (one for one in _checks(place / CHECKS)[0] if one.run == check.run)
    before = [one for one in same_run if one.seal == check.seal]
    if before and replace(before[-1], checked=check.checked, began=check.began) == check:
        return False
    line = json.dumps(_CHECK.dump_python(check, mode="json"), allow_nan=False) + "\n"
    try:
        place.mkdir(parents=True, exist_ok=True)
        # One unbuffered write at the end of the file: lines of two processes do not mix.
        with (place / CHECKS).open("ab", buffering=0) as file:
            file.write(line.encode())
    except OSError as error:
        raise unwritable(place / CHECKS, error) from None
    return True


def basis(calibration: str, fidelity: str, folder: Path | None = None) -> Checked | None:
    """The interval that checked predictions of the same calibration and fidelity give; None of too
    few."""
    known = read_seals(folder)
    like = [
        one
        for one in known.seals
        if (one.prediction.calibration, one.prediction.fidelity) == (calibration, fidelity)
    ]
    return checked(residuals(like, known.checks))


def _checks(path: Path) -> tuple[tuple[Check, ...], tuple[Problem, ...]]:
    """The checks of a file; one problem for all its lines that are none. An unfinished last line is
    no check yet."""
    try:
        lines = read_bytes(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return (), ()
    except OSError as error:
        return (), (Problem("TW345", "", f"`{path}` cannot be read: {error.strerror}"),)
    found: list[Check] = []
    for line in lines:
        try:
            found.append(_CHECK.validate_json(line))
        except ValidationError:
            continue
    lost = sum(bool(line.strip()) for line in lines) - len(found)
    if not lost:
        return tuple(found), ()
    message = f"{lost} of {len(lines)} lines of `{path}` are no check that this version knows"
    return tuple(found), (Problem("TW345", "", message, "restore the file; nothing edits it"),)
