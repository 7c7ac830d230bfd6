"""How a key figure comes about: a tree from its formula down to what was written and where.

Every node but the leaves has a formula over its children, from which its value is computed, so the
tree cannot say anything else than it shows. Leaves are values of the scenario with the file and the
source that vouches for them, counts of `twin.arch`, and what was played. What was played and does
not follow from a formula (how long a stage waits for another, what kernels cover of a transfer) is
a leaf that says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from twin.arch.count import flop_per_token, mixing_flop
from twin.engine.host import COLLECTED
from twin.engine.program import Program
from twin.engine.trace import Trace
from twin.errors import Problem, UsageError
from twin.loading.files import table
from twin.loading.tree import hint
from twin.planning.experts import expert_load
from twin.planning.memory import PARAMETER_BYTES
from twin.planning.types import Plan
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, COMMUNICATION, EXPOSED_CAUSES
from twin.reports.explain_parts import (
    Explanation,
    Money,
    evaluate,
    explain_failures,
    leaf,
    node,
    sum_of,
)
from twin.reports.kpis import recomputed_flop
from twin.reports.op_totals import Arithmetic, kernels, transfers
from twin.reports.report import Report
from twin.reports.table import duration
from twin.spec.kpis import KPIS, OF_FAILURES

__all__ = ["VERSION", "Explanation", "evaluate", "explain", "named"]

VERSION: Final = 1
"""Version of the JSON document."""

ROOFLINE: Final = "time = max(FLOP / peak, bytes / bandwidth): Williams, Waterman, Patterson 2009"
PLAYED: Final = "played (twin.engine)"
COUNTED: Final = "counted op by op (twin.arch)"


_SHARED: Final = {
    "far": "a rank's share of the uplinks of its leaf",
    "host": "the slower of a GPU's PCIe link and its share of its socket's memory",
}
"""Paths whose rate is a share of links that several ranks use, in words."""
_MEMORY_SOURCES: Final = table(__name__, "_MEMORY_SOURCES")
"""Where each category of the memory ledger comes from."""
_HOST_SOURCES: Final = {
    "activations": "what forwards keep, from the copy out to the end of the copy back, one "
    "backward ahead of their own (twin.planning.offload)",
    "optimizer_dense": _MEMORY_SOURCES["optimizer_dense"],
    "optimizer_expert": _MEMORY_SOURCES["optimizer_expert"],
    "optimizer_buffers": "buckets of gradients and weights on their way (twin.planning.offload)",
}
"""Where each category of host memory comes from."""


def explain(plan: Plan, program: Program, trace: Trace, report: Report, kpi: str) -> Explanation:
    """The derivation of a key figure of a run.

    Raises `UsageError` where no key figure has this name.
    """
    return _Derivation(plan, program, trace, report).figure(named(kpi))


def named(kpi: str, topics: Iterable[str] = ()) -> str:
    """The name of a key figure. Raises `UsageError` where none is called so; `topics` are what
    else could be meant."""
    known = [figure.key for figure in KPIS]
    if kpi not in known:
        message = f"`{kpi}` is no key figure"
        raise UsageError([Problem("TW051", "", message, hint(kpi, [*known, *topics]))])
    return kpi


@dataclass(frozen=True)
class _Derivation:
    """The derivations of one run."""

    plan: Plan
    program: Program
    trace: Trace
    report: Report

    def figure(self, kpi: str) -> Explanation:
        """The derivation of a key figure."""
        unit = next(one.unit for one in KPIS if one.key == kpi)
        if kpi in OF_FAILURES:
            return explain_failures(kpi, unit, self.report, self.figure)
        if kpi in self.report.bill.figures:
            return self._money.figure(kpi, unit)
        return getattr(self, f"_{kpi}")()

    def given(self, path: str, unit: str, name: str = "") -> Explanation:
        """A value of the scenario, in SI units, with where it was written and who vouches for
        it."""
        scenario = self.plan.scenario
        value: Any = scenario
        for key in path.split("."):
            value = getattr(value, key)
        known, where = scenario.ledger.get(path), [f"{path}, {scenario.origin(path)}"]
        if known is not None:
            where.append(known.kind)
            if known.source is not None:
                where.append(f"{known.source.title} ({known.source.url})")
        return leaf(name or path.rpartition(".")[2], float(value), unit, "; ".join(where))

    # The figures of the contract, by name.

    def _step_seconds(self) -> Explanation:
        return node("step_seconds", "s", "step_ns / 1e9", [self._step_ns()])

    def _step_ns(self) -> Explanation:
        parts = [self._category(cause) for cause in CAUSES if self.report.breakdown_ns[cause]]
        source = "how the compute stream spends the step, mean over ranks"
        return sum_of("step_ns", "ns", parts, source)

    def _tokens_per_second(self) -> Explanation:
        batch = self.given("train.global_batch", "tok")
        formula = "global_batch / step_seconds"
        return node("tokens_per_second", "tok/s", formula, [batch, self._step_seconds()])

    def _tokens_per_second_per_gpu(self) -> Explanation:
        parts = [self._tokens_per_second(), self._gpus()]
        return node("tokens_per_second_per_gpu", "tok/s/GPU", "tokens_per_second / gpus", parts)

    def _gpus(self) -> Explanation:
        parts = [
            self.given("cluster.nodes", "nodes"),
            self.given("cluster.node.gpus", "GPUs per node", "gpus_per_node"),
        ]
        return node("gpus", "GPUs", "nodes * gpus_per_node", parts)

    def _mfu(self) -> Explanation:
        parts = [self._model_flop(), self._step_seconds(), self._gpus(), self._peak()]
        formula = "model_flop / step_seconds / (gpus * bf16_dense)"
        source = "Chowdhery et al. 2022 (PaLM, arXiv:2204.02311), appendix B; causal attention"
        return node("mfu", "%", formula, parts, source)

    def _hfu(self) -> Explanation:
        recomputed = leaf(
            "recomputed_flop",
            recomputed_flop(self.plan),
            "FLOP per step",
            f"forward work that memory.recompute={list(self.plan.scenario.memory.recompute)} runs "
            f"again, over all ranks; {COUNTED}",
        )
        parts = [self._model_flop(), recomputed, self._step_seconds(), self._gpus(), self._peak()]
        formula = "(model_flop + recomputed_flop) / step_seconds / (gpus * bf16_dense)"
        source = "Korthikanti et al. 2022 (arXiv:2205.05198), section 5"
        return node("hfu", "%", formula, parts, source)

    def _model_tflops_per_gpu(self) -> Explanation:
        parts = [self._model_flop(), self._step_seconds(), self._gpus()]
        formula = "model_flop / step_seconds / gpus / 1e12"
        return node("model_tflops_per_gpu", "TFLOP/s", formula, parts)

    def _bubble_fraction(self) -> Explanation:
        parts = [self._category("bubble"), self._step_ns()]
        return node("bubble_fraction", "%", "bubble / step_ns", parts)

    def _exposed_communication_seconds(self) -> Explanation:
        parts = [
            self._category(cause) for cause in COMMUNICATION if self.report.breakdown_ns[cause]
        ]
        total = sum_of("exposed_ns", "ns", parts, "all exposed categories but host copies")
        return node("exposed_communication_seconds", "s", "exposed_ns / 1e9", [total])

    def _peak_device_bytes(self) -> Explanation:
        peak = self.plan.memory.peak
        parts = [self._memory(name, size) for name, size in peak.categories.items() if size]
        source = f"the fullest moment of stage {peak.stage}: {peak.peak_moment}"
        return sum_of("peak_device_bytes", "bytes", parts, source)

    def _peak_host_bytes_per_node(self) -> Explanation:
        memory = self.plan.memory
        parts = [
            leaf(name, size, "bytes", _HOST_SOURCES[name]) for name, size in memory.host.items()
        ]
        source = "pinned for all GPUs of the fullest node, each at its fullest moment"
        return sum_of("peak_host_bytes_per_node", "bytes", parts, source)

    def _days(self) -> Explanation:
        parts = [
            self.given("train.tokens", "tok"),
            self.given("train.global_batch", "tok"),
            self._step_seconds(),
        ]
        return node("days", "d", "tokens / global_batch * step_seconds / 86400", parts)

    def _gpu_hours(self) -> Explanation:
        return node("gpu_hours", "GPU-h", "gpus * days * 24", [self._gpus(), self._days()])

    @property
    def _money(self) -> Money:
        report, hours = self.report, self._gpu_hours()
        return Money(self.plan.scenario, report.bill, report.breakdown_ns, hours, self.given)

    # What they follow from.

    def _peak(self) -> Explanation:
        return self.given("cluster.node.gpu.bf16_dense", "FLOP/s")

    def _model_flop(self) -> Explanation:
        parts = [self._flop_per_token(), self.given("train.global_batch", "tok")]
        return node("model_flop", "FLOP per step", "flop_per_token * global_batch", parts)

    def _flop_per_token(self) -> Explanation:
        model, sequence = self.plan.scenario.model, self.plan.scenario.train.sequence
        attention = mixing_flop(model, sequence)
        weights = (flop_per_token(model, sequence) - 3 * model.layers * attention) / 6
        parts = [
            leaf(
                "matmul_weights",
                weights,
                "weights",
                f"matrix weights that one token of {model.name} passes through, head in, look-up "
                "out (twin.arch.count)",
            ),
            self.given("model.layers", "layers"),
            leaf(
                "attention_flop",
                attention,
                "FLOP per token and layer",
                f"causal half of scores and values at {sequence} tokens (twin.arch.attention)",
            ),
        ]
        formula = "6 * matmul_weights + 3 * layers * attention_flop"
        source = "forward 2 per weight, backward twice that; attention's backward twice its forward"
        return node("flop_per_token", "FLOP/tok", formula, parts, source)

    def _category(self, cause: str) -> Explanation:
        """A category of the breakdown, in nanoseconds."""
        value = float(self.report.breakdown_ns[cause])
        if cause == "compute":
            return self._compute(value)
        if cause in EXPOSED_CAUSES:
            return self._exposed(cause, value)
        words = CAUSE_WORDS[cause]
        why = {
            "bubble": "time in which another stage has not yet produced what this one waits for",
            "optimizer": "kernels of the update on the rank's share of weights, by the roofline "
            f"with the calibration's efficiencies ({self.plan.scenario.train.optimizer.kind})",
            "contention": self._taken(),
            "host": self._host(),
            "imbalance": self._imbalance(),
        }
        return leaf(cause, value, "ns", f"{words}: {why.get(cause, 'see the breakdown')}; {PLAYED}")

    def _compute(self, value: float) -> Explanation:
        """Kernels of all passes, by class, by what binds them."""
        work = kernels(self.plan)
        classes = [self._arithmetic(name, one) for name, one in work.arithmetic.items()]
        classes += [self._moved(path, size) for path, size in work.bytes.items()]
        classes += [self._launches(path, launched) for path, launched in work.launched.items()]
        total = sum_of("kernel_seconds", "s", classes, "all passes of one rank, mean over stages")
        rest = leaf(
            "rounding",
            value - 1e9 * (total.value or 0.0),
            "ns",
            f"rounding of segments to nanoseconds, and kernels that run in halves; {PLAYED}",
        )
        formula = "1e9 * kernel_seconds + rounding"
        return node("compute", "ns", formula, [total, rest], CAUSE_WORDS["compute"])

    def _host(self) -> str:
        """What the host takes, who says so, and the fields that make it less."""
        scenario = self.plan.scenario
        stack, profile = scenario.software, scenario.calibration
        said = (
            f"a host thread that takes calibration.dispatch ({profile.dispatch * 1e6:g} us) per "
            f"kernel and is late; {stack.name if stack else 'bare kernels'} has no other host"
            if stack is None or stack.host is None
            else f"the host thread of {stack.name}: what it does for every operation "
            "(software.host), where it is late, or has asked the device"
        )
        if self._collected:
            said = f"{said}; {self._collected / 1e6:.3g} ms of it for garbage collection"
        return f"{said}. Less with: {'; '.join(self._host_levers())}"

    @property
    def _collected(self) -> int:
        """Nanoseconds of the step in which ranks wait for hosts that collect garbage."""
        steps = self.program.finish[0]
        return sum(step.duration_ns for step in steps if step.name == COLLECTED)

    def _imbalance(self) -> str:
        """How full the fullest expert rank is, by what routing, and what makes it less."""
        scenario = self.plan.scenario
        ranks, routing = scenario.parallel.expert, scenario.train.routing.kind
        return (
            f"in each layer and micro-batch the fullest of {ranks} expert ranks gets "
            f"{expert_load(scenario):.3g} times the mean rank's rows (train.routing {routing}), "
            "and the others wait for its kernels at the next exchange; what its rows take longer "
            "on their way is in exposed_expert. Less with: a smaller parallel.expert (now "
            f"{ranks}), "
            "a larger parallel.micro_batch where routing is random, another train.routing"
        )

    def _host_levers(self) -> list[str]:
        """Fields that give the host less to do per second of the device, or hide its waits."""
        parallel = self.plan.scenario.parallel
        levers = [f"a larger parallel.micro_batch (now {parallel.micro_batch})"]
        if parallel.expert > 1:
            levers.append(f"another parallel.dispatcher (now {parallel.dispatcher})")
            if not parallel.schedule.pairs:
                levers.append("parallel.schedule with overlap_all_to_all")
        if self._collected:
            interval = self.plan.scenario.gc_interval
            levers.append(
                "garbage collections of all ranks together: train.gc_interval (now automatic)"
                if interval is None
                else f"a longer train.gc_interval (now {interval} steps)"
            )
        return [*levers, "another software"]

    def _taken(self) -> str:
        """What communication takes from kernels beside it, and who says so."""
        profile = self.plan.scenario.calibration
        said = [
            f"{name}={getattr(profile, name)} ({self.given(f'calibration.{name}', '').source})"
            for name in ("expert_sms", "collective_sms", "contention", "expert_contention")
        ]
        return (
            f"while communication runs beside them it holds some of the GPU's "
            f"{self.plan.scenario.cluster.node.gpu.sms} SMs and takes a share of speed beyond "
            f"them (twin.hardware.roofline): {'; '.join(said)}"
        )

    def _arithmetic(self, name: str, work: Arithmetic) -> Explanation:
        """Kernels of a class that arithmetic bounds."""
        peak = self.given(f"cluster.node.gpu.{work.peak}", "FLOP/s")
        flop = leaf(f"{name}_flop", work.flop, "FLOP", f"per step and rank; {COUNTED}")
        if work.by_shape:
            reached = work.flop / ((peak.value or 1.0) * work.seconds)
            source = f"mean over their shapes, by calibration {self.plan.scenario.calibration.name}"
            share = leaf("efficiency", reached, "share", f"{source} (twin.hardware)")
        else:
            share = self.given(f"calibration.{name.partition('_fp')[0]}", "share", "efficiency")
        formula = f"{name}_flop / ({work.peak} * efficiency)"
        return node(f"{name}_seconds", "s", formula, [flop, peak, share], ROOFLINE)

    def _moved(self, path: str, size: float) -> Explanation:
        """Kernels that memory bounds; `path` says where their share of its bandwidth is written."""
        kind = path.removeprefix("calibration.").removesuffix("bandwidth").strip(".")
        told = f"per step and rank, bound by HBM; {COUNTED}"
        parts = [
            leaf("hbm_bytes", size, "bytes", told),
            self.given("cluster.node.gpu.memory_bandwidth", "bytes/s"),
            self.given(path, "share", "efficiency"),
        ]
        name = "_".join(filter(None, ["memory_bound", kind.removeprefix("streaming."), "seconds"]))
        formula = "hbm_bytes / (memory_bandwidth * efficiency)"
        return node(name, "s", formula, parts, ROOFLINE)

    def _launches(self, path: str, launched: float) -> Explanation:
        """What the launches of kernels add; `path` says where it is written how much each does."""
        own = path.removeprefix("calibration.").replace(".", "_")
        parts = [
            leaf("kernels", launched, "kernels", f"per step and rank; {COUNTED}"),
            self.given(path, "s", "launch"),
        ]
        return node(f"{own}_seconds", "s", "kernels * launch", parts)

    def _exposed(self, cause: str, value: float) -> Explanation:
        """Transfers of a kind alone, less what is hidden."""
        flows = transfers(self.program, self.trace, cause)
        parts: list[Explanation] = []
        for link, size in flows.bytes.items():
            carried = leaf(
                f"{link}_bytes",
                size,
                "bytes",
                f"per step and rank, bound by {link}; {COUNTED}",
            )
            inside = [carried, self._rate(link)]
            parts.append(node(f"{link}_ns", "ns", f"1e9 * {link}_bytes / {link}_rate", inside))
        source = (
            "of all transfers: latency of links and switches in serial hops, and what ranks' own "
            "shares cost (twin.collectives.traffic.serial)"
        )
        parts.append(leaf("latency_ns", flows.latency_ns, "ns", source))
        alone = sum_of(
            "in_flight", "ns", parts, "all transfers of this kind with links to themselves"
        )
        hidden = leaf(
            "hidden",
            (alone.value or 0.0) - value,
            "ns",
            f"under kernels or other waits; negative where sharing links costs more; {PLAYED}",
        )
        return node(cause, "ns", "in_flight - hidden", [alone, hidden], self._when(cause))

    def _when(self, cause: str) -> str:
        """A cause in words, with how much of it falls into the ramp where that is known."""
        split = self.report.exposure.get(cause)
        if split is None:
            return CAUSE_WORDS[cause]
        ramp, steady = (duration(ns / 1e9) for ns in (split.ramp_ns, split.steady_ns))
        return (
            f"{CAUSE_WORDS[cause]}: {ramp} while the pipeline fills and drains, {steady} in the "
            "steady state"
        )

    def _rate(self, link: str) -> Explanation:
        """Bytes per second that one port carries, or that a rank gets of links that it shares."""
        if link in _SHARED:
            rate = 1e9 * self.program.capacity[link]
            return leaf(f"{link}_rate", rate, "bytes/s", f"{_SHARED[link]} (twin.network)")
        parts = [
            self.given(f"cluster.node.{link}.bandwidth", "bytes/s"),
            self.given(f"cluster.node.{link}.efficiency", "share"),
        ]
        formula = "bandwidth * efficiency"
        if link == "nic":
            parts.append(self.given("cluster.fabric.efficiency", "share", "fabric_efficiency"))
            formula = "bandwidth * efficiency * fabric_efficiency"
        return node(f"{link}_rate", "bytes/s", formula, parts, "one port, one direction")

    def _memory(self, name: str, size: float) -> Explanation:
        """A category of the memory ledger."""
        gradients = self.plan.scenario.train.gradient_bytes
        widths = {"parameters": PARAMETER_BYTES, "gradients": gradients}
        if name not in widths:
            return leaf(name, size, "bytes", _MEMORY_SOURCES.get(name, "twin.planning.memory"))
        width = widths[name]
        source = "weights whose {0} the fullest rank holds, after sharding; {1}"
        parts = [
            leaf(f"{name}_held", size / width, "weights", source.format(name, COUNTED)),
            leaf("bytes_each", float(width), "bytes", _MEMORY_SOURCES[name]),
        ]
        return node(name, "bytes", f"{name}_held * bytes_each", parts)
