"""Runs of a study, several at once, each kept as soon as it ends.

Every process has one thread: two busy OpenMP teams on the same cores wait for each other.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from reference.config import RunSpec
from reference.studies.outcome import Outcome, key_of, outcome_of, read, write
from reference.text.prepare import prepare
from reference.train import train
from twin.errors import Problem, UsageError

NameT = TypeVar("NameT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where outcomes are kept, how many runs go on at once, and who is told."""

    cache: Path
    jobs: int
    tell: Callable[[str], None]


def conduct(runs: Mapping[NameT, RunSpec], place: Workplace) -> dict[NameT, Outcome]:
    """The outcome of each run, by its name; what is kept already, or stands twice, runs no more.

    Raises UsageError where outcomes cannot be kept, and what `train` raises.
    """
    named = {key_of(run): (name, run) for name, run in runs.items()}
    found = {key: read(_file(place, key)) for key in named}
    missing = {key: named[key] for key, outcome in found.items() if outcome is None}
    if missing:
        kept = len(named) - len(missing)
        place.tell(f"{len(missing)} runs, {place.jobs} at once; {kept} were kept")
        _make(place.cache)
        for _, run in missing.values():  # else every process would make the tokens at once
            prepare(run.data, run.model.vocab)
    for done, (key, outcome) in enumerate(_conducted(missing, place), start=1):
        found[key] = outcome
        name, loss, seconds = named[key][0], outcome.final, outcome.seconds
        words = " ".join(map(str, name)) if isinstance(name, tuple) else name
        place.tell(f"{done}/{len(missing)}: {words}: held-out loss {loss:.4f}, {seconds:.0f} s")
    outcomes = {name: found[key_of(run)] for name, run in runs.items()}
    return {name: outcome for name, outcome in outcomes.items() if outcome is not None}


def _conducted(
    missing: Mapping[str, tuple[NameT, RunSpec]], place: Workplace
) -> Iterator[tuple[str, Outcome]]:
    """Key and outcome of each run, as they end."""
    if place.jobs == 1 or len(missing) < 2:
        for key, (_, run) in missing.items():
            yield key, _run(run, _file(place, key))
        return
    # Spawned, since a forked child of a process that used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(place.jobs, mp_context=context) as pool:
        futures = {
            pool.submit(_run, run, _file(place, key)): key for key, (_, run) in missing.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(run: RunSpec, path: Path) -> Outcome:
    torch.set_num_threads(1)  # of what comes after the run, too
    outcome = outcome_of(run, train(run))
    write(outcome, run, path)
    return outcome


def _file(place: Workplace, key: str) -> Path:
    return place.cache / f"{key}.json"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write to `{folder}`: {(error.strerror or str(error)).lower()}"
        raise UsageError([Problem("TW280", "--cache", message, "name another folder")]) from None
