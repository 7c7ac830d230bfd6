"""Which changed inputs make one step longer than another: the difference split over causes.

Inputs work together, so what one of them costs depends on which others have changed already. The
split is therefore the mean over orders in which the inputs may change (Shapley 1953, "A value for
n-person games"; Lundberg and Lee 2017 use it for models): it sums to the whole difference, an input
that never matters gets nothing, inputs that do the same get the same, and exchanging the two plans
changes the sign only. All orders up to `MOST_EXACT` causes; beyond, `PAIRS` random orders and their
reverses (a reversed order cancels much of the error of the order itself; Mitchell et al. 2022,
"Sampling permutations for Shapley value estimation").

Every mixture of the two plans is simulated by events, so the causes sum to what `twin run` says, to
the nanosecond. Inputs whose mixtures cannot run apart are one cause.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import factorial
from typing import Any, Final

from twin.answers.nearest import Document, StepAnswers, document, replaced, value_at, written
from twin.loading.catalog import SLOTS
from twin.planning.feasibility import problems
from twin.reports.breakdown import CAUSES, in_seconds
from twin.reports.compare import differences
from twin.scenario import Scenario
from twin.spec.axis import unions

VERSION: Final = 1
"""Version of the JSON document."""
MOST_EXACT: Final = 5
"""Causes of which all orders are averaged: at most 32 mixtures."""
MOST_CAUSES: Final = 8
"""Causes that are told apart; more are taken together by section."""
PAIRS: Final = 6
"""Random orders that are simulated, each with its reverse, beyond `MOST_EXACT` causes."""
SEED: Final = 0
"""Of those orders: the same question has the same answer."""
WITHOUT_STEP: Final = ("cost", "train.tokens")
"""Inputs that no step depends on: they are worth zero, and are not simulated."""
TOGETHER: Final = "possible only together"
"""Why inputs are one cause: some mixture without the others cannot run."""

Breakdown = Mapping[str, int]
"""Nanoseconds by category, which sum to the step."""
Progress = Callable[[float], None]
"""Called now and then with the share that is done."""

_NAMED: Final = (
    *((".".join(path), "name") for path in SLOTS),
    *((".".join(path), "kind") for path in unions(Scenario)),
)
"""Sections that are one input when their name or kind differs, outer ones first."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of the difference: what changed, and what it is worth."""

    name: str
    """Dotted path of the field or section; several where they work only together."""
    fields: tuple[str, ...]
    base: str
    other: str
    """The two values, or the names of the two parts."""
    ns: int
    """Nanoseconds that the step is longer by because of it."""
    breakdown_ns: Breakdown
    """The same by category; sums to `ns`."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The cause in plain data."""
        return {**asdict(self), "fields": list(self.fields), "seconds": self.ns / 1e9}


@dataclass(frozen=True, slots=True)
class Attribution:
    """The difference of two steps, split over what changed. All nanoseconds are other - base."""

    base_ns: int
    other_ns: int
    causes: tuple[Cause, ...]
    """Largest first; sum to `delta_ns`."""
    breakdown_ns: Breakdown
    """The same difference by category of the breakdown; sums to `delta_ns`."""
    method: str
    """How orders were averaged, in words."""
    runs: int
    """Steps that were simulated."""

    @property
    def delta_ns(self) -> int:
        """How much longer the other step is."""
        return self.other_ns - self.base_ns

    def to_json(self) -> dict[str, Any]:
        """The attribution as one JSON document."""
        return {
            "version": VERSION,
            "base_ns": self.base_ns,
            "other_ns": self.other_ns,
            "delta_ns": self.delta_ns,
            "seconds": {cause.name: cause.ns / 1e9 for cause in self.causes},
            "causes": [cause.to_json() for cause in self.causes],
            "breakdown_ns": dict(self.breakdown_ns),
            "breakdown": in_seconds(self.breakdown_ns),
            "method": self.method,
            "runs": self.runs,
        }


def attribution(
    base: Scenario,
    other: Scenario,
    *,
    played: tuple[Breakdown, Breakdown] | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """The difference of the two steps, split over the inputs that differ.

    `played` holds the two breakdowns where they are known already (a Report's `breakdown_ns`).
    Raises `ScenarioError` where one of the two cannot run.
    """
    mixtures = _Mixtures(document(base), document(other), progress=progress)
    inputs = mixtures.inputs(diff.path for diff in differences(mixtures.base, mixtures.other))
    silent = [path for path in inputs if _is_below(path, WITHOUT_STEP)]
    blocks = mixtures.together([path for path in inputs if path not in silent])
    ends = mixtures.ends([path for block in blocks for path in block.paths], played)
    shares, method = mixtures.split(blocks)
    causes = [mixtures.cause(block, share) for block, share in zip(blocks, shares, strict=True)]
    causes += [mixtures.cause(_Block((path,), "no step depends on it"), {}) for path in silent]
    delta = {c: ends[1][c] - ends[0][c] for c in CAUSES}
    return Attribution(
        base_ns=sum(ends[0].values()),
        other_ns=sum(ends[1].values()),
        causes=tuple(sorted(causes, key=lambda cause: -abs(cause.ns))),
        breakdown_ns=delta,
        method=method,
        runs=mixtures.answers.runs,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """Inputs that change together, and why."""

    paths: tuple[str, ...]
    note: str = ""


@dataclass(slots=True)
class _Mixtures:
    """Plans that are partly the base and partly the other: which of them can run, and their
    steps."""

    base: Document
    other: Document
    answers: StepAnswers = field(default_factory=partial(StepAnswers, "events"))
    progress: Progress | None = None
    _known: dict[frozenset[str], Breakdown] = field(default_factory=dict[frozenset[str], Breakdown])

    def inputs(self, differing: Iterable[str]) -> list[str]:
        """Dotted paths of the inputs behind the fields that differ: the field, or its section where
        that is another part of the catalog, another member of an axis, or a list of sections."""
        paths = sorted({self._input(path) for path in differing})
        # A section that one of the two does not have is one input.
        return [path for path in paths if not _is_below(path, paths, itself=False)]

    def _input(self, path: str) -> str:
        for section, key in _NAMED:
            named = f"{section}.{key}"
            if _is_below(path, [section]) and value_at(self.base, named) != value_at(
                self.other, named
            ):
                return section
        steps = path.split(".")
        number = next((i for i, step in enumerate(steps) if step.isdigit()), len(steps))
        return ".".join(steps[:number])

    def together(self, paths: Sequence[str]) -> list[_Block]:
        """The causes: single inputs; by section where they are too many; and joined where mixtures
        could not run without each other."""
        blocks = [_Block((path,)) for path in paths]
        if len(blocks) > MOST_CAUSES:
            blocks = _by_section(paths)
        impossible = {
            frozenset(chosen)
            for size in range(1, len(blocks))
            for chosen in combinations(range(len(blocks)), size)
            if not self._can_run(path for index in chosen for path in blocks[index].paths)
        }
        return [
            blocks[group[0]]
            if len(group) == 1
            else _Block(tuple(path for i in group for path in blocks[i].paths), TOGETHER)
            for group in _joined(len(blocks), impossible)
        ]

    def mixture(self, changed: Iterable[str]) -> Scenario:
        """The base with some inputs of the other; ValueError where a section does not allow it."""
        return replaced(self.base, {path: value_at(self.other, path) for path in changed})

    def _can_run(self, changed: Iterable[str]) -> bool:
        try:
            return not problems(self.mixture(changed))
        except ValueError:
            return False

    def ends(
        self, paths: Sequence[str], played: tuple[Breakdown, Breakdown] | None
    ) -> tuple[Breakdown, Breakdown]:
        """The breakdowns of the two plans, simulated unless they are known."""
        if played is not None:
            self._known |= {frozenset[str](): played[0], frozenset(paths): played[1]}
        return self.answer(()), self.answer(paths)

    def answer(self, changed: Iterable[str]) -> Breakdown:
        """The breakdown of a mixture."""
        key = frozenset(changed)
        if key not in self._known:
            self._known[key] = self.answers.of(self.mixture(key)).breakdown_ns
        return self._known[key]

    def split(self, blocks: Sequence[_Block]) -> tuple[list[Breakdown], str]:
        """What each cause is worth, by category, and how that was averaged."""
        weighted, method = _orders(len(blocks))
        totals = [dict.fromkeys(CAUSES, Fraction(0)) for _ in blocks]
        for done, (index, before, weight) in enumerate(weighted):
            without = {path for other in before for path in blocks[other].paths}
            low, high = self.answer(without), self.answer(without.union(blocks[index].paths))
            for category in CAUSES:
                totals[index][category] += weight * (high[category] - low[category])
            if self.progress is not None:
                self.progress((done + 1) / len(weighted))
        columns = {c: rounded([total[c] for total in totals]) for c in CAUSES}
        return [{c: columns[c][i] for c in CAUSES} for i in range(len(blocks))], method

    def cause(self, block: _Block, share: Breakdown) -> Cause:
        """A cause with its two values."""
        return Cause(
            name=" + ".join(block.paths),
            fields=block.paths,
            base=", ".join(_shown(self.base, path) for path in block.paths),
            other=", ".join(_shown(self.other, path) for path in block.paths),
            ns=sum(share.values()),
            breakdown_ns={c: share.get(c, 0) for c in CAUSES},
            note=block.note,
        )


def _is_below(path: str, sections: Iterable[str], *, itself: bool = True) -> bool:
    """Whether a path is one of these, or below one of them."""
    return any((itself and path == one) or path.startswith(f"{one}.") for one in sections)


def _shown(values: Document, path: str) -> str:
    """A value as one would write it; of a part of the catalog the name, of a choice the kind."""
    found = value_at(values, path)
    key = next((key for section, key in _NAMED if section == path), "")
    return written(found[key] if isinstance(found, dict) and key in found else found)


def _by_section(paths: Iterable[str]) -> list[_Block]:
    sections: dict[str, list[str]] = {}
    for path in paths:
        sections.setdefault(path.partition(".")[0], []).append(path)
    note = f"taken together, since more than {MOST_CAUSES} inputs differ"
    return [_Block(tuple(own), note if len(own) > 1 else "") for own in sections.values()]


def _joined(count: int, impossible: set[frozenset[int]]) -> list[tuple[int, ...]]:
    """Groups of `count` inputs of which every choice can run: while some cannot, those two groups
    are joined after which the fewest cannot."""

    def left(groups: list[tuple[int, ...]]) -> int:
        return sum(
            all(chosen.issuperset(group) or chosen.isdisjoint(group) for group in groups)
            for chosen in impossible
        )

    groups = [(index,) for index in range(count)]
    while left(groups):
        candidates = [
            [*(g for g in groups if g not in pair), tuple(sorted(pair[0] + pair[1]))]
            for pair in combinations(groups, 2)
        ]
        groups = sorted(min(candidates, key=left))
    return groups


Marginal = tuple[int, frozenset[int], Fraction]
"""A cause, those that have changed before it, and the weight of this in the mean."""


def _orders(count: int) -> tuple[list[Marginal], str]:
    """The marginals to average over, and how they were chosen, in words."""
    if count <= MOST_EXACT:
        words = f"exact: the mean over all {factorial(count)} orders of {count} causes"
        return _all_orders(count), words
    words = (
        f"sampled: the mean over {2 * PAIRS} of the {factorial(count)} orders of {count} causes, "
        f"in pairs of an order and its reverse, seed {SEED}"
    )
    return _some_orders(count), words


def _all_orders(count: int) -> list[Marginal]:
    """Every cause after every choice of the others, weighted by how many orders have it so."""
    return [
        (
            index,
            frozenset(before),
            Fraction(factorial(size) * factorial(count - size - 1), factorial(count)),
        )
        for index in range(count)
        for size in range(count)
        for before in combinations([i for i in range(count) if i != index], size)
    ]


def _some_orders(count: int) -> list[Marginal]:
    """The marginals of random orders and their reverses."""
    chance = random.Random(SEED)
    found: list[Marginal] = []
    for _ in range(PAIRS):
        order = chance.sample(range(count), count)
        for line in (order, order[::-1]):
            found += [
                (index, frozenset(line[:place]), Fraction(1, 2 * PAIRS))
                for place, index in enumerate(line)
            ]
    return found


def rounded(shares: Sequence[Fraction]) -> list[int]:
    """Whole numbers next to the shares that keep their sum, which is whole. Halves go away from
    zero, and what is left to those that rounding moved farthest, so that the negative shares give
    the negative numbers."""
    whole = [int(abs(s) + Fraction(1, 2)) * (1 if s > 0 else -1) for s in shares]
    left = int(sum(shares)) - sum(whole)
    step = 1 if left > 0 else -1
    moved = sorted(range(len(shares)), key=lambda i: step * (whole[i] - shares[i]))
    for index in moved[: abs(left)]:
        whole[index] += step
    return whole
