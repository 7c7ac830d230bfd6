"""How each class of link is used: bytes, capacity, and the time in which something is under way.

A transfer over several links at once is taken to be done with each as early as it would be alone,
in proportion. Everything that a NIC moves crosses the GPU's PCIe link too, and so do copies to and
from host memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.collectives.traffic import Traffic
from twin.engine.program import FROM_HOST, SEND_BACKWARD, SEND_FORWARD, TO_HOST, Program, Step
from twin.engine.trace import Trace
from twin.network.links import capacity
from twin.planning.types import Plan

LABELS: Final = {
    "nvlink": "NVLink port of a GPU",
    "pcie": "PCIe link of a GPU",
    "nic": "NIC of a GPU",
    "leaf": "Uplinks of a leaf",
    "dram": "Host memory of a socket",
    "pcie_uplink": "Uplink of a PCIe switch",
}
"""Classes of links in the order of the path, in words; others are called by their key."""
_COPIES: Final = (TO_HOST, FROM_HOST)
"""Streams of host copies."""
_HOST_LINKS: Final = ("pcie", "dram")
"""What they cross."""
_UNSIMULATED: Final = {"leaf": ", per NIC"}
"""What is added to the name of a link that the trace does not know."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One class of link; means over its links, and over the directions of those that have two."""

    key: str
    label: str
    capacity: float
    """Usable bytes per second of one link; of host memory read and written together."""
    bytes: float
    """Bytes that one link carries per step."""
    use: float
    """Share of its capacity that the step uses, 0 to 1."""
    busy: float = 0.0
    """Share of the step in which something is under way on it, 0 to 1."""
    rate: float | None = None
    """Bytes per second while something is; None where nothing ever is."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of `bytes`: NIC traffic and host copies, where both may be."""

    @property
    def spoken(self) -> str:
        """The label within a sentence; abbreviations keep their capitals."""
        first, second = self.label[:1], self.label[1:2]
        return (first.lower() if second.islower() else first) + self.label[1:]

    def to_json(self) -> dict[str, Any]:
        """The link in plain data."""
        return {
            "link": self.key,
            "label": self.label,
            "capacity_bytes_per_second": self.capacity,
            "bytes": self.bytes,
            "use": self.use,
            "busy_share": self.busy,
            "busy_bytes_per_second": self.rate,
            "parts": dict(self.parts),
        }


def link_use(
    plan: Plan, program: Program, trace: Trace, uplink_bytes: float
) -> tuple[LinkLoad, ...]:
    """Every class of link that the trace knows, and those that carry the NICs' bytes unsimulated,
    because they are no slower: a GPU's PCIe link, and the uplinks of a leaf."""
    step, busy = trace.step_ns / 1e9, _busy(program, trace)
    carried = dict(trace.link_bytes)
    rates = {key: _capacity(program, key) for key in carried}
    if "pcie" not in carried and carried.get("nic"):
        carried["pcie"], rates["pcie"] = carried["nic"], capacity(plan.scenario.cluster, "pcie")
    if "dram" not in carried:
        # Nothing is copied to the host.
        carried["dram"] = 0.0
        rates["dram"] = capacity(plan.scenario.cluster, "dram")
    cluster = plan.scenario.cluster
    if "leaf" not in carried and cluster.nodes > cluster.fabric.nodes_per_leaf:
        carried["leaf"] = uplink_bytes
        rates["leaf"] = rates["nic"] / cluster.fabric.oversubscription
    order = [*LABELS, *(key for key in carried if key not in LABELS)]
    return tuple(
        LinkLoad(
            key,
            LABELS.get(key, key) + ("" if key in trace.link_bytes else _UNSIMULATED.get(key, "")),
            rates[key],
            carried[key],
            carried[key] / (rates[key] * step),
            busy.get(key, 0.0) / trace.step_ns,
            1e9 * carried[key] / busy[key] if busy.get(key) else None,
            _parts(key, carried),
        )
        for key in order
        if key in carried
    )


def _parts(key: str, carried: Mapping[str, float]) -> dict[str, float]:
    """What crosses a PCIe link: the NIC's bytes, and the rest, which are host copies."""
    if key != "pcie":
        return {}
    nic = min(carried["nic"], carried[key])
    return {"NIC traffic": nic, "host copies": carried[key] - nic}


def _capacity(program: Program, key: str) -> float:
    """Bytes per second of one link of a class."""
    wiring = program.wiring
    own = [rate for kind, rate in zip(wiring.classes, wiring.capacity, strict=True) if kind == key]
    return 1e9 * sum(own) / len(own)


def _busy(program: Program, trace: Trace) -> dict[str, float]:
    """Nanoseconds of the whole step in which something is under way on each class of link, mean of
    the roles."""
    spans, found = trace.spans, dict[str, float]()
    lengths = spans.end - spans.start
    for key, share in _crossing(program, trace).items():
        end = spans.start + np.rint(share * lengths).astype(np.int64)
        total = 0.0
        for role in range(len(trace.roles)):
            rows = (share > 0) & (spans.role == role)
            total += _covered(spans.start[rows], end[rows], trace)
        found[key] = total / len(trace.roles)
    return found


def _crossing(program: Program, trace: Trace) -> dict[str, NDArray[np.float64]]:
    """The share of each span's time for which it is on each class of link."""
    spans, message = trace.spans, program.message
    shares = {key: np.zeros(len(spans.start)) for key in LABELS}
    for (stream, name), steps in steps_by_name(program).items():
        if name not in trace.names:
            continue
        own = (spans.stream == stream) & (spans.name == trace.names.index(name))
        for key in LABELS:
            # Of steps of one name, whose spans the trace does not tell apart, the longest.
            shares[key][own] = max(_share(step, key, program) for step in steps)
    for key in ("nvlink",) if message.link == "nvlink" else _nic_path(far=message.far):
        shares[key][np.isin(spans.stream, (SEND_FORWARD, SEND_BACKWARD))] = 1.0
    for key in _HOST_LINKS:
        shares[key][np.isin(spans.stream, _COPIES)] = 1.0
    return shares


def _share(step: Step, key: str, program: Program) -> float:
    """Of a step's time alone: how much passes until its bytes are through a class of link."""
    flow = step.traffic or Traffic()
    if key not in _crossed(flow):
        return 0.0
    if key != "nvlink":
        own = replace(flow, nvlink_bytes=0.0)
    else:
        own = Traffic(nvlink_bytes=flow.nvlink_bytes)
    whole = step.alone_ns(program.capacity)
    return replace(step, traffic=own).alone_ns(program.capacity) / whole if whole else 0.0


def _crossed(flow: Traffic) -> tuple[str, ...]:
    """Classes of links that a transfer crosses."""
    nvlink = ("nvlink",) if flow.nvlink_bytes else ()
    nic = _nic_path(far=flow.far_bytes > 0) if flow.nic_bytes else ()
    host = _HOST_LINKS if flow.to_host_bytes or flow.from_host_bytes else ()
    return (*nvlink, *nic, *host)


def _nic_path(*, far: bool) -> tuple[str, ...]:
    return ("pcie", "nic", "leaf") if far else ("pcie", "nic")


def _covered(start: NDArray[np.int64], end: NDArray[np.int64], trace: Trace) -> float:
    """Nanoseconds of the whole step that some of these spans cover; a window that repeats counts as
    often as it does."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if not len(start):
        return 0.0
    reached = np.maximum.accumulate(end)
    begins = np.maximum(start, np.concatenate([[0], reached[:-1]]))
    ends = np.maximum(end, begins)
    whole = float((ends - begins).sum())
    if trace.repeats == 1:
        return whole
    first, last = trace.window_start, trace.window_end
    window = np.clip(ends, first, last) - np.clip(begins, first, last)
    return whole + (trace.repeats - 1) * float(window.sum())


def steps_by_name(program: Program) -> dict[tuple[int, str], tuple[Step, ...]]:
    """The program's steps that communicate, by stream and name."""
    templates = [
        *program.passes.values(),
        program.receive,
        *program.opening,
        *program.finish,
    ]
    found: dict[tuple[int, str], list[Step]] = {}
    for step in (step for template in templates for step in template if step.traffic):
        found.setdefault((step.stream, step.name), []).append(step)
    return {key: tuple(steps) for key, steps in found.items()}
