"""Edits of a plan: other values of one field of its layout or memory policy, each with what it
takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final, get_args

from twin.answers.nearest import document, replaced, written
from twin.explore.search.space import Space, runs_chunks, space
from twin.loading import scenario_hash
from twin.planning.launched import launched
from twin.planning.mesh import degrees, in_pods, lay_out, neighbours_share, placements, stages_agree
from twin.planning.types import Mesh
from twin.scenario import Scenario
from twin.spec.rank_order import AXES

CHUNKS: Final = (1, 2, 3, 4, 6, 8)
"""Chunks per stage that are tried: OURS."""
DISPATCHERS: Final = ("alltoall", "deepep", "hybridep")
"""Exchanges of experts that trainers ship."""
COSTS: Final[Mapping[str, str]] = {
    "chunks per stage": "new checkpoints",
    "micro-batch": "a flag",
    "schedule": "a trainer that has it",
    "recomputation": "a flag",
    "FP8 storage": "a flag; precision",
    "offload": "a flag",
    "memory by stage": "flags for each stage",
    "expert degree": "new checkpoints",
    "dispatcher": "a library",
    "overlap": "a flag",
    "split of layers": "new checkpoints",
    "placement": "a flag, or another order of hosts",
    "order of passes": "a trainer that takes one",
}
"""What an edit of each field takes to do, beside memory."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Another value of one field, or of two."""

    fields: tuple[str, ...]
    """Keys of `COSTS`."""
    overrides: Mapping[str, Any]
    """Dotted path to plain data."""

    @property
    def words(self) -> str:
        """The edit as one would type it."""
        return " ".join(f"--set '{path}={_typed(it)}'" for path, it in self.overrides.items())

    @property
    def costs(self) -> str:
        """What it costs to do."""
        return "; ".join(dict.fromkeys(COSTS[name] for name in self.fields))

    @property
    def adapts(self) -> bool:
        """Whether stages choose what they need, whatever memory another edit takes."""
        return self.overrides.get("memory.by_stage") == "auto"

    def then(self, other: Edit) -> Edit:
        """This edit, and another on top of it."""
        fields = dict.fromkeys((*self.fields, *other.fields))
        return Edit(tuple(fields), {**self.overrides, **other.overrides})

    def joined(self, other: Edit) -> Edit | None:
        """Both edits together; None where they are of one field, or contradict each other."""
        same = self.overrides.keys() & other.overrides.keys()
        if {*self.fields} & {*other.fields} or any(
            self.overrides[path] != other.overrides[path] for path in same
        ):
            return None
        return Edit((*self.fields, *other.fields), {**self.overrides, **other.overrides})


def _typed(value: Any) -> str:
    """A value as one would type it; of a found order the name of its file."""
    found = isinstance(value, dict) and "orders" in value
    return "FOUND.schedule.yaml" if found else written(value)


def edits(scenario: Scenario) -> Iterator[Edit]:
    """Every edit that is tried, those first that gain most as a rule."""
    base, known = document(scenario), {scenario_hash(scenario)}
    for edit in _edits(scenario):
        try:
            made = replaced(base, edit.overrides)
        except ValueError:
            continue
        if (name := scenario_hash(made)) not in known and launched(made) is made:
            known.add(name)
            yield edit


def _edits(scenario: Scenario) -> Iterator[Edit]:
    """The edits of each field, those first that gain most as a rule."""
    around = space(scenario, (scenario.cluster.nodes,))
    yield from _orders(scenario, around)
    yield from _policies(scenario, around)
    if scenario.model.moe is not None:
        for degree in around.expert:
            yield Edit(("expert degree",), {"parallel.expert": degree})
        for dispatcher in DISPATCHERS:
            yield Edit(("dispatcher",), {"parallel.dispatcher": dispatcher})
    yield from _overlaps(scenario)
    for split in _splits(scenario):
        yield Edit(("split of layers",), {"parallel.layers": split})
    for order in rank_orders(scenario):
        yield Edit(("placement",), {"parallel.order": list(order)})


def _orders(scenario: Scenario, around: Space) -> Iterator[Edit]:
    """Chunks, schedules and micro-batches."""
    parallel = scenario.parallel
    # A split of layers, and policies by stage, were written for another number of chunks.
    anew: dict[str, Any] = {} if parallel.layers is None else {"parallel.layers": None}
    anew |= {} if scenario.memory.written is None else {"memory.by_stage": "auto"}
    for chunks in CHUNKS:
        yield Edit(("chunks per stage",), {"parallel.virtual": chunks, **anew})
    for schedule in (*_settings(scenario), *around.schedule):
        changed: dict[str, Any] = {"parallel.schedule": schedule.model_dump(mode="json")}
        if not runs_chunks(schedule, parallel.virtual):
            chunks = next(one for one in CHUNKS if runs_chunks(schedule, one))
            changed |= {"parallel.virtual": chunks, **anew}
        yield Edit(("schedule",), changed)
    for size in (parallel.micro_batch * 2, parallel.micro_batch // 2):
        if size:
            yield Edit(("micro-batch",), {"parallel.micro_batch": size})


def _policies(scenario: Scenario, around: Space) -> Iterator[Edit]:
    """Memory policies: each part left out, and those of a search."""
    names = (("recompute", "recomputation"), ("fp8_store", "FP8 storage"), ("offload", "offload"))
    for key, name in names:
        own = getattr(scenario.memory, key)
        others = [tuple(it for it in own if it != one) for one in own]
        others += [getattr(policy, key) for policy in around.memory]
        for value in dict.fromkeys(((), *others)):
            yield Edit((name,), {f"memory.{key}": list(value)})
    yield from stage_policies(scenario, around)


def stage_policies(scenario: Scenario, around: Space | None = None) -> Iterator[Edit]:
    """Each stage does as much as its memory asks for: of what all do now, or of all that is
    known."""
    if scenario.parallel.pipeline == 1:
        return
    around = around or space(scenario, (scenario.cluster.nodes,))
    chosen: dict[str, Any] = {"memory.by_stage": "auto"}
    yield Edit(("memory by stage",), chosen)
    every = (scenario.memory, *around.memory)
    allowed = {
        f"memory.{key}": list(dict.fromkeys(name for one in every for name in getattr(one, key)))
        for key in ("recompute", "offload")
    }
    yield Edit(("memory by stage",), chosen | allowed)


def _overlaps(scenario: Scenario) -> Iterator[Edit]:
    """What runs beside kernels, or not."""
    parallel = scenario.parallel
    for key in ("overlap_shared_experts", "overlap_grad_reduce", "overlap_param_gather"):
        yield Edit(("overlap",), {f"parallel.{key}": not getattr(parallel, key)})
    beside = get_args(type(parallel).model_fields["overlap_tensor"].annotation)
    for value in beside if parallel.tensor > 1 else ():
        yield Edit(("overlap",), {"parallel.overlap_tensor": value})


def _settings(scenario: Scenario) -> Iterator[Any]:
    """The scenario's schedule with one setting changed."""
    own = scenario.parallel.schedule
    for name, value in own.model_dump(exclude={"kind"}).items():
        if isinstance(value, bool) or value in (0, 1):
            yield own.model_copy(update={name: type(value)(not value)})


def _splits(scenario: Scenario) -> Iterator[list[int] | None]:
    """By time, and as even as can be, those left over on the first or on the last chunks."""
    parallel, layers = scenario.parallel, scenario.model.layers
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).parts
    each, more = divmod(layers, parts)
    yield None
    yield [*[each + 1] * more, *[each] * (parts - more)]
    yield [*[each] * (parts - more), *[each + 1] * more]


def rank_orders(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """An order of axes for each other way to place groups and neighbouring stages on nodes and
    leaves. Orders that spread tensor ranks over more nodes are left out."""
    mesh, leaf = lay_out(scenario), scenario.cluster.fabric.nodes_per_leaf
    grids = degrees(mesh, "dense"), degrees(mesh, "experts")
    if mesh.ranks != scenario.cluster.gpus or mesh.expert_replicas < 1:
        return
    alone = [axis for axis in AXES if all(grid[axis] == 1 for grid in grids)]
    # The first order of each kind has lone axes where Megatron-LM has them.
    kinds = {tuple(one for one in order if one not in alone): order for order in _ORDERS}
    own = placements(mesh, leaf)
    seen = {_placed(mesh, leaf)}
    for order in kinds.values():
        other = replace(mesh, order=order)
        if scenario.model.moe is not None and not stages_agree(other):
            continue
        found = placements(other, leaf)
        near = all(found[name].per_node >= own[name].per_node for name in _TENSOR)
        if near and (placed := _placed(other, leaf)) not in seen:
            seen.add(placed)
            yield order


_ORDERS: Final = tuple(permutations(AXES))[::-1]
_TENSOR: Final = ("tensor", "expert_tensor")


def _placed(mesh: Mesh, leaf: int) -> tuple[object, ...]:
    """What links see of an order of axes."""
    groups = tuple(sorted(placements(mesh, leaf).items(), key=lambda one: one[0]))
    return groups, neighbours_share(mesh), neighbours_share(in_pods(mesh, leaf))
