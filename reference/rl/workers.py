"""Environments in processes of their own, beside the engine and the trainer.

    with open_environments(spec, tasks) as environments:
        ticket = environments.submit(job, seconds)
        done = environments.take(ticket)

A worker that dies takes the answers under way with it; they are asked for again, since a job is a
function of its values. One that keeps dying is a mistake of the task, and is told.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from reference.rl.jobs import Done, Job, do
from reference.rl.latency import EnvironmentsSpec
from reference.rl.tasks import Task, TasksSpec, tasks_of
from twin.errors import Problem, UsageError

_ATTEMPTS: Final = 4
"""Times that the workers are started before a job is given up."""


class FailedError(RuntimeError):
    """An environment raised; what it said of it."""


class Environments(Protocol):
    """Whoever answers jobs. A ticket is taken once."""

    def submit(self, job: Job, seconds: float) -> int:
        """Begin a job whose answer is to take so much longer; its ticket."""
        ...

    def take(self, ticket: int) -> Done:
        """The answer, when it is there. Raises FailedError where the environment raised."""
        ...

    def drop(self, ticket: int) -> None:
        """Nobody wants the answer."""
        ...


class Here:
    """Jobs done by whoever takes their answers; nobody waits for injected latency."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._jobs: dict[int, Job] = {}
        self._tickets = count()

    def submit(self, job: Job, seconds: float) -> int:
        """Remember it."""
        del seconds
        ticket = next(self._tickets)
        self._jobs[ticket] = job
        return ticket

    def take(self, ticket: int) -> Done:
        """Do it."""
        job = self._jobs.pop(ticket)
        try:
            return do(self._tasks[job.task], job)
        except Exception as error:
            raise FailedError(f"{type(error).__name__}: {error}") from error

    def drop(self, ticket: int) -> None:
        """Forget it."""
        self._jobs.pop(ticket, None)


@dataclass(slots=True)
class _Under:
    """A job under way."""

    job: Job
    future: Future[Done]
    attempts: int = field(default=1)


class Workers:
    """Jobs done by other processes."""

    def __init__(self, specs: Sequence[TasksSpec], processes: int) -> None:
        self._specs, self._processes = tuple(specs), processes
        self._tickets = count()
        self._under: dict[int, _Under] = {}
        self._pool = self._started()

    def submit(self, job: Job, seconds: float) -> int:
        """Begin it."""
        ticket = next(self._tickets)
        self._under[ticket] = _Under(job, self._begun(job, seconds))
        return ticket

    def take(self, ticket: int) -> Done:
        """Wait for it."""
        while True:
            under = self._under[ticket]
            try:
                done = under.future.result()
            except BrokenProcessPool:
                self._start_again(ticket)
                continue
            except Exception as error:
                del self._under[ticket]
                raise FailedError(f"{type(error).__name__}: {error}") from error
            del self._under[ticket]
            return done

    def drop(self, ticket: int) -> None:
        """Forget it; a worker that has begun goes on to its end."""
        under = self._under.pop(ticket, None)
        if under is not None:
            under.future.cancel()

    def close(self) -> None:
        """End the processes, whatever they do."""
        pool, self._under = self._pool, {}
        processes = list((pool._processes or {}).values())  # noqa: SLF001  no public way to end a sleeping one
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()

    def _started(self) -> ProcessPoolExecutor:
        # Not forked: a process with torch's threads may hang after a fork.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._processes, context, _set_up, (self._specs,))

    def _begun(self, job: Job, seconds: float) -> Future[Done]:
        try:
            return self._pool.submit(_work, job, seconds)
        except BrokenProcessPool:
            self._pool = self._started()
            return self._pool.submit(_work, job, seconds)

    def _start_again(self, ticket: int) -> None:
        """New processes, and every job that was lost."""
        if self._under[ticket].attempts == _ATTEMPTS:
            task = self._under[ticket].job.task
            message = f"the workers died {_ATTEMPTS} times, last with task `{task}`"
            fix = "`environments.workers: 0` shows what the task does"
            raise UsageError([Problem("TW642", "environments.workers", message, fix)])
        self._pool.shutdown(wait=False)
        self._pool = self._started()
        for under in self._under.values():
            done = under.future.done() and not under.future.cancelled()
            if not done or isinstance(under.future.exception(), BrokenProcessPool):
                under.future = self._begun(under.job, 0.0)
                under.attempts += 1


@contextmanager
def open_environments(
    spec: EnvironmentsSpec, specs: Sequence[TasksSpec], tasks: Mapping[str, Task]
) -> Iterator[Environments]:
    """Whoever answers, as the section says; `tasks` are those that `specs` make."""
    if not spec.workers:
        yield Here(tasks)
        return
    workers = Workers(specs, spec.workers)
    try:
        yield workers
    finally:
        workers.close()


_tasks: dict[str, Task] = {}
"""Of this worker."""


def _set_up(specs: tuple[TasksSpec, ...]) -> None:
    import signal  # noqa: PLC0415  the parent decides when a worker ends

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tasks.update(tasks_of(specs))


def _work(job: Job, seconds: float) -> Done:
    done = do(_tasks[job.task], job)
    time.sleep(seconds)
    return done
