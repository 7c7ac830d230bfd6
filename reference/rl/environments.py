"""Environments as a service: their work after a message of the assistant, how long it takes, and
the processes that do it.

    with open_environments(spec, specs, tasks) as environments:
        ticket = environments.submit(job, seconds)
        answer = environments.take(ticket)

A job is a function of values (task, state, dialogue), so that it may run in any process, twice, or
again after a crash, with one outcome. This file needs no torch: workers load it alone. A worker
that dies loses its jobs; they are started again. A worker that keeps dying is an error of the task.

Latency is log-normal: most answers take short, a few very long. The time of an answer follows from
the response and its turn alone. Answers come at a step of the engine, not at a time: a run with
slow environments is repeated bit for bit, and the engine's batches do not depend on the machine's
load. The controller waits for an answer that is late for its step.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from math import exp
from statistics import NormalDist
from typing import Annotated, Any, Final, Literal

from pydantic import Field, Strict

from reference.agentic.environment import Course, Verdict
from reference.dialog import Dialog, Message
from reference.rl.tasks import RlTask, TasksSpec, tasks_of
from twin.errors import Problem, UsageError
from twin.spec.base import Count, Duration, Spec, Whole

Mode = Literal["go_on", "last", "judge"]
"""Answer, and go on unless the user ends it; answer for the last time and judge; judge alone, since
the message was cut."""


@dataclass(frozen=True, slots=True)
class EnvironmentJob:
    """A dialogue that ends with a message of the assistant, and what to do."""

    task: str
    state: Any
    dialog: Dialog
    mode: Mode


@dataclass(frozen=True, slots=True)
class EnvironmentAnswer:
    """The outcome of a job."""

    state: Any
    messages: tuple[Message, ...] = ()
    """Of tools or the user."""
    verdict: Verdict | None = None
    """None where the dialogue goes on."""
    over: bool = False
    """Whether the user ended it."""


def do(task: RlTask, job: EnvironmentJob) -> EnvironmentAnswer:
    """Do a job. Raises the errors of the environment."""
    course = Course(task.environment, job.state, job.dialog)
    over = job.mode != "judge" and course.hear()
    said = course.dialog.messages[len(job.dialog.messages) :]
    if not over and job.mode == "go_on":
        return EnvironmentAnswer(course.state, said)
    return EnvironmentAnswer(
        course.state, said, task.environment.judge(course.state, course.dialog), over
    )


Spread = Annotated[float, Strict(), Field(ge=0, le=5)]
"""Standard deviation of a logarithm."""


class EnvironmentsSpec(Spec):
    """Where environments run, and the latency that is injected."""

    workers: Whole = 0
    """Processes, each with one environment at a time; 0: in this process, one after the other, and
    injected latency passes in steps of the engine alone."""
    at_once: Count = 64
    """Most answers in progress at a time; with workers, as many as they are."""
    latency: Duration = 0.0
    """Median of the time that is added to an answer."""
    spread: Spread = 1.0
    """Standard deviation of its logarithm: the long tail."""
    longest: Duration = 60.0
    """Where the tail is cut."""
    step: Annotated[Duration, Field(gt=0)] = 0.01
    """Seconds for which a step of the engine counts in this."""

    @property
    def slots(self) -> int:
        """Most answers in progress at a time."""
        return self.workers or self.at_once


def latency(spec: EnvironmentsSpec, seed: int, turn: int) -> float:
    """Seconds that are added to an answer."""
    if not spec.latency:
        return 0.0
    digest = blake2b(f"latency/{seed}/{turn}".encode(), digest_size=8).digest()
    share = ((int.from_bytes(digest, "little") >> 11) + 0.5) * 2.0**-53
    return min(spec.longest, spec.latency * exp(spec.spread * NormalDist().inv_cdf(share)))


def due(spec: EnvironmentsSpec, seconds: float, now: int, under_way: Iterable[int]) -> int:
    """The step of the engine at which an answer comes that is asked for at step `now`, with others
    under way until their own steps: it waits for a free place first."""
    ends = sorted(under_way)
    begin = ends[len(ends) - spec.slots] if len(ends) >= spec.slots else now
    return max(begin, now) + 1 + int(seconds / spec.step)


_ATTEMPTS: Final = 4
"""Times that the workers are started before a job is given up."""


class FailedError(RuntimeError):
    """An environment raised an error; the text is its message."""


class InProcess:
    """Does a job when its answer is taken; injected latency takes no time."""

    def __init__(self, tasks: Mapping[str, RlTask]) -> None:
        self._tasks = tasks
        self._jobs: dict[int, EnvironmentJob] = {}
        self._tickets = count()

    def submit(self, job: EnvironmentJob, seconds: float) -> int:
        """Remember it."""
        del seconds
        ticket = next(self._tickets)
        self._jobs[ticket] = job
        return ticket

    def take(self, ticket: int) -> EnvironmentAnswer:
        """Do it."""
        job = self._jobs.pop(ticket)
        try:
            return do(self._tasks[job.task], job)
        except Exception as error:
            raise FailedError(f"{type(error).__name__}: {error}") from error


@dataclass(slots=True)
class _Pending:
    """A job in progress."""

    job: EnvironmentJob
    future: Future[EnvironmentAnswer]
    attempts: int = field(default=1)


class Workers:
    """Jobs done by other processes."""

    def __init__(self, specs: Sequence[TasksSpec], processes: int) -> None:
        self._specs, self._processes = tuple(specs), processes
        self._tickets = count()
        self._pending: dict[int, _Pending] = {}
        self._pool = self._started()

    def submit(self, job: EnvironmentJob, seconds: float) -> int:
        """Begin it."""
        ticket = next(self._tickets)
        self._pending[ticket] = _Pending(job, self._begun(job, seconds))
        return ticket

    def take(self, ticket: int) -> EnvironmentAnswer:
        """Wait for it."""
        while True:
            try:
                answer = self._pending[ticket].future.result()
            except BrokenProcessPool:
                self._start_again(ticket)
                continue
            except Exception as error:
                del self._pending[ticket]
                raise FailedError(f"{type(error).__name__}: {error}") from error
            del self._pending[ticket]
            return answer

    def close(self) -> None:
        """End the processes, whatever they do."""
        pool, self._pending = self._pool, {}
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

    def _begun(self, job: EnvironmentJob, seconds: float) -> Future[EnvironmentAnswer]:
        try:
            return self._pool.submit(_work, job, seconds)
        except BrokenProcessPool:
            self._pool = self._started()
            return self._pool.submit(_work, job, seconds)

    def _start_again(self, ticket: int) -> None:
        """New processes, and every job that was lost."""
        if self._pending[ticket].attempts == _ATTEMPTS:
            task = self._pending[ticket].job.task
            message = f"the workers died {_ATTEMPTS} times, last with task `{task}`"
            fix = "`environments.workers: 0` shows what the task does"
            raise UsageError([Problem("TW642", "environments.workers", message, fix)])
        self._pool.shutdown(wait=False)
        self._pool = self._started()
        for pending in self._pending.values():
            done = pending.future.done() and not pending.future.cancelled()
            if not done or isinstance(pending.future.exception(), BrokenProcessPool):
                pending.future = self._begun(pending.job, 0.0)
                pending.attempts += 1


Environments = InProcess | Workers
"""Answers jobs. A ticket is taken once; FailedError where the environment raised."""


@contextmanager
def open_environments(
    spec: EnvironmentsSpec, specs: Sequence[TasksSpec], tasks: Mapping[str, RlTask]
) -> Iterator[Environments]:
    """The environments of the section; `tasks` are those that `specs` make."""
    if not spec.workers:
        yield InProcess(tasks)
        return
    workers = Workers(specs, spec.workers)
    try:
        yield workers
    finally:
        workers.close()


_tasks: dict[str, RlTask] = {}
"""Of this worker."""


def _set_up(specs: tuple[TasksSpec, ...]) -> None:
    import signal  # noqa: PLC0415  the parent decides when a worker ends

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tasks.update(tasks_of(specs))


def _work(job: EnvironmentJob, seconds: float) -> EnvironmentAnswer:
    done = do(_tasks[job.task], job)
    time.sleep(seconds)
    return done
