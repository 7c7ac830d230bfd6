"""From a planner's question to a scenario and the clusters to search: what nobody has written yet
is chosen here, and said.

A question names a model, a GPU, the tokens, and what it is asked for: days, dollars, or both. The
scenario gets the usual rest: AdamW in bf16, the batch of `usual_batch`, a layout that the search
replaces. Sizes of the cluster follow from the deadline and from how far published runs come of
their GPUs' peak.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from typing import Any, Final

import numpy as np

from twin.answers.nearest import written
from twin.arch.count import flop_per_token
from twin.errors import Origin, Problem, UsageError
from twin.explore.search.space import DAY, Goal, nodes_of
from twin.loading import catalog_parts, load, load_part
from twin.loading.files import table
from twin.loading.tree import hint
from twin.reports.interval import AKIN, shipped
from twin.reports.table import flop
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS, NodeSpec

FABRICS: Final[Mapping[str, str]] = table(__name__, "FABRICS")
"""The usual fabric of a node, by the rate of its NICs in Gb/s; of a rack, by its name."""
SEQUENCE: Final = 4096
"""Tokens of a sequence where nobody says: of most pre-training in `scenarios/published`."""
USUAL_GPUS: Final = ("256", "512", "1024")
"""Sizes that are searched where neither a size nor a deadline says any."""
MOST_SIZES: Final = 6
"""Sizes of a first search: OURS, half a minute on two cores."""
QUANTILES: Final = (0.1, 0.5, 0.9)
"""Of published runs: slow, usual and fast ones."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What a planner knows before there is a plan. Quantities are written with units."""

    model: str | Mapping[str, Any]
    """a name of the catalog, or the fields of a model"""
    gpu: str
    """a GPU or a node of the catalog"""
    tokens: str
    days: float | None = None
    usd: float | None = None
    gpus: str = ""
    """sizes of the cluster, as `--gpus` takes them; empty: as many as it takes"""
    price: str = ""
    """of a GPU-hour; empty: unknown"""
    sequence: str = ""
    """tokens of a sequence; empty: `SEQUENCE`"""
    batch: str = ""
    """sequences or tokens of a step; empty: `usual_batch`"""
    software: str = ""
    """empty: what the loader takes"""
    name: str = ""

    @property
    def goal(self) -> Goal:
        """What is asked for."""
        return Goal(self.days, self.usd)


@dataclass(frozen=True, slots=True)
class PublishedMfu:
    """How far published runs come of their GPUs' dense BF16 peak, of families on GPUs as fast as
    this, with experts or without: a slow one, the median, a fast one."""

    slow: float
    usual: float
    fast: float
    families: int

    def days(self, scenario: Scenario, gpus: int) -> tuple[float, float, float]:
        """Days of a run at each of them, the shortest first."""
        peak = gpus * scenario.cluster.node.gpu.bf16_dense
        work = run_flop(scenario)
        fast, usual, slow = (
            work / (share * peak) / DAY for share in (self.fast, self.usual, self.slow)
        )
        return fast, usual, slow


def scenario_of(asked: PlanQuestion) -> Scenario:
    """The scenario of a question. Raises `TwinError` for what cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new.yaml"
        file.write_text(scenario_text(asked), encoding="utf-8")
        drafted = load(file)
        if asked.batch:
            return drafted
        batch = usual_batch(drafted)
        return load(file, [f"train.global_batch={batch}seq"])


def scenario_text(asked: PlanQuestion) -> str:
    """The question as the YAML of a scenario on one node."""
    node = node_of(asked.gpu)
    model = asked.model if isinstance(asked.model, str) else written(dict(asked.model))
    title = asked.model if isinstance(asked.model, str) else asked.model.get("name", "a new model")
    sequence = asked.sequence or f"{SEQUENCE}tok"
    lines = [
        "schema: 1",
        f"name: {written(asked.name or f'{title} on {asked.gpu}')}",
        f"model: {model}",
        f"cluster: {{node: {node}, nodes: 1, fabric: {fabric_of(node)}}}",
        "parallel: {pipeline: 1, tensor: 1, zero: 1, micro_batch: 1, schedule: 1f1b}",
        "train:",
        f"  tokens: {asked.tokens}",
        f"  global_batch: {asked.batch or '1024seq'}",
        f"  sequence: {sequence}",
        "  optimizer: adamw",
        "  precision: bf16",
    ]
    lines += [f"cost: {{gpu_hour: {asked.price}}}"] if asked.price else []
    lines += [f"software: {asked.software}"] if asked.software else []
    return "\n".join(lines) + "\n"


def node_of(gpu: str) -> str:
    """The usual node of a GPU: that of the shortest name that holds it; or the node itself. Raises
    `UsageError` with the nearest names where there is none."""
    nodes = sorted(catalog_parts("nodes"), key=len)
    wanted = gpu.casefold()
    own = [one for one in nodes if wanted in (one.casefold(), _gpu_of(one).casefold())]
    own += [one for one in nodes if one.casefold().startswith(f"{wanted}-")]
    if own:
        return own[0]
    known = sorted({_gpu_of(one) for one in nodes})
    where = Origin("--gpu", 1, 1, gpu, len(gpu))
    raise UsageError(
        [Problem("TW434", "", f"no node has the GPU `{gpu}`", hint(gpu, known), where)]
    )


def _gpu_of(node: str) -> str:
    spec = load_part("nodes", node).spec
    assert isinstance(spec, NodeSpec)
    return spec.gpu.name


def fabric_of(node: str) -> str:
    """The usual fabric of a node."""
    spec = load_part("nodes", node).spec
    assert isinstance(spec, NodeSpec)
    rate = f"{8 * spec.nic.bandwidth / 1e9:.0f}"
    return FABRICS.get(node) or FABRICS.get(rate) or FABRICS["400"]


def usual_batch(scenario: Scenario) -> int:
    """Sequences of a step: B = 0.2920 C^0.3271 tokens of a run of C FLOP (DeepSeek LLM,
    arXiv:2401.02954, equation 1; found up to 2e19 FLOP and used up to 8e23), rounded to 2^n or
    3 x 2^n sequences, which most clusters divide. It breaks far beyond 1e25 FLOP."""
    tokens = 0.2920 * run_flop(scenario) ** 0.3271
    sequences = max(1.0, tokens / scenario.train.sequence)
    power = int(log2(sequences))
    near = (2**power, 3 * 2 ** (power - 1) if power else 1, 2 ** (power + 1))
    return min(near, key=lambda one: abs(log2(one / sequences)))


def run_flop(scenario: Scenario) -> float:
    """Model FLOP of the whole run."""
    train = scenario.train
    return flop_per_token(scenario.model, train.sequence) * train.tokens


def published_mfu(scenario: Scenario) -> PublishedMfu | None:
    """What published runs on GPUs of this generation reach, one median for each family; None where
    no published run is like it."""
    gpu, experts = scenario.cluster.node.gpu.bf16_dense, scenario.model.moe is not None
    families: dict[str, list[float]] = {}
    for one in shipped().residuals:
        akin = max(one.at.peak / gpu, gpu / one.at.peak) < AKIN
        if one.metric == "step_seconds" and one.flop and akin and one.at.experts == experts:
            share = one.flop / one.measured / one.at.peak
            families.setdefault(one.family, []).append(share)
    if not families:
        return None
    medians = [float(np.median(shares)) for shares in families.values()]
    slow, usual, fast = np.quantile(medians, QUANTILES)
    return PublishedMfu(float(slow), float(usual), float(fast), len(medians))


def sizes_of(asked: PlanQuestion, scenario: Scenario) -> tuple[int, ...]:
    """Numbers of nodes to search: those that are named; else 2^n and 3 x 2^n nodes around what
    published runs of such models would take within the deadline."""
    if asked.gpus:
        return nodes_of(scenario, asked.gpus)
    per_node = scenario.cluster.node.gpus
    known = published_mfu(scenario)
    if asked.days is None or known is None:
        return nodes_of(scenario, ",".join(_whole(int(one), per_node) for one in USUAL_GPUS))
    peak, work = scenario.cluster.node.gpu.bf16_dense, run_flop(scenario)
    fewest, usual, most = (
        work / (share * peak * asked.days * DAY) / per_node
        for share in (known.fast, known.usual, known.slow)
    )
    found = [one for one in _round_sizes(MOST_GPUS // per_node) if fewest <= one <= 2 * most]
    if not found:
        found = [min(MOST_GPUS // per_node, ceil(most))]
    nearest = sorted(found, key=lambda one: abs(log2(one / usual)))
    return tuple(sorted(nearest[:MOST_SIZES]))


def _whole(gpus: int, per_node: int) -> str:
    return str(ceil(gpus / per_node) * per_node)


def _round_sizes(most: int) -> Sequence[int]:
    """2^n and 3 x 2^n, in order."""
    powers = [1 << bit for bit in range(most.bit_length())]
    return sorted(one for one in {*powers, *(3 * one for one in powers)} if one <= most)


def first_answer(scenario: Scenario, nodes: Sequence[int]) -> list[str]:
    """What can be said before anything is simulated, in sentences."""
    known = published_mfu(scenario)
    said = [f"The run is {flop(run_flop(scenario))} of the model."]
    if known is None:
        return [*said, "No published run is of such a model on such GPUs."]
    said.append(
        f"{known.families} families of published runs of such models on such GPUs reach "
        f"{100 * known.slow:.0f} to {100 * known.fast:.0f} % of the peak, in the median "
        f"{100 * known.usual:.0f} %."
    )
    for one in dict.fromkeys((nodes[0], nodes[len(nodes) // 2], nodes[-1])):
        gpus = one * scenario.cluster.node.gpus
        fast, usual, slow = known.days(scenario, gpus)
        said.append(f"On {gpus:,} GPUs that is {usual:.0f} days ({fast:.0f} to {slow:.0f}).")
    return said
