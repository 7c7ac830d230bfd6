"""Scenario to Plan, the one entry point: ranks, chunks with layers, placements, micro-batches,
memory, warnings.

Layers are split over chunks as written in `parallel.layers`, or so that a step is shortest
(`twin.planning.split_search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from twin.errors import Problem, ScenarioError
from twin.network.placement import Placement
from twin.planning.caveats import caveats, memory_caveats
from twin.planning.chunks import chunk_map_of, cut, ends, layers_of, mean_layers
from twin.planning.feasibility import microbatches, problems
from twin.planning.layer_times import KERNELS, weigh
from twin.planning.memory import StageLedgers
from twin.planning.mesh import lay_out, placements
from twin.planning.policies import PolicyChoice
from twin.planning.split_costs import step_costs
from twin.planning.split_search import (
    Split,
    balance_within,
    search_within,
    shortest,
    surely_shorter,
)
from twin.planning.stages import Busy, Job, job_of
from twin.planning.step_length import StepCosts, StepLength
from twin.planning.types import Chunk, Memory, Mesh, Plan
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec

Policies: TypeAlias = tuple[MemorySpec, ...]
"""The memory policy of every chunk."""

HOPELESS = 1.25
"""OURS: of what all stages have, what a balanced split may need at most if another is sought."""
LEAST_SECONDS = 1e-6
"""What the kernels of a micro-batch take at least, over all layers: a thousand times the engine's
nanosecond, and less than one launch of a kernel takes on any GPU."""


def plan(scenario: Scenario) -> Plan:
    """The resolved run of a scenario.

    Raises:
        ScenarioError: the layout is impossible; carries every problem, each with its nearest fix.
    """
    if found := problems(scenario):
        raise ScenarioError(scenario.locate(found))
    mesh = lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    if found := kernels_take_time(weigh(mean_layers(scenario), scenario, placed)):
        raise ScenarioError(scenario.locate(found))
    count = microbatches(scenario)
    chunks, memory = _Arranger(scenario, mesh, placed, count).arranged()
    return Plan(
        scenario=scenario,
        mesh=mesh,
        chunks=chunks,
        microbatches=count,
        placements=placed,
        memory=memory,
        warnings=(
            *caveats(scenario, mesh, chunks),
            *memory_caveats(scenario, chunks, memory),
        ),
    )


def layer_split(scenario: Scenario) -> tuple[int, ...]:
    """Transformer layers per part of the model, as written or as found; of a possible layout."""
    return scenario.parallel.layers or plan(scenario).layers_per_part


def _hopeless(memory: Memory) -> bool:
    """Whether the stages of a balanced split need so much more than they have that no split will
    fit."""
    needed = sum(one.peak_bytes for one in memory.stages)
    return needed > HOPELESS * memory.budget * len(memory.stages)


class _Arranger:
    """Layers and memory policies on their way to chunks."""

    def __init__(
        self, scenario: Scenario, mesh: Mesh, placed: Mapping[str, Placement], count: int
    ) -> None:
        self.scenario, self.mesh, self.placed = scenario, mesh, placed
        self.chunk_map, self.ledgers = chunk_map_of(scenario), StageLedgers(scenario, mesh, count)
        self.shape = mesh.pipeline, scenario.parallel.virtual, count

    def arranged(self) -> tuple[tuple[Chunk, ...], Memory]:
        """The chunks and their ledger."""
        if isinstance(self.scenario.memory.by_stage, str):
            return self._by_stage()
        policies = self.scenario.memory.of_chunks(self.chunk_map.stage_of)
        split = self.scenario.parallel.layers or self._split_for(policies)
        return self._chunks(split, policies)

    def _split_for(self, policies: Policies) -> Split:
        """The split with which a step is shortest; where that does not fit in memory, the balanced
        one, or the shortest that is found to fit; where none does, the balanced one."""
        found = self._shortest(policies)
        if self._chunks(found, policies)[1].fits:
            return found
        own = self._balanced(policies)
        usual = self._chunks(own, policies)[1]
        if _hopeless(usual):
            return own
        other = self._within(policies)
        if not self._chunks(other, policies)[1].fits:
            return own
        if not usual.fits:
            return other
        if not self.searches:
            return own
        step, places = self._step(policies)
        sure = surely_shorter(step, other, places, *step([other, own], places))
        return other if sure else own

    def _by_stage(self) -> tuple[tuple[Chunk, ...], Memory]:
        """Policies that stages choose, of the splits that the written policy and the fastest one
        give, and of a split that is sought for what they chose."""
        scenario = self.scenario
        choice = PolicyChoice(scenario.memory, self._costs, self._cut, self.ledgers, self.chunk_map)
        written = scenario.parallel.layers
        if written is not None:
            best = choice.arranged(written)
            return best.chunks, best.memory
        fastest = choice.tried[choice.ladders[0][0]]
        splits: dict[Split, None] = {}
        for policy in (scenario.memory.as_everywhere, fastest):
            own = self._everywhere(policy)
            splits |= dict.fromkeys((self._split_for(own), self._shortest(own)))
        best = min(map(choice.arranged, splits), key=lambda one: one.worth)
        if best.worth[0]:
            again = self._within(self._everywhere(choice.tightest))
        else:
            again = self._shortest(choice.policies(best))
        best = min((best, choice.arranged(again)), key=lambda one: one.worth)
        return best.chunks, best.memory

    def _everywhere(self, policy: MemorySpec) -> Policies:
        return (policy,) * len(self.chunk_map.part_of)

    def _chunks(self, split: Split, policies: Policies) -> tuple[tuple[Chunk, ...], Memory]:
        """The chunks of a split, and their ledger."""
        stacks = {policy: layers_of(self.scenario, policy) for policy in dict.fromkeys(policies)}
        chunks = cut(self.scenario, [stacks[policy] for policy in policies], split)
        return chunks, self.ledgers.of(chunks)

    def _step(self, policies: Policies) -> tuple[StepLength, tuple[int, ...]]:
        """The light model of the step, and the places of parts' policies in it."""
        costs, places = self._by_part(policies)
        return StepLength(costs, self.scenario.parallel.schedule, self.shape), places

    def _by_part(self, policies: Policies) -> tuple[tuple[StepCosts, ...], tuple[int, ...]]:
        """Costs under each policy, and the place of each part's among them."""
        tried = tuple(dict.fromkeys(policies))
        of_part = dict(zip(self.chunk_map.part_of, map(tried.index, policies), strict=True))
        return tuple(map(self._costs, tried)), tuple(of_part[part] for part in sorted(of_part))

    def _within(self, policies: Policies) -> Split:
        """The shortest split that is found to fit in memory."""

        def over(split: Split) -> list[float]:
            memory = self._chunks(split, policies)[1]
            return [max(0.0, one.peak_bytes - memory.budget) for one in memory.stages]

        own, (step, places) = self._balanced(policies), self._step(policies)
        if self.searches:
            return search_within(step, own, over, places)
        return balance_within(own, self._job(policies).slowest, over, step.stages_of_part)

    @property
    def searches(self) -> bool:
        """Whether the light model orders the splits of this schedule."""
        return len(self.chunk_map.part_of) > 1 and self.chunk_map.copies == 1

    def _shortest(self, policies: Policies) -> Split:
        """The split with the shortest step, whatever its memory."""
        own = self._balanced(policies)
        if not self.searches:
            return own
        costs, places = self._by_part(policies)
        return shortest(costs, self.scenario.parallel.schedule, self.shape, own, places)

    def _balanced(self, policies: Policies) -> Split:
        """The split that is balanced by time, under the policy of most parts."""
        return self._job(policies).balanced()

    def _job(self, policies: Policies) -> Job:
        """The times of layers under the policy of most parts."""
        layers = mean_layers(self.scenario, max(policies, key=policies.count))
        weighed = weigh(layers, self.scenario, self.placed)
        embedding, blocks, heads = ends(weighed, self.scenario.model.layers)
        head = tuple(map(sum, zip(*heads, strict=True)))
        mirrored = self.chunk_map.copies > 1
        return job_of(blocks, embedding, head, *self.shape[:2], mirrored=mirrored)

    def _costs(self, policy: MemorySpec) -> StepCosts:
        layers = mean_layers(self.scenario, policy)
        return step_costs(layers, self.scenario, self.mesh, self.placed)

    def _cut(self, split: Split, policy: MemorySpec) -> tuple[Chunk, ...]:
        stacks = (layers_of(self.scenario, policy),) * len(self.chunk_map.part_of)
        return cut(self.scenario, stacks, split)


def kernels_take_time(weighed: Sequence[Busy]) -> list[Problem]:
    """Time is counted in whole nanoseconds, so layers, weighed in seconds, have to take some."""
    total = sum(times[KERNELS] for times in weighed)
    if total >= LEAST_SECONDS:
        return []
    message = (
        f"the kernels of a micro-batch take {total * 1e9:.3g} ns in all: too little, since time is "
        "counted in whole nanoseconds"
    )
    hint = "write the rates and the launch time of a real GPU, or a larger model"
    return [Problem("TW123", "cluster.node.gpu.bf16_dense", message, hint)]
