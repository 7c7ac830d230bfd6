"""The folder that a run writes into, and whose it is.

    run.json          the resolved configuration; a run configuration itself
    metrics.jsonl     steps and events
    checkpoints/      the newest few

One process at a time: the lock is the system's, so that a killed process leaves none behind.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from reference import metrics
from reference.checkpoint.folder import MANIFEST, DamagedError, IntactCheckpoint, newest, read
from reference.disk import replace_synced
from twin.errors import Problem, UsageError

CONFIG: Final = "run.json"
CHECKPOINTS: Final = "checkpoints"
_LOCK: Final = ".lock"
_BOARD: Final = "tensorboard"

Existing = Literal["refuse", "resume", "fresh"]
"""What to do with a run that the folder holds already: refuse to touch it, go on with it (or begin,
where there is none), or delete it and begin."""


@contextmanager
def opened(folder: Path, existing: Existing) -> Iterator[None]:
    """The folder, made if need be, held against other processes.

    Raises UsageError where it holds a run and nobody said what to do with it, where it holds
    anything else, or where another process trains in it.
    """
    _refuse_foreign(folder)
    if existing == "refuse" and (folder / CONFIG).exists():
        message = f"`{folder}` holds a run already"
        fix = "`--resume` goes on with it, `--fresh` deletes it; `--set train.output=...` names "
        raise UsageError([Problem("TW231", "train.output", message, fix + "another folder")])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        message = f"`{folder}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW231", "train.output", message)]) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another process trains in `{folder}`"
            raise UsageError([Problem("TW232", "train.output", message, "wait for it")]) from None
        if existing == "fresh":
            _clear(folder)
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        yield


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration of the run in the folder."""
    replace_synced(folder / CONFIG, json.dumps(config, indent=2) + "\n")


def checkpoint_of(folder: Path, code: str, field: str = "", fix: str = "") -> IntactCheckpoint:
    """The checkpoint at `folder`, or the newest intact one of the run there. Raises UsageError
    `code` at `field` where there is none."""
    if (folder / MANIFEST).is_file():
        try:
            return read(folder)
        except DamagedError as damage:
            message = f"`{folder}` is refused: {damage}"
            raise UsageError([Problem(code, field, message)]) from None
    found, refused = newest(folder / CHECKPOINTS)
    if found is None:
        message = f"`{folder}` holds no intact checkpoint"
        raise UsageError([*refused, Problem(code, field, message, fix)])
    return found


def _refuse_foreign(folder: Path) -> None:
    """A folder that is not empty and no run's is somebody's; nothing there is ours to delete."""
    if not folder.exists():
        return
    ours = (folder / CONFIG).is_file() or (folder / _LOCK).is_file()
    if not folder.is_dir() or (not ours and any(folder.iterdir())):
        message = f"`{folder}` exists and holds no run"
        fix = "name an empty or a new folder with `--set train.output=...`"
        raise UsageError([Problem("TW231", "train.output", message, fix)])


def _clear(folder: Path) -> None:
    """Delete what a run has written, and nothing else."""
    # First what says that there is a run: a half-deleted one must not be resumed.
    for name in (CONFIG, metrics.NAME):
        (folder / name).unlink(missing_ok=True)
    for name in (CHECKPOINTS, _BOARD):
        shutil.rmtree(folder / name, ignore_errors=True)
