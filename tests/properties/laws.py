"""Laws that every answer keeps: oracles of the standing attack."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cached_property, partial
from io import StringIO
from time import process_time
from typing import Any, Final

from hypothesis import reject

from tests.properties.attack import BATCH, LAYERS, Command, Quicker, Written, loaded, small
from tests.properties.foreign import Spoiled
from twin.answers import ask
from twin.cli.main import main
from twin.engine import lower, plan, simulate
from twin.engine.events import play
from twin.engine.steady import ROUNDING_NS
from twin.engine.trace import Trace
from twin.engine.unroll import unroll
from twin.errors import ScenarioError, TwinError
from twin.loading import load, resolve, scenario_hash
from twin.planning.compile import SplitRanking
from twin.planning.types import Plan
from twin.reports import Report, report

ANOMALY: Final = 1.01
"""Where links or SMs are shared, a faster kernel may lengthen a step: of some 950 by 0.013 % at
worst. Small programs are known with 5 % (`tests/engine/test_anomalies.py`)."""
ANEW: Final = 1.02
"""How much longer a step may be on a faster GPU with the split that this gets than with the split
of the slower one. 1.01 is meant, since an odd split has to be worth half a percent on either; of
some 460 random layouts one was 1.7 % longer."""
FINER: Final = 1.005
"""How much more memory a finer cut may take: buffers of a few ranks more."""
SECONDS: Final = 20.0
"""Of one core, for anything that is asked."""
BARE: Final = "software=null"
"""No host: no garbage collection, whose pauses come by thresholds."""


class Case:
    """A layout, its plan and its step, and others with the same split of layers."""

    def __init__(self, attack: Written, *overrides: str) -> None:
        self.attack, self.overrides = attack, overrides
        self.scenario = attack.scenario(*overrides)
        try:
            self.plan: Plan = plan(self.scenario)
        except ScenarioError:
            reject()
        self.program = lower(self.plan)
        self.trace: Trace = simulate(self.program)

    @property
    def split(self) -> list[int]:
        """Transformer layers of each part of the model."""
        return list(self.plan.layers_per_part)

    def but(self, *overrides: str) -> Case:
        """With other values, and the same split."""
        return Case(self.attack, *self.overrides, f"{LAYERS}={self.split}", *overrides)

    def memory_with(self, *overrides: str) -> float:
        """Bytes of the fullest moment with other values, and the same split; 0 where that is no
        plan."""
        split = f"{LAYERS}={self.split}"
        try:
            scenario = self.attack.scenario(*self.overrides, split, *overrides)
            return plan(scenario).memory.peak.peak_bytes
        except ScenarioError:
            return 0.0

    @cached_property
    def apart(self) -> bool:
        """Whether no flows meet on a link, and no kernels and communication on SMs."""
        graph = unroll(self.program, self.program.microbatches)
        return not play(graph, self.program).shared

    @property
    def peak(self) -> float:
        return self.plan.memory.peak.peak_bytes

    @cached_property
    def report(self) -> Report:
        return report(self.plan, self.trace)


def adds_up(case: Case) -> None:
    """Breakdowns sum to the step, every number is finite, and physics bounds the step."""
    answer = case.report
    for row in (answer.breakdown_ns, *(role.breakdown_ns for role in answer.roles)):
        assert sum(row.values()) == answer.step_ns
    document = answer.to_json()
    assert all(map(math.isfinite, numbers(document)))
    signed = {"uneven"}  # a slow GPU works longer, and waits less
    assert all(number >= 0 for key in document.keys() - signed for number in numbers(document[key]))
    assert answer.fits == (answer.memory.peak.peak_bytes <= answer.memory.budget)
    assert answer.step_ns / 1e9 > answer.speed_of_light_seconds
    gpu, kpis = case.scenario.cluster.node.gpu, document["kpis"]
    fp8 = gpu.fp8_dense if case.scenario.train.precision == "fp8" else None
    assert 0 < kpis["mfu"] <= kpis["hfu"] < (fp8 or gpu.bf16_dense) / gpu.bf16_dense
    assert all(link.use <= 1 for link in answer.links.values())


def figures_agree(case: Case) -> None:
    """Rates, days, hours and prices are of one step, and a stage holds the sum of its parts."""
    kpis, scenario, ranks = case.report.to_json()["kpis"], case.scenario, case.plan.mesh.ranks
    step = case.attack.sequences * scenario.train.sequence / kpis["tokens_per_second"]
    assert math.isclose(step, kpis["step_seconds"], rel_tol=1e-9)
    days = scenario.train.tokens / kpis["tokens_per_second"] / 86400
    steps = days * 86400 / step
    assert days <= kpis["days"] * (1 + 1e-9) <= days * (1 + 1 / steps) * (1 + 2e-9)
    assert math.isclose(kpis["gpu_hours"], kpis["days"] * 24 * ranks, rel_tol=1e-9)
    assert math.isclose(kpis["cost_usd"], 2 * kpis["gpu_hours"], rel_tol=1e-9)
    for stage in case.plan.memory.stages:
        assert math.isclose(sum(stage.categories.values()), stage.peak_bytes, rel_tol=1e-9)


def is_in_its_interval(case: Case) -> None:
    """Key figures stay physical, and the corrected one is inside of the interval."""
    answer = case.report.to_json()
    for key, ends in answer["intervals"].items():
        if ends is not None:
            low, high = ends
            corrected = answer["correction"] or {}
            figure = corrected.get("kpis", {}).get(key, answer["kpis"][key])
            assert low <= figure <= high, key


def is_the_same_again(case: Case) -> None:
    """The same scenario has the same answer, and written out and read back the same hash."""
    first, second = (one.report.to_json() for one in (case, Case(case.attack, *case.overrides)))
    for document in (first, second):
        del document["provenance"]["created"]
    assert first == second
    assert scenario_hash(loaded(resolve(case.scenario))) == scenario_hash(case.scenario)


def is_alike_on_all_ranks(case: Case) -> None:
    """One rank for each stage stands for all."""
    if case.plan.mesh.ranks <= 16:
        every = simulate(lower(case.plan, "all"))
        assert abs(every.step_ns - case.trace.step_ns) <= ROUNDING_NS


def is_no_slower_on_faster_links(case: Case) -> None:
    """Links of twice the rate, or without latency, never lengthen a step of the same split."""
    node, fabric = case.scenario.cluster.node, case.scenario.cluster.fabric
    for path, link in (("nvlink", node.nvlink), ("nic", node.nic), ("host.pcie", node.host.pcie)):
        rate = f"cluster.node.{path}.bandwidth={2 * link.bandwidth:.0f}B/s"
        for sets in (rate, f"cluster.node.{path}.latency=0s"):
            _no_slower(case, sets)
    _no_slower(case, "cluster.fabric.hop_latency=0s")
    if fabric.oversubscription > 1:
        _no_slower(case, "cluster.fabric.oversubscription=1")


def falls_with_sharding(case: Case) -> None:
    """Neither more ZeRO, nor more ranks for experts, replicas or norms, nor smaller micro-batches
    and gradients ever take more memory."""
    parallel, twice = case.scenario.parallel, f"cluster.nodes={2 * case.scenario.cluster.nodes}"
    finer = [
        (f"parallel.expert={2 * parallel.expert}",),
        (twice, f"{BATCH}={2 * case.attack.sequences}seq"),
        ("parallel.micro_batch=1",),
        ("train.gradients=bf16",),
        ("parallel.sequence_parallel=true",),
        ("parallel.shard_copies=1",),
    ]
    if parallel.zero < 3 and parallel.schedule.kind != "dualpipe":
        finer.append((f"parallel.zero={parallel.zero + 1}",))
    for sets in finer:
        ratio = case.memory_with(*sets) / case.peak
        assert ratio <= FINER, f"{sets}: {ratio:.4f}"


def is_no_slower_on_a_faster_gpu(case: Case) -> None:
    """Kernels and memory that are half as fast again never lengthen a step of the same split; where
    nothing is shared, not by a nanosecond."""
    for sets in faster(case):
        _no_slower(case, sets)


def _no_slower(case: Case, sets: str) -> None:
    quick = case.but(sets)
    most = 1.0 if quick.apart and case.apart else ANOMALY
    ratio = quick.trace.step_ns / case.trace.step_ns
    assert ratio <= most, f"{sets}: {ratio:.6f}"


def is_split_anew_for_a_faster_gpu(case: Case) -> None:
    """The split that a faster GPU gets is worth it: with that of the slower one its step would be
    no shorter. This tells a fault of the split from an anomaly of shared links."""
    if case.plan.memory.fits:
        for sets in faster(case):
            anew = Case(case.attack, *case.overrides, sets)
            if anew.split != case.split:
                assert anew.trace.step_ns <= ANEW * case.but(sets).trace.step_ns, sets


def faster(case: Case) -> Iterator[str]:
    """Overrides that make the memory or the kernels of a GPU half as fast again."""
    gpu = case.scenario.cluster.node.gpu
    for name in ("memory_bandwidth", "bf16_dense", "fp8_dense"):
        if (speed := getattr(gpu, name)) is not None:
            unit = "B/s" if name == "memory_bandwidth" else "FLOP/s"
            yield f"cluster.node.gpu.{name}={1.5 * speed:.0f}{unit}"


def grows_with_the_batch(case: Case) -> None:
    """Twice the batch takes longer, and at most twice as long. Where activations go to the host a
    step is short of copies, since the last micro-batch's stay and the first ones wait for none:
    there the fourth batch takes as long as the third."""
    sequences = case.attack.sequences
    twice = case.but(f"{BATCH}={2 * sequences}seq")
    ratio = twice.trace.step_ns / case.trace.step_ns
    assert ratio >= 1
    assert twice.peak >= case.peak * (1 - 1e-9)
    if ratio > 2.02:
        assert case.attack.sections["memory"]["offload"] not in ([], ["optimizer"]), ratio
        third, fourth = (case.but(f"{BATCH}={n * sequences}seq").trace.step_ns for n in (3, 4))
        assert fourth - third <= 1.02 * (third - twice.trace.step_ns), ratio


def pays_for_memory_with_time(case: Case) -> None:
    """Full recomputation takes less memory and more time than none; offload takes less memory.
    Where gathers of ZeRO-3 bind, kernels that they run under shift them: of some 1,250 layouts one
    was 1.2 % quicker."""
    here = case.but("memory.offload=[]")
    full, none = (here.but(f"memory.recompute={one}") for one in ("[full]", "[]"))
    assert full.peak <= none.peak * (1 + 1e-9)
    anomaly = ANEW if case.scenario.parallel.zero == 3 else ANOMALY
    assert full.trace.step_ns >= none.trace.step_ns / anomaly
    offload = case.attack.sections["memory"]["offload"]
    if offload and offload != ["optimizer"]:
        assert case.peak <= here.peak * (1 + 1e-9)


def is_split_at_least_as_well_as_usual(case: Case) -> None:
    """The split of a plan that names none is not longer than the balanced and the even ones that
    fit in memory."""
    if case.plan.memory.fits:
        for split in SplitRanking(case.scenario).usual:
            other = case.but(f"{LAYERS}={list(split)}")
            if other.plan.memory.fits:
                assert case.trace.step_ns <= other.trace.step_ns, split


ANSWERS: Final[tuple[Callable[[Case], None], ...]] = (
    adds_up,
    figures_agree,
    is_in_its_interval,
    is_split_at_least_as_well_as_usual,
)
"""Laws of one answer."""
CHANGES: Final[tuple[Callable[[Case], None], ...]] = (
    is_the_same_again,
    is_alike_on_all_ranks,
    falls_with_sharding,
    is_no_slower_on_a_faster_gpu,
    is_no_slower_on_faster_links,
    is_split_anew_for_a_faster_gpu,
    grows_with_the_batch,
    pays_for_memory_with_time,
)
"""Laws of two answers, of bare kernels."""


def numbers(document: Any) -> Iterator[float]:
    """Every number in a JSON document."""
    if isinstance(document, Mapping):
        for value in document.values():
            yield from numbers(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from numbers(value)
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield document


def checks(attack: Written) -> Iterator[Callable[[], None]]:
    """Every law of a layout, ready to be asked."""
    begin = process_time()
    case = Case(attack)
    yield partial(is_in_time, process_time() - begin)
    yield from (partial(law, case) for law in ANSWERS)
    bare = Case(attack, BARE)
    yield from (partial(law, bare) for law in CHANGES)


def is_in_time(seconds: float) -> None:
    """Seconds of one core."""
    assert seconds < SECONDS, f"{seconds:.0f} s"


def answered(command: Command | Spoiled) -> int:
    """The exit code of a command: other than 1, which is a bug of ours, and in time."""
    begin = process_time()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as told:
        code = main(command.words)
    is_in_time(process_time() - begin)
    assert code in (0, 2, 3, 4, 5), told.getvalue()
    return code


def no_slower_with_a_faster_part(case: Quicker) -> str | None:
    """What a kind of work says of its length is not longer on a faster part, within 1 %, since
    parts compete; batches of rollouts form otherwise, too."""
    try:
        slow, fast = (
            ask(load(small(case.scenario), [*case.edits, *more]), cache=False)
            for more in ((), (case.part,))
        )
    except TwinError:
        return "refused"
    key = slow.kind.frontier[0]
    before, after = (one.report.to_json()["kpis"][key] for one in (slow, fast))
    assert after <= ANOMALY * before, f"{key}: {after / before:.5f}"
    return None
