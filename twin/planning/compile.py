"""Scenario to Plan, the one entry point: ranks, chunks with layers, placements, micro-batches,
memory, warnings.

Layers are split over chunks as written in `parallel.layers`, or so that a step is shortest
(`twin.planning.split_search`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TypeAlias

from twin.errors import Problem, ScenarioError
from twin.planning.caveats import caveats
from twin.planning.chunks import chunk_map_of, cut, ends, layers_of, mean_layers
from twin.planning.feasibility import microbatches, problems
from twin.planning.layer_times import KERNELS, Scale
from twin.planning.memory import StageLedgers
from twin.planning.memory_caveats import memory_caveats
from twin.planning.mesh import lay_out, placements
from twin.planning.policies import Arrangement, PolicyChoice
from twin.planning.split_costs import step_costs
from twin.planning.split_search import (
    AGREE,
    DESCENTS,
    FAR,
    FARTHER,
    Split,
    first_splits,
    moved_splits,
    search,
    search_within,
    shortest,
    step_length,
    usual_splits,
)
from twin.planning.stages import Busy, Job, job_of
from twin.planning.step_length import Observed, StepCosts, StepLength
from twin.planning.types import Chunk, Memory, Plan
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec

Policies: TypeAlias = tuple[MemorySpec, ...]
"""The memory policy of every chunk."""

HOPELESS = 1.25
"""OURS: of what all stages have, what a balanced split may need at most if another is sought."""
LEAST_SECONDS = 1e-6
"""What the kernels of a micro-batch take at least, over all layers: a thousand times the engine's
nanosecond, and less than one launch of a kernel takes on any GPU."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A run that a scenario leaves open."""

    plan: Plan
    odd: bool = False
    """Whether its split is neither balanced nor even, so that its step has to be worth it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the light model says of the split that is written, or of the usual ones: about the
    shortest step of those that fit, of all where none does."""

    step_ns: int
    fits: bool
    hopeless: bool
    """Whether no split will fit, whatever is tried."""


def drafts(scenario: Scenario) -> tuple[Draft, ...]:
    """The runs that a scenario leaves open, the best by the light model first: several where the
    split of layers is left out, or where stages choose their memory policies.

    Raises:
        ScenarioError: the layout is impossible; carries every problem, each with its nearest fix.
    """
    return possible(scenario).drafts()


def fits(scenario: Scenario) -> bool:
    """Whether the runs that a scenario leaves open fit in memory; quicker than `drafts`, since
    where an even split does, or none can, no other is sought. Raises `ScenarioError` as `drafts`
    does."""
    return possible(scenario).fits()


def outlook(scenario: Scenario) -> Outlook:
    """What a search sees of a layout before it plans it; raises as `drafts` does."""
    return possible(scenario).outlook()


def possible(scenario: Scenario) -> Arranger:
    """What arranges the layers of a layout that is possible; raises as `drafts` does."""
    if found := problems(scenario):
        raise ScenarioError(scenario.locate(found))
    made = Arranger(scenario)
    if found := kernels_take_time(made.weighed(scenario.memory.as_everywhere)):
        raise ScenarioError(scenario.locate(found))
    return made


def _hopeless(memory: Memory) -> bool:
    """Whether the stages of a balanced split need so much more than they have that no split will
    fit."""
    needed = sum(one.peak_bytes for one in memory.stages)
    return needed > HOPELESS * memory.budget * len(memory.stages)


class Arranger:
    """Layers and memory policies of a possible layout on their way to chunks."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.mesh, count = scenario, lay_out(scenario), microbatches(scenario)
        self.placed = placements(self.mesh, scenario.cluster.fabric.nodes_per_leaf)
        self.scale = Scale.of(scenario, self.placed)
        self.chunk_map = chunk_map_of(scenario)
        self.ledgers = StageLedgers(scenario, self.mesh, count)
        self.shape = self.mesh.pipeline, scenario.parallel.virtual, count
        self._weighed: dict[MemorySpec, list[Busy]] = {}
        self._costs: dict[MemorySpec, StepCosts] = {}

    @cached_property
    def written(self) -> Split | None:
        """The split that is written; behind an encoder on GPUs of its own, which holds no layers,
        the balanced one."""
        images, own = self.scenario.train.images, self.scenario.parallel.layers
        if own is not None or images is None or images.gpus is None:
            return own
        weighed = self.weighed(self.scenario.memory.as_everywhere)
        embedding, blocks, heads = ends(weighed, self.scenario.model.layers)
        head = tuple(map(sum, zip(*heads, strict=True)))
        none = (0.0,) * len(embedding)
        return 0, *job_of(blocks, none, head, self.shape[0] - 1, 1).balanced()

    def drafts(self, chosen: Split | None = None) -> tuple[Draft, ...]:
        """The runs that are open, the best by the light model first; with a split that is `chosen`,
        the one that has it."""
        return tuple(
            Draft(self._plan(chunks, memory), odd) for chunks, memory, odd in self.arranged(chosen)
        )

    def _plan(self, chunks: tuple[Chunk, ...], memory: Memory) -> Plan:
        scenario = self.scenario
        return Plan(
            scenario=scenario,
            mesh=self.mesh,
            chunks=chunks,
            microbatches=self.shape[2],
            placements=self.placed,
            memory=memory,
            warnings=(
                *caveats(scenario, self.mesh, chunks),
                *memory_caveats(scenario, chunks, memory),
            ),
        )

    def arranged(self, chosen: Split | None) -> Iterator[tuple[tuple[Chunk, ...], Memory, bool]]:
        """The chunks and their ledger, of each draft, and whether its split is odd."""
        if isinstance(self.scenario.memory.by_stage, str):
            for found in self._by_stage():
                yield found.chunks, found.memory, False
            return
        policies = self.scenario.memory.of_chunks(self.chunk_map.stage_of)
        written = chosen or self.written
        usual = [written] if written else usual_splits(self.balanced(policies))
        for split in usual if written else self.splits_for(policies):
            yield *self._chunks(split, policies), split not in usual

    def fits(self) -> bool:
        """Whether the first of `arranged` fits, and so all of them do."""
        if isinstance(self.scenario.memory.by_stage, str) or self.written:
            return next(self.arranged(None))[1].fits
        policies = self.scenario.memory.of_chunks(self.chunk_map.stage_of)
        usual = [self._chunks(one, policies)[1] for one in usual_splits(self.balanced(policies))]
        if any(memory.fits for memory in usual):
            return True
        if self.chunk_map.parts == 1 or _hopeless(usual[0]):
            return False
        sought = (find(policies) for find in (self._within, self._shortest))
        return any(self._chunks(split, policies)[1].fits for split in sought)

    def outlook(self) -> Outlook:
        """As `outlook` says."""
        policies = self.scenario.memory.of_chunks(self.chunk_map.stage_of)
        written = self.written
        step, places = self.step(policies)
        splits = [written] if written else usual_splits(self.balanced(policies))
        lengths = sorted(zip(step.of(splits, places), splits, strict=True))
        for length, split in lengths:
            if self._chunks(split, policies)[1].fits:
                return Outlook(length, fits=True, hopeless=False)
        needed = self._chunks(splits[0], policies)[1]
        return Outlook(lengths[0][0], fits=False, hopeless=_hopeless(needed))

    def splits_for(self, policies: Policies) -> list[Split]:
        """The splits between which events decide: that with which a step is shortest by the light
        model, the balanced one and the even ones, as far as they fit in memory and the light model
        is not sure that they take longer. Where the shortest does not fit, the shortest that is
        found to fit joins; where none fits, the balanced one is all."""
        own = self.balanced(policies)
        if self.chunk_map.parts == 1 or _hopeless(self._chunks(own, policies)[1]):
            return [own]
        found = self._shortest(policies)
        known = dict.fromkeys((found, *usual_splits(own)))
        if not self._chunks(found, policies)[1].fits:
            known |= {self._within(policies): None}
        return self._near(list(known), policies) or [own]

    def _near(self, splits: Sequence[Split], policies: Policies) -> list[Split]:
        """Splits that fit, the shortest by the light model first, and none that is surely
        longer."""
        step, places = self.step(policies)
        lengths = step.of(splits, places)
        far = FARTHER if step.copies_beside_pairs(places) else FAR
        found: list[Split] = []
        least = inf
        for length, place in sorted(zip(lengths, range(len(splits)), strict=True)):
            if length > (1 + far) * least:
                break
            if self._chunks(splits[place], policies)[1].fits:
                least = min(least, length)
                found.append(splits[place])
        return found

    def corrected(self, split: Split, step_ns: int, seen: Observed) -> Split | None:
        """The split with which a step is shortest by the light model as events correct it, that
        have played the step with another split; none where they agree, or where that split does not
        fit."""
        policies = self.scenario.memory.of_chunks(self.chunk_map.stage_of)
        step, places = self.step(policies)
        (length,) = step.of([split], places)
        if abs(step_ns - length) <= AGREE * length:
            return None
        model = step.corrected(split, places, seen)
        found, *_ = search(model, self.balanced(policies), places, DESCENTS)
        return found if self._chunks(found, policies)[1].fits else None

    def _by_stage(self) -> list[Arrangement]:
        """Policies that stages choose, then the best uniform ones; and the fastest, which may fit
        with another split."""
        memory, written = self.scenario.memory, self.written
        choice = PolicyChoice(memory, self.costs, self._cut, self.ledgers, self.chunk_map)
        best = self._chosen(choice)
        if best.worth[0]:  # so much memory cannot be left free
            choice.spare = 0.0
            best = self._chosen(choice)
        found = [best]
        for place in dict.fromkeys((*choice.uniform(best.split), choice.fastest)):
            policies = self._everywhere(choice.tried[place])
            for split in [written] if written else self.splits_for(policies):
                other = choice.everywhere(split, place)
                if not other.worth[0] and other.chunks != best.chunks:
                    found.append(other)
        return found

    def _chosen(self, choice: PolicyChoice) -> Arrangement:
        """Policies that stages choose, of the splits that the written policy and the fastest one
        give, and of a split that is sought for what they chose."""
        scenario, written = self.scenario, self.written
        if written is not None:
            return choice.arranged(written)
        fastest = choice.tried[choice.fastest]
        splits: dict[Split, None] = {}
        for policy in (scenario.memory.as_everywhere, fastest):
            own = self._everywhere(policy)
            splits |= dict.fromkeys((self.splits_for(own)[0], self._shortest(own)))
        best = min(map(choice.arranged, splits), key=lambda one: one.worth)
        if best.worth[0]:
            again = self._within(self._everywhere(choice.tightest))
        else:
            again = self._shortest(choice.policies(best))
        return min((best, choice.arranged(again)), key=lambda one: one.worth)

    def _everywhere(self, policy: MemorySpec) -> Policies:
        return (policy,) * len(self.chunk_map.part_of)

    def _chunks(self, split: Split, policies: Policies) -> tuple[tuple[Chunk, ...], Memory]:
        """The chunks of a split, and their ledger."""
        stacks = {policy: layers_of(self.scenario, policy) for policy in dict.fromkeys(policies)}
        chunks = cut(self.scenario, [stacks[policy] for policy in policies], split)
        return chunks, self.ledgers.of(chunks)

    def step(self, policies: Policies) -> tuple[StepLength, tuple[int, ...]]:
        """The light model of the step, and the places of parts' policies in it."""
        costs, places = self._by_part(policies)
        return step_length(costs, self.scenario.parallel.schedule, self.shape), places

    def _by_part(self, policies: Policies) -> tuple[tuple[StepCosts, ...], tuple[int, ...]]:
        """Costs under each policy, and the place of each part's among them."""
        tried = tuple(dict.fromkeys(policies))
        of_part = dict(zip(self.chunk_map.part_of, map(tried.index, policies), strict=True))
        return tuple(map(self.costs, tried)), tuple(of_part[part] for part in sorted(of_part))

    def _within(self, policies: Policies) -> Split:
        """The shortest split that is found to fit in memory."""

        def over(split: Split) -> list[float]:
            memory = self._chunks(split, policies)[1]
            return [max(0.0, one.peak_bytes - memory.budget) for one in memory.stages]

        own, (step, places) = self.balanced(policies), self.step(policies)
        return search_within(step, own, over, places)

    def _shortest(self, policies: Policies) -> Split:
        """The split with the shortest step, whatever its memory."""
        own = self.balanced(policies)
        if self.chunk_map.parts == 1:
            return own
        costs, places = self._by_part(policies)
        return shortest(costs, self.scenario.parallel.schedule, self.shape, own, places)

    def balanced(self, policies: Policies) -> Split:
        """The split that is balanced by time, under the policy of most parts."""
        return self.job(policies).balanced()

    def job(self, policies: Policies) -> Job:
        """The times of layers under the policy of most parts."""
        weighed = self.weighed(max(policies, key=policies.count))
        embedding, blocks, heads = ends(weighed, self.scenario.model.layers)
        head = tuple(map(sum, zip(*heads, strict=True)))
        mirrored = self.chunk_map.copies > 1
        return job_of(blocks, embedding, head, *self.shape[:2], mirrored=mirrored)

    def weighed(self, policy: MemorySpec) -> list[Busy]:
        """The times of every layer under a policy."""
        if policy not in self._weighed:
            self._weighed[policy] = self.scale.weigh(mean_layers(self.scenario, policy))
        return self._weighed[policy]

    def costs(self, policy: MemorySpec) -> StepCosts:
        """The costs of a step for the light model, under a policy."""
        if policy not in self._costs:
            layers = mean_layers(self.scenario, policy)
            self._costs[policy] = step_costs(layers, self.scale, self.mesh)
        return self._costs[policy]

    def _cut(self, split: Split, policy: MemorySpec) -> tuple[Chunk, ...]:
        stacks = (layers_of(self.scenario, policy),) * len(self.chunk_map.part_of)
        return cut(self.scenario, stacks, split)


class SplitRanking:
    """Splits of a possible layout, for a search that simulates them: those first whose step is
    shortest by the light model."""

    def __init__(self, scenario: Scenario) -> None:
        self._own = Arranger(scenario)
        self._policies = scenario.memory.of_chunks(self._own.chunk_map.stage_of)
        self._light, self._places = self._own.step(self._policies)

    @property
    def usual(self) -> list[Split]:
        """The balanced split and the even ones."""
        return usual_splits(self._own.balanced(self._policies))

    def begin(self) -> list[Split]:
        """The split that is written, those between which a plan chooses, the even ones, the
        balanced one, and the best of those that a search begins with."""
        written = self._own.written
        drafts, usual = self._own.splits_for(self._policies), self.usual
        first = self._ranked(first_splits(self._light, usual[0]))
        return list(dict.fromkeys((*([written] if written else []), *drafts, *usual, *first)))

    def around(self, split: Split) -> list[Split]:
        """Splits after one move of a layer, where chunks are few also after two."""
        return self._ranked(moved_splits(self._light, split, self._places))

    def _ranked(self, splits: Sequence[Split]) -> list[Split]:
        lengths = self._light(splits, self._places) if splits else []
        return [split for _, split in sorted(zip(lengths, splits, strict=True))]


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
