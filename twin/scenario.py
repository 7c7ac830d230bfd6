"""The roots of what a planner writes: a training run (`Scenario`) or a weight update
(`UpdateScenario`), with the axes (schedules, optimizers) whose members declare their own.
`twin.loading.load` makes one from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo

from twin import units
from twin.arch.ops import Dispatcher
from twin.collectives.base import Choice
from twin.errors import DEFAULT, FieldError, Origin, Problem
from twin.schedules.base import Schedule
from twin.sources import Ledger, Sourced
from twin.spec.axis import Axis
from twin.spec.base import Count, Exactly, Flag, Later, Once, Spec, Whole
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec
from twin.spec.cost import CostSpec
from twin.spec.data import DataSpec
from twin.spec.expect import FITS, Expectation
from twin.spec.goodput import GoodputSpec
from twin.spec.kpis import (
    ITERATION_KPIS,
    KPIS,
    OF_A_SITE,
    OF_FAILURES,
    ROLLOUT_KPIS,
    UPDATE_KPIS,
    Kpi,
)
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec
from twin.spec.phases import Day, LengthSpec
from twin.spec.rank_order import AXES, RankOrder
from twin.spec.rollout import RlSpec
from twin.spec.software import SoftwareSpec
from twin.spec.sweep import SweepSpec
from twin.spec.weight_update import WeightUpdateSpec
from twin.train import TrainSpec

T = TypeVar("T")


class ParallelSpec(Spec):
    """How the work is cut over ranks. Data parallelism is what remains: GPUs / (tensor x context x
    pipeline). The experts of a stage have a grid of their own over the same ranks: expert_tensor x
    expert, and what remains holds replicas."""

    pipeline: Count = 1
    """pipeline stages"""
    virtual: Count = 1
    """chunks per stage"""
    expert: Count = 1
    """ranks that share one set of experts"""
    tensor: Count = 1
    """ranks that share each matrix"""
    expert_tensor: Count = 1
    """ranks that share each matrix of an expert"""
    context: Count = 1
    """ranks that share each sequence"""
    context_heads: Once = 1
    """neighbouring context ranks that exchange tokens for heads around attention (Ulysses;
    Megatron-LM's a2a, a2a+p2p); only ranks of different such groups exchange keys and values"""
    context_ring: Later = False
    """keys and values go round a ring beside attention kernels (Megatron-LM's p2p); false: they are
    gathered before (Llama 3)"""
    zero: Annotated[Literal[0, 1, 2, 3], Exactly] = 1
    """sharded over data and context ranks: 1 optimizer state, 2 also gradients, 3 also parameters
    (FSDP)"""
    shard_copies: Once = 1
    """copies of what zero shards, each over neighbours, that sum their gradients (hybrid sharding:
    FSDP's dp_replicate, Megatron-LM's num-distributed-optimizer-instances)"""
    reshard_after_forward: Flag = True
    """zero 3: free gathered parameters after forward and gather them again in backward; false keeps
    them until then"""
    micro_batch: Count = 1
    """sequences per micro-batch"""
    sequence_parallel: Flag = False
    """norms and dropouts split over the tensor ranks"""
    schedule: Annotated[Schedule, Axis("twin.schedules")]
    """the order in which stages run their passes"""
    dispatcher: Dispatcher = "alltoall"
    """how tokens reach experts: alltoall sends a copy per chosen expert, deepep one per node,
    passed on over NVLink by its SMs; hybridep as deepep, by copy engines of the SMs, and orders
    tokens by expert itself; allgather brings all tokens to every rank (Megatron-LM's allgather);
    einsum fills train.expert_capacity places per expert by products with a mask (GShard,
    DeepSpeed); padded is alltoall by indexing, with rows padded for grouped products
    (torchtitan); in loop each expert by itself picks its rows (Hugging Face's mixtures before
    transformers 5)"""
    overlap_shared_experts: Flag = True
    """shared experts run while tokens are on their way to routed ones, as with Megatron-LM's
    --moe-shared-expert-overlap; false: once these have come"""
    collectives: Choice = "ring"
    """how tensors are reduced, gathered and broadcast: by rings, double binary trees, hierarchical
    (inside nodes, then across), nvls (NVSwitches add up), switches (those of the fabric do); auto:
    the fastest on idle links for each. Rings where an algorithm has no such collective"""
    overlap_tensor: Literal["none", "bulk", "pieces"] = "none"
    """tensor ranks' collectives beside products: bulk sums gradients of inputs beside those of
    weights, as Megatron-LM always does; pieces also sends each piece of a product while another is
    multiplied, as Transformer Engine's userbuffers (--tp-comm-overlap) and PyTorch's async tensor
    parallelism, and needs sequence_parallel"""
    sequence_copies: Flag = False
    """sequence_parallel as PyTorch's DTensor does it, batch before sequence: what is gathered is
    copied into order, and so is what is summed, before"""
    overlap_grad_reduce: Flag = True
    """zero 0 and 1: reduce gradients of a chunk as soon as its last backward pass has made them, by
    bucket on a first stage of one chunk; false: behind all passes of the rank"""
    overlap_param_gather: Flag = False
    """zero 1 and 2: gather new weights under the first forward passes, by bucket on a first stage
    of one chunk"""
    bucket_size: Count | None = None
    """parameters of a bucket, in whole layers; null: 40 million, or a million for each data rank if
    that is more, as in Megatron-LM; PyTorch's DDP has 25 MB, DeepSpeed 500 million"""
    layers: tuple[Whole, ...] | None = None
    """layers per chunk, chunk-major; null: split for the shortest step"""
    order: RankOrder = AXES
    """axes over ranks, fastest first"""


Kind: TypeAlias = tuple[str, tuple[Kpi, ...]]
"""What a scenario is, in words, and the key figures that it has."""


def _run_kind(rl: Any) -> Kind:
    """What a scenario of training is, by its section `rl`."""
    if rl is None:
        return "a training run", KPIS
    if not isinstance(rl, RlSpec):
        return "a training run", (*KPIS, *ROLLOUT_KPIS, *ITERATION_KPIS)
    if rl.iteration is None:
        return "a scenario of rollouts alone", ROLLOUT_KPIS
    return "an iteration of reinforcement learning", ITERATION_KPIS


def _refuse_strange(figure: str, kind: Kind, rl: Any) -> None:
    """Raise what is wrong with a figure that such a scenario does not have."""
    what, kpis = kind
    known = (FITS, *(kpi.key for kpi in kpis))
    if figure in known:
        return
    if rl is not ... and figure in (kpi.key for kpi in ITERATION_KPIS):
        message = "there is no iteration without a section `rl.iteration`"
        raise FieldError("TW053", message, "add it, as kimi-k2-rl-256xh800 has it")
    message = f"{what} has no `{figure}`"
    raise FieldError("TW152", message, f"write one of: {', '.join(known)}")


def _expected_of(kind_of: Callable[[Any], Kind]) -> AfterValidator:
    """Refuses to expect a figure that such a scenario does not have, or a cost without a price.
    `kind_of` takes the section `rl`, or `...` where it is wrong, which is told by itself."""

    def check(expectation: Expectation, info: ValidationInfo) -> Expectation:
        rl = info.data.get("rl", ...)
        _refuse_strange(expectation.figure, kind_of(rl), rl)
        cost: CostSpec | None = info.data.get("cost")
        wrong_cost = "cost" not in info.data  # told by itself
        is_cost = expectation.figure.startswith("cost_usd")
        if is_cost and not wrong_cost and not (cost and cost.priced):
            message = "the cost is unknown without a price"
            raise FieldError("TW053", message, "add `cost: {gpu_hour: 2.0USD}`, with your price")
        if expectation.figure in OF_A_SITE and not wrong_cost and not (cost and cost.site):
            message = "energy is unknown without the site at which the cluster stands"
            fix = "add `site: us-average` to `cost`; `twin catalog sites` lists them"
            raise FieldError("TW053", message, fix)
        if expectation.figure in OF_FAILURES and info.data.get("goodput", ...) is None:
            message = "what failures cost is unknown without a section `goodput`"
            raise FieldError("TW053", message, "add `goodput:`, as llama-3-405b-16384xh100 has it")
        return expectation

    return AfterValidator(check)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the values of a scenario were written and where its catalog numbers come from.

    Nothing here takes part in comparisons: the same scenario from another file is the same.
    """

    values: Mapping[str, Origin] = field(default_factory=dict[str, Origin], compare=False)
    """Origin of every written leaf, by dotted path."""
    keys: Mapping[str, Origin] = field(default_factory=dict[str, Origin], compare=False)
    """Origin of the key of every written leaf and section, by dotted path."""
    ledger: Ledger = field(default_factory=dict[str, Sourced], compare=False)


class Root(Spec):
    """What every scenario has, whatever happens in it: a model, a cluster, and the places where its
    values were written. Catalog names are replaced by their parts."""

    section: ClassVar[str] = ""
    """The section that makes a file a scenario of this class; empty: none of the others' does."""

    schema_version: Annotated[Literal[1], Exactly] = Field(alias="schema")
    """version of this format"""
    name: str
    """what reports call this run"""
    model: ModelSpec
    cluster: ClusterSpec

    _provenance: Provenance = PrivateAttr(default=Provenance())

    def model_post_init(self, context: Any) -> None:
        """Keep the provenance that the loader passes as validation context."""
        if isinstance(context, Provenance):
            self._provenance = context

    @property
    def software_assumed(self) -> bool:
        """Whether the software is the typical one, because nobody named any."""
        return False

    @property
    def ledger(self) -> Ledger:
        """Where the numbers of the model, the hardware and the calibration come from, by path."""
        return self._provenance.ledger

    def origin(self, path: str) -> Origin:
        """Where the value at a dotted path was written; `DEFAULT` where nobody wrote it."""
        known = self._provenance
        return known.values.get(path) or known.keys.get(path) or DEFAULT

    def locate(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems, each with the origin of its field, or of the nearest section around it that
        was written; those that have an origin keep it."""
        return tuple(
            problem if problem.origin else replace(problem, origin=self._nearest(problem.path))
            for problem in problems
        )

    def _nearest(self, path: str) -> Origin:
        if path in self._provenance.values:
            return self._provenance.values[path]
        while path and path not in self._provenance.keys:
            path = path.rpartition(".")[0]
        return self._provenance.keys.get(path, DEFAULT)


class PhaseSpec(LengthSpec):
    """A part of the run with sections of its own, each of which goes over the scenario's: what it
    leaves out is as there, and lists replace."""

    model: ModelSpec | None = None
    """null: the scenario's"""
    parallel: ParallelSpec | None = None
    """null: the scenario's"""
    memory: MemorySpec | None = None
    """null: the scenario's"""
    train: TrainSpec | None = None
    """null: the scenario's; `tokens` of a phase stand beside it, not in it"""
    calibration: CalibrationSpec | None = None
    """null: the scenario's"""


OF_A_PHASE: Final = ("model", "parallel", "memory", "train", "calibration")
"""The sections that a phase may change."""


def _lengths(phases: Iterable[PhaseSpec], train: TrainSpec) -> tuple[int, ...]:
    """Tokens of each phase, in order."""
    found: list[int] = []
    for phase in phases:
        batch = (phase.train or train).global_batch
        found.append(phase.length(sum(found), batch))
    return tuple(found)


def _check_phases(phases: tuple[PhaseSpec, ...], info: ValidationInfo) -> tuple[PhaseSpec, ...]:
    """The phases come to the tokens of the run, none of them begins after it ends, and no two have
    one name."""
    train: TrainSpec | None = info.data.get("train")
    if train is None or not phases:
        return phases
    names = [phase.name for phase in phases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FieldError("TW464", f"two phases are called `{twice}`", "give each its own name")
    lengths = _lengths(phases, train)
    for phase, tokens in zip(phases, lengths, strict=True):
        if tokens <= 0 and phase.until is not None:
            message = f"the phase `{phase.name}` would end where others already have"
            raise FieldError("TW464", message, "write a larger `until`, or `steps: 0`")
        if phase.train is not None and phase.train.tokens != train.tokens:
            message = f"the phase `{phase.name}` has `train.tokens`, which is of the whole run"
            raise FieldError("TW463", message, "write `tokens` beside `train`, not in it")
    if sum(lengths) != train.tokens:
        come, run = (units.format_quantity(one, "tokens") for one in (sum(lengths), train.tokens))
        message = f"the phases come to {come} tokens, and train.tokens is {run}"
        raise FieldError("TW462", message, f"write `train: {{tokens: {come}}}`")
    return phases


class Scenario(Root):
    """A training run."""

    parallel: ParallelSpec
    memory: MemorySpec = MemorySpec()
    train: TrainSpec
    cost: CostSpec | None = None
    calibration: CalibrationSpec
    software: SoftwareSpec | None = None
    """what trains: framework, and what its host does; null: bare kernels, whose host takes
    `calibration.dispatch` each and never waits. Unwritten: fsdp2 where everything is sharded
    without pipeline, tensor or expert ranks, else megatron-core"""
    goodput: GoodputSpec | None = None
    """failures and what is done about them; null: the run has none"""
    # After `train`, whose tokens they come to.
    phases: Annotated[tuple[PhaseSpec, ...], AfterValidator(_check_phases)] = ()
    """the run in parts with layouts of their own; none: it is one part"""
    start: Day | None = None
    """the first day of the run; null: its calendar counts days"""
    data: DataSpec | None = None
    """what the run reads, and what of it is generated before"""
    rl: RlSpec | None = None
    """reinforcement learning; null: none"""
    # After `cost` and `goodput`, of which some can only be expected with them.
    expect: tuple[Annotated[Expectation, _expected_of(_run_kind)], ...] = ()
    """what must hold of the run; exit code 5 where something does not"""
    sweep: SweepSpec | None = None

    @property
    def kind(self) -> str:
        """What `twin run` answers of it, in words."""
        return _run_kind(self.rl)[0]

    @property
    def kpis(self) -> tuple[Kpi, ...]:
        """The key figures that `twin run` answers of it."""
        return _run_kind(self.rl)[1]

    @property
    def software_assumed(self) -> bool:
        """Whether nobody wrote the software, so that it is the typical one of the layout."""
        return self._provenance.keys.get("software") == DEFAULT

    @property
    def gc_interval(self) -> int | None:
        """Steps between garbage collections of all ranks, 0 for none; None: each rank collects when
        its own allocations ask for it, or the software says nothing."""
        host = self.software.host if self.software else None
        usual = host.collector.interval if host and host.collector else None
        return usual if self.train.gc_interval is None else self.train.gc_interval

    @property
    def phase_tokens(self) -> tuple[int, ...]:
        """Tokens of each phase, which sum to those of the run."""
        return _lengths(self.phases, self.train)

    def phase(self, index: int) -> Scenario:
        """The run as if it were this phase from beginning to end: its sections in place of the
        scenario's, all tokens of the run. It is what a plain scenario with these sections is."""
        chosen, prefix = self.phases[index], f"phases.{index}."
        own = {name: getattr(chosen, name) for name in OF_A_PHASE}
        own = {name: section for name, section in own.items() if section is not None}
        common = ("cluster", "software", "cost", "goodput", *OF_A_PHASE)
        kept = {name: getattr(self, name) for name in common}
        known = self._provenance

        def moved(entries: Mapping[str, T]) -> dict[str, T]:
            """Entries as a scenario without phases would have them."""
            mine = {
                path.removeprefix(prefix): one
                for path, one in entries.items()
                if path.startswith(prefix)
            }
            left_out = {*own, "phases"}
            others = {
                path: one for path, one in entries.items() if path.split(".")[0] not in left_out
            }
            return others | mine

        provenance = Provenance(moved(known.values), moved(known.keys), moved(known.ledger))
        name = f"{self.name}: {chosen.name}"
        values = {"schema": self.schema_version, "name": name} | kept | own
        return Scenario.model_validate(values, context=provenance)


_OF_AN_UPDATE = _expected_of(lambda _: ("a weight update", UPDATE_KPIS))


class UpdateScenario(Root):
    """A weight update: new weights on their way from host memory to the inference engines."""

    section: ClassVar[str] = "weight_update"

    weight_update: WeightUpdateSpec
    cost: CostSpec | None = None
    calibration: CalibrationSpec
    # After `cost`, as above.
    expect: tuple[Annotated[Expectation, _OF_AN_UPDATE], ...] = ()
    """what must hold of the run; exit code 5 where something does not"""


AnyScenario: TypeAlias = Scenario | UpdateScenario
"""What a file may hold."""
