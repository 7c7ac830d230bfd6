"""Which memory policy each chunk has where `memory.by_stage` is `auto`: no stage recomputes, packs
or sends to the host more than its own memory asks for.

A stage may do any part of what `memory` lists. Policies of one choice of offload form a ladder: the
fastest first, each with fewer kept bytes than those before. A stage takes the first policy of a
ladder that fits, else another that all such stages share. Then its chunks climb down by themselves,
the latest first, because late chunks have the fewest micro-batches in flight. Chunks of a stage
stay alike where the software has one policy per process. Stages share no memory, so each chooses
alone; mirrored stages, as of DualPipe, hold the same parts and choose together.

The light model of the step (`twin.planning.step_length`) judges what comes out. A choice under
which no pass takes longer than under the best uniform policy that fits is safe. Any other choice
has to win over it by the model's usual error. Events then judge between what is left and the best
uniform policies (`twin.engine.plan`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, islice
from typing import Final, TypeAlias

from twin.planning.footprint import kept_bytes
from twin.planning.layer_times import FROM_HOST, HOST, PAIRED, PASSES, SOCKET, TO_HOST, WAITED
from twin.planning.memory import StageLedgers
from twin.planning.split_search import Split, surely_shorter
from twin.planning.stages import evenly
from twin.planning.step_length import LayerCost, StepCosts, StepLength
from twin.planning.types import Chunk, Memory
from twin.schedules.base import ChunkMap
from twin.spec.memory import MemorySpec

MOST_NAMES: Final = 6
"""OURS: names of `recompute` and `fp8_store` of which all combinations are tried; of more, those
that free most bytes per second join one by one."""

SPARE: Final = 0.03
"""OURS: share of a GPU's memory that is left free by who fills it by choice, where that much can be
left. Predicted peaks miss measured ones by 2.8 % in the median (docs/validation.md). With less, a
plan may not fit on the machine; with more, stages recompute what they need not."""

UNIFORM: Final = 3
"""OURS: uniform policies that events judge beside the found one, the shortest by the light model.
With fewer, a found policy may be slower than a uniform one; with more, a plan takes longer."""

MOST_LIGHTENED: Final = 4
"""OURS: choices whose chunks climb down by themselves, beside the best uniform one."""

Places: TypeAlias = tuple[int, ...]
"""Of every part of the model, the place of its policy among all that are tried."""
Cutter: TypeAlias = Callable[[Split, MemorySpec], Sequence[Chunk]]
"""All chunks of a split under one policy."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Chunks with their policies, their ledger, and nanoseconds by the light model."""

    split: Split
    chunks: tuple[Chunk, ...]
    memory: Memory
    length: int
    busy: int
    """How long layers keep ranks busy with a micro-batch, all in all; to compare with others."""
    spare: float = 0.0
    """Bytes of each GPU to leave free."""

    @property
    def worth(self) -> tuple[float, int, int]:
        """What fits is better, then what is shorter, then what does less; of what does not fit,
        what lacks least."""
        memory = self.memory
        budget = memory.budget - self.spare
        over = sum(max(0.0, one.peak_bytes - budget) for one in memory.stages)
        return over + max(0.0, memory.host_per_node - memory.host_capacity), self.length, self.busy


class PolicyChoice:
    """The policies that stages choose from, and what each of them takes."""

    def __init__(
        self,
        memory: MemorySpec,
        costs: Callable[[MemorySpec], StepCosts],
        cutter: Cutter,
        ledgers: StageLedgers,
        chunk_map: ChunkMap,
    ) -> None:
        """Of a possible layout."""
        self.memory, self.costs_of, self.cutter = memory.as_everywhere, costs, cutter
        self.ledgers, self.chunk_map = ledgers, chunk_map
        self.spare = SPARE * ledgers.scenario.cluster.node.gpu.memory
        """Bytes of each GPU to leave free."""
        software = ledgers.scenario.software
        known = software is not None and software.runs is not None
        self.by_chunk = not known or memory.by_stage == "auto_by_chunk"
        """Whether chunks of a stage may differ: stacks whose options are known (`software.runs`)
        have one policy per process."""
        self._cuts: dict[tuple[Split, int], Sequence[Chunk]] = {}
        self.tried: list[MemorySpec] = []
        self.costs: list[StepCosts] = []
        self.ladders = self._ladders()
        """Of each choice of offload, the places of its policies, the fastest first."""

    def _ladders(self) -> tuple[Places, ...]:
        combined = tuple(self._combined())
        sent = self.memory.activations_on_host
        offloads = dict.fromkeys(((), *(sent[: n + 1] for n in range(len(sent)))))
        return tuple(self._ladder(combined, names) for names in offloads)

    @cached_property
    def _seconds(self) -> list[float]:
        """Of each policy, a forward and a backward through the model."""
        return [_seconds(costs) for costs in self.costs]

    @cached_property
    def step(self) -> StepLength:
        """The light model of the step under any of them."""
        scenario, mesh = self.ledgers.scenario, self.ledgers.mesh
        shape = mesh.pipeline, scenario.parallel.virtual, self.ledgers.microbatches
        return StepLength(self.costs, scenario.parallel.schedule, shape)

    @property
    def tightest(self) -> MemorySpec:
        """The policy with which the fullest stage of an even split has least."""
        scenario, parts = self.ledgers.scenario, self.chunk_map.parts
        split, everywhere = next(evenly(scenario.model.layers, parts)), range(parts)
        needs = [self._over(split, dict.fromkeys(everywhere, at)) for at in range(len(self.tried))]
        return self.tried[min(range(len(needs)), key=lambda at: (needs[at], -at))]

    @property
    def fastest(self) -> int:
        """The place of the policy that keeps most."""
        return self.ladders[0][0]

    def arranged(self, split: Split) -> Arrangement:
        """The best choice that is found for a split."""
        groups = self._groups()
        mixed = [
            self._mixed(split, groups, ladder, place)
            for ladder in self.ladders
            for place in range(len(self.tried))
        ]
        known = self._judged(split, (*self._same, *mixed))
        usual = min(self._same, key=lambda one: known[one].worth)
        ranked = sorted(known, key=lambda one: known[one].worth)
        bases = dict.fromkeys((usual, *ranked[:MOST_LIGHTENED]))
        known |= self._judged(
            split,
            [
                self._lightened(split, groups, ladder, base)
                for base in bases
                for ladder in self.ladders
            ],
        )
        best = min(known, key=lambda one: known[one].worth)
        own, other = known[best], known[usual]
        if other.worth[0] or surely_shorter(self.step, split, best, own.length, other.length):
            return own
        safe = [one for one in known if self._no_longer(one, usual)]
        return known[min(safe, key=lambda one: known[one].worth)]

    def uniform(self, split: Split) -> list[int]:
        """The shortest uniform policies that fit with a split, as places among those tried."""
        every = range(len(self.tried))
        rows = sorted(zip(self.step([split] * len(every), self._same), every, strict=True))
        fit = (at for length, at in rows if not self._of(split, self._same[at], length).worth[0])
        return list(islice(fit, UNIFORM))

    def everywhere(self, split: Split, place: int) -> Arrangement:
        """A split under one policy."""
        return self._judged(split, [self._same[place]])[self._same[place]]

    @cached_property
    def _same(self) -> list[Places]:
        return [(place,) * self.chunk_map.parts for place in range(len(self.tried))]

    def _judged(self, split: Split, choices: Iterable[Places]) -> dict[Places, Arrangement]:
        """Choices with their chunks, ledgers and steps."""
        every = list(dict.fromkeys(choices))
        lengths = self.step([split] * len(every), every)
        return {
            one: self._of(split, one, length) for one, length in zip(every, lengths, strict=True)
        }

    def _no_longer(self, some: Places, other: Places) -> bool:
        """Whether no part of a rank is busier in any pass of any layer."""
        passes = self.step.passes
        pairs = dict.fromkeys(zip(some, other, strict=True))
        return all((passes[one] <= passes[two]).all() for one, two in pairs)

    def policies(self, found: Arrangement) -> tuple[MemorySpec, ...]:
        """The policy of every chunk; of an empty chunk the first that was tried."""
        return tuple(one.layers[0].policy if one.layers else self.tried[0] for one in found.chunks)

    def _of(self, split: Split, places: Places, length: int) -> Arrangement:
        chunks = tuple(
            self._cut(split, places[part])[index]
            for index, part in enumerate(self.chunk_map.part_of)
        )
        shares = zip(split, places, strict=True)
        busy = round(1e9 * sum(layers * self._seconds[place] for layers, place in shares))
        return Arrangement(split, chunks, self.ledgers.of(chunks), length, busy, self.spare)

    def _cut(self, split: Split, place: int) -> Sequence[Chunk]:
        if (split, place) not in self._cuts:
            self._cuts[split, place] = self.cutter(split, self.tried[place])
        return self._cuts[split, place]

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """Parts of the model that share stages."""
        held: dict[int, set[int]] = {}
        for part, stage in zip(self.chunk_map.part_of, self.chunk_map.stage_of, strict=True):
            held.setdefault(stage, set()).add(part)
        return tuple(dict.fromkeys(tuple(sorted(parts)) for parts in held.values()))

    def _mixed(
        self, split: Split, groups: Sequence[Sequence[int]], ladder: Places, place: int
    ) -> Places:
        """Each group under the first policy of a ladder that fits, else under another."""
        of: dict[int, int] = {}
        for group in groups:
            own = self._first(ladder, lambda one, group=group: dict.fromkeys(group, one), split)
            of |= dict.fromkeys(group, place if own is None else own)
        return tuple(of[part] for part in sorted(of))

    def _lightened(
        self, split: Split, groups: Sequence[Sequence[int]], ladder: Places, base: Places
    ) -> Places:
        """A choice after each part took the first policy of a ladder for which the others of its
        group leave room, the latest part first; or after all parts of a stage did together."""
        of = dict(enumerate(base))
        for group in groups:
            own = {part: of[part] for part in group}
            alone = [(part,) for part in sorted(group, reverse=True)]
            for parts in alone if self.by_chunk else [tuple(group)]:
                slowest = max(self._seconds[own[part]] for part in parts)
                faster = [one for one in ladder if self._seconds[one] < slowest]

                def places(
                    one: int, own: dict[int, int] = own, parts: tuple[int, ...] = parts
                ) -> dict[int, int]:
                    return own | dict.fromkeys(parts, one)

                found = self._first(faster, places, split)
                own = own if found is None else places(found)
            of |= own
        return tuple(of[part] for part in sorted(of))

    def _first(
        self, ladder: Sequence[int], places: Callable[[int], Mapping[int, int]], split: Split
    ) -> int | None:
        """The first policy of a ladder with which a group fits; memory falls along it."""
        at = bisect_left(ladder, 1, key=lambda one: not self._over(split, places(one)))
        return ladder[at] if at < len(ladder) else None

    def _over(self, split: Split, places: Mapping[int, int]) -> float:
        """Bytes by which the fullest stage of a group exceeds its memory."""
        stage_of, part_of = self.chunk_map.stage_of, self.chunk_map.part_of
        own: dict[int, list[Chunk]] = {}
        for index, part in enumerate(part_of):
            if part in places:
                own.setdefault(stage_of[index], []).append(self._cut(split, places[part])[index])
        peaks = (self.ledgers.stage(s, held, len(part_of)).peak_bytes for s, held in own.items())
        return max(0.0, max(peaks) - self.ledgers.budget + self.spare)

    def _ladder(
        self, combined: Sequence[Mapping[str, tuple[str, ...]]], offload: tuple[str, ...]
    ) -> Places:
        """Policies with one choice of offload: each keeps less than all that are faster."""
        states = tuple(
            one for one in self.memory.offload if one not in self.memory.activations_on_host
        )
        rows: list[tuple[float, float, MemorySpec, StepCosts]] = []
        for lists in combined:
            policy = self.memory.model_copy(update={**lists, "offload": (*offload, *states)})
            costs = self.costs_of(policy)
            rows.append((_seconds(costs), self._kept(policy), policy, costs))
        found: list[int] = []
        least = float("inf")
        for _, kept, policy, costs in sorted(rows, key=lambda row: row[:2]):
            if kept < least:
                least = kept
                found.append(len(self.tried))
                self.tried.append(policy)
                self.costs.append(costs)
        return tuple(found)

    def _combined(self) -> Iterator[Mapping[str, tuple[str, ...]]]:
        """Parts of what `memory` computes again and stores in FP8."""
        own = self.memory.model_copy(update={"offload": ()})
        named = [("recompute", one) for one in own.recompute if one != "full"]
        named += [("fp8_store", one) for one in own.fp8_store]
        whole = self._kept(own.model_copy(update={"recompute": (), "fp8_store": ()}))
        useful = [one for one in named if self._kept(self._only(own, [one])) < whole]
        if len(useful) <= MOST_NAMES:
            sets = chain.from_iterable(combinations(useful, n) for n in range(len(useful) + 1))
        else:
            useful.sort(key=lambda one: self._price(own, one, whole))
            sets = (tuple(useful[:n]) for n in range(len(useful) + 1))
        yield from (_lists(own, one) for one in sets)
        if "full" in own.recompute:
            yield {"recompute": ("full",), "fp8_store": ()}

    def _only(self, own: MemorySpec, names: Sequence[tuple[str, str]]) -> MemorySpec:
        return own.model_copy(update=_lists(own, names))

    def _price(self, own: MemorySpec, name: tuple[str, str], whole: float) -> float:
        """Seconds for each byte that one name frees."""
        policy, nothing = self._only(own, [name]), self._only(own, [])
        more = _seconds(self.costs_of(policy)) - _seconds(self.costs_of(nothing))
        return more / (whole - self._kept(policy))

    def _kept(self, policy: MemorySpec) -> float:
        """Bytes that a micro-batch keeps in the whole model."""
        parts = self.chunk_map.parts
        split = (self.ledgers.scenario.model.layers, *[0] * (parts - 1))
        return sum(
            kept_bytes(layer, policy)
            for chunk in self.cutter(split, policy)
            for layer in chunk.layers
        )


def _lists(own: MemorySpec, names: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Some names as fields of a policy, in the order of `memory`."""
    return {
        field: tuple(one for one in getattr(own, field) if (field, one) in names)
        for field in ("recompute", "fp8_store")
    }


def _seconds(costs: StepCosts) -> float:
    """Seconds of a forward and a backward through all layers, each as long as its busiest part:
    kernels with exchanges, the host, or copies in either direction."""
    return sum(map(_busiest, (*costs.layers, *costs.behind)))


def _busiest(layer: LayerCost) -> float:
    forward, backward = (layer.passes[PASSES.index(way)] for way in "FB")
    busy = [a + b for a, b in zip(forward, backward, strict=True)]
    waited = busy[WAITED] + busy[PAIRED]
    return max(waited, busy[HOST], busy[TO_HOST], busy[FROM_HOST], busy[SOCKET])
