"""The folder of seals: a file per prediction, written once and never again, and beside them
`checks.jsonl`, to which each check adds a line.

`TWIN_SEALS` names another folder than `seals`.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from twin.errors import Problem, UsageError
from twin.evidence.live.check import Check, HitRate, hit_rate, residuals
from twin.evidence.live.interval import Checked, checked
from twin.evidence.live.seal import Seal, digest_of, read, same
from twin.loading.suggest import hint

CHECKS: Final = "checks.jsonl"
BESIDE: Final = "prediction.json"
"""The name of a seal beside a run's log."""
_CHECK = TypeAdapter(Check)
_LARGEST: Final = 1 << 24
"""Bytes beyond which a file is no seal."""


@dataclass(frozen=True, slots=True)
class Shelf:
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


def shelf(folder: Path | None = None) -> Shelf:
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
    return Shelf(place, tuple(ordered), checks, (*refused, *torn))


def load(path: Path) -> Seal:
    """The seal in a file. Raises `UsageError` where it cannot be read (TW341), or was changed
    (TW342)."""
    try:
        with path.open("rb") as file:
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
    known = shelf(folder)
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
    for old in shelf(place).seals:
        if old.digest == seal.digest or same(old, seal):
            return old, place / old.filename, False
    path = place / seal.filename
    text = json.dumps(seal.to_json(), indent=2, allow_nan=False) + "\n"
    assert digest_of(json.loads(text)) == seal.digest, "what is written is what was sealed"
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write_once(path, text.encode())
    except FileExistsError:
        message = f"`{path}` is in the way of a seal, and none itself"
        raise UsageError(
            [Problem("TW344", "", message, "move it; seals are not replaced")]
        ) from None
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW063", "", message)]) from None
    return seal, path, True


def add(check: Check, folder: Path | None = None) -> bool:
    """Add a check, unless the last one of that seal and run says the same; whether it was added.

    Raises `UsageError` where the folder cannot be written (TW063).
    """
    place = folder or seals_folder()
    before = [one for one in _checks(place / CHECKS)[0] if _pair(one) == _pair(check)]
    if before and _said(before[-1]) == _said(check):
        return False
    line = json.dumps(_CHECK.dump_python(check, mode="json"), allow_nan=False) + "\n"
    try:
        place.mkdir(parents=True, exist_ok=True)
        # One write at the end of the file: lines of two processes do not mix.
        descriptor = os.open(place / CHECKS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        message = f"`{place / CHECKS}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW063", "", message)]) from None
    return True


def basis(calibration: str, fidelity: str, folder: Path | None = None) -> Checked | None:
    """The interval that checked predictions of the same calibration and fidelity give; None of too
    few."""
    known = shelf(folder)
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
        lines = path.read_bytes().split(b"\n")[:-1]
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


def _write_once(path: Path, data: bytes) -> None:
    """The whole file, or none; never over another."""
    aside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        aside.write_bytes(data)
        aside.chmod(0o444)
        path.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)


def _pair(one: Check) -> tuple[str, str]:
    return one.seal, one.run


def _said(one: Check) -> Sequence[object]:
    """What a check says, without when."""
    return one.steps, one.measured, one.measured_interval, one.blind, one.interval
