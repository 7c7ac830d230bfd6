"""A folder of whatever somebody measured to one profile, one node and one fabric.

Three fits, each near what was known before: transfers tell the node and the fabric, kernels the
profile, and step times what neither of them says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, TypeVar

import numpy as np

from twin.errors import DEFAULT, Problem, UsageError
from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate.choice import ROWS_PER_NUMBER
from twin.evidence.calibrate.cluster_fit import (
    COUNTED,
    ClusterFit,
    cluster_factors,
    fit_cluster,
    why_not,
    with_counts,
)
from twin.evidence.calibrate.columns import StepRow, fabric_of, usual_node
from twin.evidence.calibrate.fits import from_kernels, from_steps, unseen
from twin.evidence.calibrate.folder_files import ReadFile, digest_of, read_files, step_rows
from twin.evidence.calibrate.request import (
    CalibrationRequest,
    Tell,
    base_of,
    gpu_of,
    known_gpu,
    name_of,
)
from twin.evidence.calibrate.result import Calibration, FittedNumber, Stamp, Trial
from twin.evidence.calibrate.sources import Measurement
from twin.evidence.calibrate.sources.training_log import LOGGED
from twin.evidence.calibrate.table import Cell
from twin.loading import load_any, load_part
from twin.loading.files import display
from twin.scenario import Scenario
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec, FabricSpec, NodeSpec

_TAKEN: Final[Mapping[str, str]] = {
    "products": "compute",
    "grouped products": "compute",
    "attention, forward": "attention",
    "memory": "memory",
}
"""Tasks of kernels, without `by shape`, and the factor of step times that each replaces."""
FAR: Final = 0.05
"""Bias of step times from which on it is said (OURS): what one source's runs scatter by."""
HOST_GPUS: Final = 16
"""The most GPUs that one host has; a node of the catalog with more is a rack of hosts."""
_LINKS: Final = ("nvlink.efficiency", "nic.efficiency", "fabric.efficiency")
S = TypeVar("S", bound=Spec)


@dataclass(frozen=True, slots=True)
class _Base:
    """What a calibration stays near."""

    node: NodeSpec
    fabric: FabricSpec
    profile: CalibrationSpec


def calibrate_folder(request: CalibrationRequest, tell: Tell | None = None) -> Calibration:
    """The calibration of a folder, or of one file. Raises `UsageError` where nothing in it is a
    measurement, or where the GPU is unknown."""
    files = read_files(request.source)
    if not any(file.findings for file in files):
        message = f"`{display(request.source)}` holds no measurement that is known"
        fix = "files are recognised by their content, not by their names: see how-to/calibrate"
        raise UsageError([Problem("TW350", "", message, fix)])
    named = _named_scenario(request)
    files, rows = step_rows(files, named)
    base = _base(request, files, named or (rows[0].scenario if rows else None))
    files, transfers = _transfers(_of_gpu(files, base), base.node)
    rows, strangers = _rows_of(base.node.gpu.name, rows)
    measured = [m for file in files for m in file.measured]
    node, counted, notes = with_counts(base.node, measured)
    what = (digest_of(files), node.gpu.name, base.profile)
    stamp = Stamp.now("measurements", display(request.source), *what)
    done = _of_kernels(files, base, stamp, name_of(request, stamp))
    if tell is not None:
        tell(f"fit: {len(transfers)} transfers, {len(rows)} step times")
    cluster = fit_cluster(transfers, node, base.fabric)
    moved = (*counted, *(cluster.found if cluster else ()))
    done = _with_steps(done, _placed(rows, moved), _silent(done, moved), request)
    done = _with_cluster(done, base, moved, cluster)
    reports = tuple(file.report for file in files)
    return replace(done, notes=(*notes, *strangers, *done.notes), files=reports)


def _named_scenario(request: CalibrationRequest) -> Scenario | None:
    if request.defaults is None:
        return None
    found = load_any(request.defaults, request.sets)
    if isinstance(found, Scenario):
        return found
    message = f"`{found.name}` is a weight update, and steps would be of a training run"
    raise UsageError([Problem("TW158", "--defaults", message, "name a training run")])


def _base(
    request: CalibrationRequest, files: Sequence[ReadFile], scenario: Scenario | None
) -> _Base:
    """Node, fabric and profile of a scenario, or those of the GPU that most files name."""
    if scenario is not None:
        profile = base_of(request, scenario.calibration)
        return _Base(scenario.cluster.node, scenario.cluster.fabric, profile)
    devices = Counter(file.device for file in files if file.device)
    gpu = gpu_of(request, devices.most_common(1)[0][0] if devices else "")
    name = usual_node(gpu.name)
    if name is None:
        message = f"the catalog has no usual node with the GPU `{gpu.name}`"
        fix = "name a scenario of your cluster with --defaults"
        raise UsageError([Problem("TW356", "", message, fix)])
    node = load_part("nodes", name).spec
    fabric = load_part("fabrics", fabric_of(node.nic.bandwidth, Cell(name, DEFAULT))).spec
    own = load_part("calibrations", gpu.calibration, (request.source,)).spec
    return _Base(node, fabric, base_of(request, own))


def _of_gpu(files: Sequence[ReadFile], base: _Base) -> tuple[ReadFile, ...]:
    """The files, without what was measured on another GPU."""
    return tuple(file if _is_of(file.device, base) else _unused(file, base) for file in files)


def _is_of(device: str, base: _Base) -> bool:
    """Whether a device may be the base's GPU: where the catalog knows it, it has to be."""
    known = known_gpu(device) if device else None
    return known is None or known.name == base.node.gpu.name


def _unused(file: ReadFile, base: _Base) -> ReadFile:
    told = replace(file.report, took=())
    why = f"of {file.device}, and the others are of {base.node.gpu.name}"
    return replace(file, report=told, findings=()).without((why,))


def _rows_of(gpu: str, rows: Sequence[StepRow]) -> tuple[list[StepRow], tuple[str, ...]]:
    """The step times of a GPU, and a note on those of others."""
    own = [row for row in rows if row.scenario.cluster.node.gpu.name == gpu]
    others = sorted({row.scenario.cluster.node.gpu.name for row in rows} - {gpu})
    left = len(rows) - len(own)
    return own, ((f"{left} step times are of {', '.join(others)}: left out",) if left else ())


def _transfers(
    files: Sequence[ReadFile], node: NodeSpec
) -> tuple[tuple[ReadFile, ...], list[Measurement]]:
    """What was timed between GPUs, cards and the host; and the files, which say what does not fit
    the node."""
    told: list[ReadFile] = []
    found: list[Measurement] = []
    for file in files:
        timed = [m for m in file.measured if m.unit != "count" and m.what != LOGGED]
        timed = [_in_domains(m, node) for m in timed]
        wrong = {m: why for m in timed if (why := why_not(m, node))}
        told.append(file.without(tuple(dict.fromkeys(wrong.values()))))
        found += (m for m in timed if m not in wrong)
    return tuple(told), found


def _in_domains(measured: Measurement, node: NodeSpec) -> Measurement:
    """A collective on the twin's nodes: hosts that share an NVLink domain are one (GB200 NVL72)."""
    hosts = measured.nodes
    if node.gpus <= HOST_GPUS or measured.what in ("card", "hop") or hosts < 2:
        return measured
    return replace(measured, nodes=ceil(measured.ranks / node.gpus))


def _of_kernels(files: Sequence[ReadFile], base: _Base, stamp: Stamp, name: str) -> Calibration:
    """The profile that kernels tell; the base where there are too few of them."""
    kernels = [kernel for file in files for kernel in file.kernels]
    software = f"calibrated on {stamp.kind} from {stamp.base}"
    changes = {"name": name, "gpu": stamp.device, "date": stamp.date, "software": software}
    profile = base.profile.model_copy(update=changes)
    if not kernels:
        return Calibration(name, stamp, profile, {}, (), (), (), None)
    try:
        return from_kernels(kernels, base.node.gpu, base.profile, stamp, name)
    except UsageError as error:
        notes = tuple(problem.message for problem in error.problems)
        return Calibration(name, stamp, profile, {}, (), (), (), None, notes)


def _placed(rows: Sequence[StepRow], moved: Iterable[FittedNumber]) -> list[StepRow]:
    """The rows on the node and the fabric as transfers told them."""
    found = list(moved)
    return [
        replace(row, scenario=row.scenario.model_copy(update={"cluster": _cluster(row, found)}))
        for row in rows
    ]


def _cluster(row: StepRow, moved: Sequence[FittedNumber]) -> ClusterSpec:
    cluster = row.scenario.cluster
    timed = [one for one in moved if one.factor != COUNTED]
    changes = {"node": _moved(cluster.node, timed), "fabric": _moved(cluster.fabric, timed)}
    return cluster.model_copy(update=changes)


def _moved(part: S, moved: Iterable[FittedNumber]) -> S:
    """A part of the catalog with the numbers that were found of it."""
    own = f"{getattr(part, 'name', '')}."
    for one in moved:
        if one.path.startswith(own):
            number = round(one.after) if one.factor == COUNTED else one.after
            part = numbers.replaced(part, one.path.removeprefix(own), number)
    return part


def _silent(done: Calibration, moved: Iterable[FittedNumber]) -> set[str]:
    """Factors of step times that transfers or kernels have told already."""
    tasks = {trial.task.replace(" by shape", "") for trial in done.tried if trial.taken}
    found = {factor for task, factor in _TAKEN.items() if task in tasks}
    links = any(one.path.endswith(_LINKS) for one in moved)
    return found | ({"links"} if links else set())


def _with_steps(
    done: Calibration,
    rows: Sequence[StepRow],
    measured: set[str],
    request: CalibrationRequest,
) -> Calibration:
    """The calibration with what step times say beside; too few of them are predicted only."""
    if not rows:
        return done
    fitted = sum(row.use == "fit" for row in rows)
    few = fitted < ROWS_PER_NUMBER
    if few:
        rows = [replace(row, use="check") for row in rows]
        checks = unseen(rows, (done.profile, {}), (done.profile, {}))
        note = f"{fitted} step times are predicted only: a number needs {ROWS_PER_NUMBER}"
        return replace(done, rows=(*done.rows, *checks), notes=(*done.notes, note))
    # Who asks for a factor wants it whatever else was measured.
    told = set[str]() if request.factors else measured
    own = from_steps(rows, done.profile, done.stamp, done.name, request.factors, told)
    return replace(
        own,
        found=(*done.found, *own.found),
        tried=(*done.tried, *own.tried),
        rows=(*done.rows, *own.rows),
        notes=tuple(dict.fromkeys((*done.notes, *own.notes, *_missed(own, told)))),
        spans=done.spans,
    )


def _missed(own: Calibration, told: set[str]) -> tuple[str, ...]:
    """A note where step times are missed although kernels or transfers were measured."""
    errors = own.errors("after", "fit")
    if errors is None or not told or abs(errors.bias) < FAR:
        return ()
    which = "shorter" if errors.bias < 0 else "longer"
    missed = f"steps are predicted {abs(errors.bias):.0%} {which} than measured"
    why = "with kernels and transfers as measured"
    return (f"{missed}, {why}: `--factors {min(told)}` moves these for the steps' sake",)


def _with_cluster(
    done: Calibration, base: _Base, moved: Sequence[FittedNumber], cluster: ClusterFit | None
) -> Calibration:
    """The calibration with the node and the fabric, fitted or as they are."""
    # A number that step times moved once more is what they made of it.
    found = tuple({one.path: one for one in (*moved, *done.found)}.values())
    parts: dict[str, Mapping[str, Spec]] = {
        **done.parts,
        "node": {base.node.name: _moved(base.node, found)},
        "fabric": {base.fabric.name: _moved(base.fabric, found)},
    }
    done = replace(done, found=found, parts=parts)
    names = ", ".join(
        f"`{part}-{done.name}`" for root in ("node", "fabric") for part in done.parts[root]
    )
    stays = _assumed(base, found)
    notes = (*done.notes, f"node and fabric are called {names}", *stays)
    if cluster is None:
        return replace(done, notes=("no transfer was timed: node and fabric stay", *notes))
    trial = Trial(
        "transfers",
        {one.path.partition(".")[2]: one.after / one.before for one in cluster.found},
        float(np.mean([abs(row.left_out or 0.0) for row in cluster.rows])),
        float(len(cluster.found)),
        taken=True,
    )
    return replace(
        done,
        tried=(trial, *done.tried),
        rows=(*cluster.rows, *done.rows),
        notes=(*cluster.notes, *notes),
    )


def _assumed(base: _Base, found: Iterable[FittedNumber]) -> tuple[str, ...]:
    """A note on what of node and fabric stays as it was."""
    told = {one.path for one in found}
    names = {"node": base.node.name, "fabric": base.fabric.name}
    left = [
        factor.name
        for factor in cluster_factors()
        if f"{names[factor.name.partition('.')[0]]}.{factor.name.partition('.')[2]}" not in told
    ]
    return (f"as in the base: {', '.join(left)}",) if left else ()
