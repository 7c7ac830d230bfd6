"""Levers on memory: single changes of a plan, and what each frees on the fullest GPU.

A lever is the scenario with one field changed to its next value, planned anew. Changes that cannot
run are left out, and so are those that free nothing. The price in time is that of the fast path,
where asked for. Levers do not add up: two at once free less, or more, than their sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

from twin.errors import ScenarioError
from twin.explore.study.variants import Answers, document, replaced, value_at, written
from twin.planning import plan
from twin.scenario import Scenario
from twin.spec.memory import Fp8Store, MemorySpec, Recompute

PRICES: Final[dict[str, str]] = {
    "memory.recompute": "the backward pass computes again what is dropped",
    "memory.fp8_store": "a kernel packs, another unpacks; activations are rounded",
    "memory.offload": "copies over PCIe and through host memory, which others use, too",
    "parallel.zero": "more collectives over the data ranks",
    "parallel.expert": "all-to-all among more ranks, more of it between nodes",
    "parallel.tensor": "collectives inside every layer, smaller matrices",
    "parallel.expert_tensor": "collectives inside every expert, smaller matrices",
    "parallel.context": "keys and values travel between ranks",
    "parallel.pipeline": "a longer pipeline to fill, and fewer replicas",
    "parallel.virtual": "less in flight, a longer bubble",
    "parallel.micro_batch": "smaller kernels, more of them",
    "parallel.sequence_parallel": "gathers and scatters in place of all-reduces",
}
"""Every field that is tried, and what its change costs, in words."""
OFFLOADS: Final = ("activations", "optimizer")
"""What is tried of `memory.offload`; the parts of `optimizer` are for finer choices."""


@dataclass(frozen=True, slots=True)
class Lever:
    """One change: a field and its new value, as `--set` takes them, and the memory with it."""

    path: str
    value: str
    peak_bytes: float
    """On the fullest GPU, with the change."""
    saved_bytes: float
    """Of the peak without the change."""
    fits: bool
    step_seconds: float | None = None
    """How much longer a step takes, by the fast path; None where that was not asked for."""

    @property
    def label(self) -> str:
        """The change in few letters."""
        return f"{self.path.rpartition('.')[2]}: {self.value}"

    @property
    def price(self) -> str:
        """What it costs, in words."""
        return PRICES[self.path]


def levers(scenario: Scenario, *, timed: bool = False) -> tuple[Lever, ...]:
    """The changes that free memory on the fullest GPU, the largest first; `timed` plays each of
    them, and the scenario, on the fast path.

    Raises:
        ScenarioError: the layout of the scenario itself is impossible.
    """
    usual, base, answers = plan(scenario).memory.peak.peak_bytes, document(scenario), Answers()
    step_ns = answers.of(scenario).step_ns if timed else 0
    found: list[Lever] = []
    for path, value in _changes(scenario):
        try:
            changed = replaced(base, {path: value})
            memory = plan(changed).memory
        except (ValueError, ScenarioError):
            continue
        saved = usual - memory.peak.peak_bytes
        if saved <= 0:
            continue
        longer = (answers.of(changed).step_ns - step_ns) / 1e9 if timed else None
        found.append(
            Lever(path, written(value), memory.peak.peak_bytes, saved, memory.fits, longer)
        )
    return tuple(sorted(found, key=lambda lever: -lever.saved_bytes))


def _changes(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Paths and values: every memory policy added, every higher stage of ZeRO, and the next step of
    every degree."""
    yield from _policies(scenario.memory)
    present = document(scenario)
    parallel = scenario.parallel
    for stage in range(parallel.zero + 1, 4):
        yield "parallel.zero", stage
    for field in ("expert", "tensor", "expert_tensor", "context", "pipeline"):
        yield f"parallel.{field}", 2 * int(value_at(present, f"parallel.{field}") or 1)
    for field in ("virtual", "micro_batch"):
        if (now := int(value_at(present, f"parallel.{field}"))) > 1:
            yield f"parallel.{field}", now // 2
    if parallel.tensor > 1 and not parallel.sequence_parallel:
        yield "parallel.sequence_parallel", True


def _policies(memory: MemorySpec) -> Iterator[tuple[str, list[str]]]:
    """Every policy of recomputation, storing in FP8 and offload, added to those there are."""
    for policy in get_args(Recompute):
        if not {"full", policy} & {*memory.recompute}:
            more = ["full"] if policy == "full" else [*memory.recompute, policy]
            yield "memory.recompute", more
    for store in get_args(Fp8Store):
        if store not in memory.fp8_store:
            yield "memory.fp8_store", [*memory.fp8_store, store]
    for part in OFFLOADS:
        if part not in memory.offload:
            yield "memory.offload", [*memory.offload, part]
