"""The verb: a source of measurements and a base profile to a calibration.

Four kinds of sources: a table of step times, a profiler trace, a folder of `reference.measure`, and
a folder of whatever there is (`twin.evidence.calibrate.folder`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.errors import Problem, UsageError
from twin.evidence.calibrate.columns import steps
from twin.evidence.calibrate.fits import from_kernels, from_steps, unseen
from twin.evidence.calibrate.folder import calibrate_folder
from twin.evidence.calibrate.measure_folder import read_folder
from twin.evidence.calibrate.profiler import read_trace
from twin.evidence.calibrate.request import CalibrationRequest, Tell, base_of, gpu_of, name_of
from twin.evidence.calibrate.result import Calibration, Stamp
from twin.evidence.calibrate.table import read_table
from twin.interop.recognise import recognise
from twin.loading import load_part
from twin.loading.files import display

_UNMAPPED: Final = 12
"""Names of a trace that are said to be unmapped; the rest is one line."""


def calibrate(request: CalibrationRequest, tell: Tell | None = None) -> Calibration:
    """The calibration of a source. Raises `twin.errors.TwinError` for what is wrong with it."""
    path = request.source
    if not path.exists():
        fix = "name a table of step times, a profiler trace, or a folder of measurements"
        raise UsageError([Problem("TW350", "", f"there is no `{display(path)}`", fix)])
    formats = {one.name for one in recognise(path)}
    if "step-table" in formats:
        return _table(request, tell)
    of_kernels = any((path / "points").glob("*.jsonl")) or "pytorch-trace" in formats
    if not of_kernels:
        return calibrate_folder(request, tell)
    if request.factors:
        message = f"`{display(path)}` holds kernels, and factors are fitted on step times"
        fix = "leave --factors out: each class of kernels is fitted by itself"
        raise UsageError([Problem("TW359", "--factors", message, fix)])
    return _folder(request) if path.is_dir() else _trace(request)


def _table(request: CalibrationRequest, tell: Tell | None) -> Calibration:
    table = read_table(request.source)
    rows = steps(table, request.defaults, request.sets)
    base = base_of(request, rows[0].scenario.calibration)
    stamp = Stamp.now(
        "step times", table.file, table.digest, rows[0].scenario.cluster.node.gpu.name, base
    )
    if tell is not None:
        tell(f"fit: {len(rows)} rows")
    return from_steps(rows, base, stamp, name_of(request, stamp), request.factors)


def _folder(request: CalibrationRequest) -> Calibration:
    found = read_folder(request.source)
    near = (request.source,)
    machine = str(found.machine.get("name", request.source.name))
    gpu = load_part("gpus", request.gpu or machine, near).spec
    base = base_of(request, load_part("calibrations", gpu.calibration, near).spec)
    stamp = Stamp.now("measurement", display(request.source), found.digest, gpu.name, base)
    done = from_kernels(found.kernels, gpu, base, stamp, name_of(request, stamp))
    checks = unseen(found.steps, (base, {}), (done.profile, {}))
    left = ", ".join(f"{count} {what}" for what, count in found.left_out.items())
    notes = (*done.notes, f"points that a profile has no place for: {left}") if left else done.notes
    if base.name == machine:
        notes = (*notes, "the base was fitted on these very points: its errors flatter it")
    return replace(done, rows=(*done.rows, *checks), notes=notes)


def _trace(request: CalibrationRequest) -> Calibration:
    found = read_trace(request.source)
    gpu = gpu_of(request, found.device)
    near = (request.source.parent,)
    base = base_of(request, load_part("calibrations", gpu.calibration, near).spec)
    stamp = Stamp.now("profiler trace", display(request.source), found.digest, gpu.name, base)
    done = from_kernels(found.kernels, gpu, base, stamp, name_of(request, stamp))
    others = [(o.name, o.why, o.calls, o.seconds / found.seconds) for o in found.others]
    head, tail = others[:_UNMAPPED], others[_UNMAPPED:]
    if tail:
        calls, part = sum(o[2] for o in tail), sum(o[3] for o in tail)
        head.append((f"{len(tail)} more", "", calls, part))
    note = (
        f"{found.share:.1%} of {found.seconds:.4g} s of kernels are mapped to classes of the twin"
    )
    return replace(done, notes=(*done.notes, note), others=tuple(head))
