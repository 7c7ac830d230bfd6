"""Rows that a fit has seen, predicted by a fit that has not: each row of kernels and of collectives
is left out in turn, with all its points, and what it was fitted with is fitted again on the others.

Kernels: the task of `twin.evidence.calibrate.hopper` that the row is in, with all other numbers of
the profile as shipped. Where a profile takes only a part of a fit (its notes say so), the fit
counts here. Collectives: the numbers of the GPU's NVLink (`nvlink_of`); what starting a collective
costs is held, and so is what small payloads cost beside large ones. A row that no fit has seen is
predicted as ever. Rows of traces are not here: each of their numbers is one row's own, and leaves
nothing to fit it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from twin.collectives.traffic import traffic
from twin.evidence.calibrate import require_scipy
from twin.evidence.calibrate.kernels import FILES, Kernel
from twin.evidence.validate import collectives, kernels
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.exchanges import Nvlink, cluster_for, placed
from twin.evidence.validate.suite import SHIPPED, PublishedRow, Unreadable, read_suite
from twin.loading.files import shipped_folder
from twin.spec.calibration import CalibrationSpec

ALONE: Final = "no other row tells the numbers that this one was fitted to"


def leave_one_out(rows: Iterable[PublishedRow]) -> tuple[RowResult, ...]:
    """The answers to rows of kernels and collectives, each with `left_out`: what is predicted where
    its row is left out of the fit; None, and the reason, where nothing else is left. Raises
    `UsageError` where scipy is not installed."""
    require_scipy()
    found: list[RowResult] = []
    for row in rows:
        if row.category == "kernel":
            found += _kernels(row)
        if row.category == "collective":
            found += _collectives(row)
    return tuple(found)


def _kernels(row: PublishedRow) -> Iterator[RowResult]:
    """Answers to a row of kernels, in the order of its kernels."""
    usual = kernels.answers(row)
    try:
        own, (gpu, profile) = kernels.kernels_of(row), kernels.profile_of(row)
    except Unreadable:
        yield from usual
        return
    refit = _refit(profile.name, own)
    for kernel, one in zip(own, usual, strict=True):
        if refit is None:
            yield replace(one, reason=ALONE)
        else:
            yield replace(one, left_out=kernel.predicted(gpu, refit))


def _refit(name: str, own: Sequence[Kernel]) -> CalibrationSpec | None:
    """A profile whose numbers are fitted without some kernels, nor others that say the same of the
    same shape; as shipped where it has not seen them; None where no others are left."""
    from twin.evidence.calibrate import hopper  # noqa: PLC0415 - scipy is an extra

    gpu, profile = hopper.committed(name)
    out = {(kernel.shape, kernel.measured) for kernel in own}
    rows = {kernel.row for kernel in own}
    for task in hopper.tasks(name) if name in FILES else ():
        rest = tuple(
            kernel
            for kernel in task.kernels
            if kernel.row not in rows and (kernel.shape, kernel.measured) not in out
        )
        if len(rest) == len(task.kernels):
            continue
        if not rest:
            return None
        found = hopper.fitted(replace(task, kernels=rest), gpu, profile)
        profile = hopper.with_numbers(profile, task.numbers, found.values)
    return profile


def _collectives(row: PublishedRow) -> Iterator[RowResult]:
    """Answers to a row of collectives, in their order."""
    usual = collectives.answers(row)
    seen = row.id in {one.id for one in _fitted(row.gpu)}
    points = collectives.points(row, nvlink_of(row.gpu, row.id)) if seen else ()
    other = {one.id: one.predicted for one in (collectives.answer(row, point) for point in points)}
    yield from (replace(one, left_out=other.get(one.id, one.predicted)) for one in usual)


@cache
def nvlink_of(gpu: str, without: str = "") -> Nvlink:
    """A GPU's NVLink by the shipped rows, but for one.

    seconds = (bytes + own share x own bytes) / (line rate x efficiency) + hops x latency is linear
    in 1 / efficiency, own share / efficiency and latency, so that the relative errors of all points
    have one least-squares solution.
    """
    terms: list[tuple[float, float, float]] = []
    for row in _fitted(gpu):
        rate = cluster_for(row).node.nvlink.bandwidth
        for run, seconds in collectives.runs(row) if row.id != without else ():
            if run.payload < collectives.SMALL:
                continue
            flow = traffic(run.kind, run.payload, placed(run.ranks))
            sent, own = flow.nvlink_bytes / rate, flow.own_bytes / rate
            terms.append((sent / seconds, own / seconds, flow.nvlink_hops / seconds))
    (inverse, own, latency), *_ = np.linalg.lstsq(np.array(terms), np.ones(len(terms)), rcond=None)
    return Nvlink(1.0 / float(inverse), float(latency), float(own / inverse))


def _fitted(gpu: str) -> tuple[PublishedRow, ...]:
    """The shipped rows that the NVLink of a GPU was fitted on: series of NCCL inside a node, but
    for all-reduces that a switch helps with."""
    return tuple(
        row
        for row in _series()
        if row.gpu == gpu
        and not (row.metrics["op"] == "all_reduce" and cluster_for(row).node.nvlink_sharp)
    )


@cache
def _series() -> tuple[PublishedRow, ...]:
    files = sorted((shipped_folder() / SHIPPED).glob("nccl-*.yaml"))
    return tuple(
        row
        for file in files
        for row in read_suite(file)
        if row.use == "fit" and "op" in row.metrics and "ms" in row.metrics.get("columns", ())
    )
