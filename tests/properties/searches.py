"""Laws of the searches for a better plan, each against what it claims to beat, by events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement, pairwise
from math import comb, inf
from typing import Any, Final

from hypothesis import strategies as st

from tests.properties.attack import Written, written
from twin.answers.executors import PoolChoice, open_executor
from twin.answers.nearest import document
from twin.engine import lower, plan, simulate
from twin.errors import ScenarioError
from twin.explore.search.edits import Edit
from twin.explore.search.improve import _Search
from twin.explore.search.improvement import Improvement, Milestone, Tried
from twin.explore.sweep.points import SweepPoint, answer_point
from twin.planning.compile import SplitRanking
from twin.planning.policies import SPARE
from twin.scenario import Scenario

NAMES: Final = ("norms", "swiglu", "attention_core")
SUBSETS: Final = [list(names) for n in range(4) for names in combinations(NAMES, n)]


def _parts(attack: Written) -> int:
    parallel = attack.sections["parallel"]
    return parallel["pipeline"] * parallel["virtual"]


def _every(layers: int, parts: int) -> Iterator[list[int]]:
    for cuts in combinations_with_replacement(range(layers + 1), parts - 1):
        yield [b - a for a, b in pairwise((0, *cuts, layers))]


def few() -> st.SearchStrategy[Written]:
    """Layouts with two to six chunks and at most 130 splits."""

    def small(attack: Written) -> bool:
        parts, layers = _parts(attack), attack.sections["model"]["layers"]
        return 2 <= parts <= 6 and comb(layers + parts - 1, layers) <= 130

    return written().filter(lambda one: one.sections["parallel"]["pipeline"] > 1).filter(small)


def many() -> st.SearchStrategy[Written]:
    """Layouts with at least eight chunks."""
    return written().filter(lambda one: _parts(one) >= 8)


def _step(scenario: Scenario) -> float:
    """Seconds by events; infinite where the plan cannot run or does not fit."""
    try:
        made = plan(scenario)
    except ScenarioError:
        return inf
    return simulate(lower(made)).step_ns / 1e9 if made.memory.fits else inf


def _split(attack: Written, split: list[int] | None) -> float:
    return _step(attack.but(parallel__layers=split).scenario())


def searched(scenario: Scenario) -> float:
    """Seconds of a step with the split that the search by events finds; infinite: none fits."""
    usual = answer_point(SweepPoint(document(scenario), {}, "events"))
    if usual.status != "fits":
        return inf
    with_none = Tried(Edit((), {}), usual)
    search = _Search(scenario, None, lambda: False, inf, open_executor(PoolChoice(1)))
    begun = Milestone("as written", with_none, better=False, seconds=0.0)
    search.found = Improvement(scenario, usual, milestones=(begun,))
    for _ in search._splits():
        pass
    return search.found.best.step_ns / 1e9


def best_of_all_splits(attack: Written) -> str | None:
    """The search by events finds what exhaustion finds."""
    layers, parts = attack.sections["model"]["layers"], _parts(attack)
    found = searched(attack.scenario())
    best = min(_split(attack, one) for one in _every(layers, parts))
    assert found <= best or found == inf, f"{found / best - 1:.5f}"
    return "nothing fits" if found == inf else None


def no_worse_split(attack: Written) -> str | None:
    """The split of a plan that names none is not longer than the even ones and the balanced
    one."""
    scenario = attack.scenario()
    own = _step(scenario)
    if own == inf:
        return "cannot run, or does not fit"
    best = min(_split(attack, list(one)) for one in SplitRanking(scenario).usual)
    assert own <= best, f"{own / best - 1:.5f}"
    return None


def tight() -> st.SearchStrategy[tuple[Written, float]]:
    """Layouts of several stages, and how far between the least and the most memory of uniform
    policies the GPU has."""
    staged = written().filter(lambda one: one.sections["parallel"]["pipeline"] > 1)
    return st.tuples(staged, st.sampled_from([0.02, 0.3, 0.5, 0.7, 0.9])).map(Tight)


class Tight(tuple[Any, ...]):
    """A layout and its memory."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The file."""
        return f"{self[0].text}# {self[1]}"


def no_slower_stages(case: Tight) -> str | None:
    """Policies that stages choose are no slower than a uniform one that leaves as much memory."""
    attack, part = case

    def under(names: Sequence[str], **more: Any) -> Any:
        return attack.but(memory__recompute=list(names), memory__offload=[], **more)

    try:
        peaks = [plan(under(one).scenario()).memory.peak.peak_bytes for one in SUBSETS]
        first = plan(under([]).scenario()).memory
    except ScenarioError:
        return "cannot run"
    room = min(peaks) + part * (max(peaks) - min(peaks))
    if max(peaks) == min(peaks):
        return "alike"
    # The margin that stages leave is beside what uniform policies need.
    size = (room + sum(first.reserve.values())) / (1 - SPARE)
    memory = f"cluster.node.gpu.memory={size:.0f}B"
    spare = SPARE * size
    uniform = inf
    for names in SUBSETS:
        made = plan(under(names).scenario(memory))
        if made.memory.peak.peak_bytes <= made.memory.budget - spare:
            uniform = min(uniform, simulate(lower(made)).step_ns / 1e9)
    chosen = plan(under(list(NAMES), memory__by_stage="auto").scenario(memory))
    assert chosen.memory.fits
    own = simulate(lower(chosen)).step_ns / 1e9
    assert own <= uniform, f"{own / uniform - 1:.5f}"
    return None
