"""AdamW, Muon and MuonClip at equal tokens: which loss, and how many tokens for the same loss?

    python -m reference.studies.optimizers [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

Learning rates are tuned with equal effort, then every optimizer runs with three seeds. All begin
with one grid. In each round in which any one's best rate is the lowest or highest tried, everybody
gets one more candidate: beyond that end, or, where the best has neighbours on both sides, between
it and the better of them. Nobody gets more runs than another.

Moonlight (arXiv:2502.16982, section 3.2) found that Muon needs about 52 % of AdamW's tokens for
equal loss, each run with its own complete schedule. So are MuonClip's shorter runs here: the
tokens with which it reaches AdamW's loss are read off between them, at the
rate tuned for the full length.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt
from statistics import mean
from typing import Final, Literal, TypeVar

from reference.config import RunSpec
from reference.studies.figure import Colour, Curve, Figure, Panel
from reference.studies.runs import RunOutcome, Scale, key_of, nano, train_all
from reference.studies.study import Page, Workplace, between, main, millions, reached, seeds_of

Kind = Literal["adamw", "muon", "muonclip"]
NameT = TypeVar("NameT", bound=Hashable)
Tried = Mapping[float, RunOutcome]
"""Outcomes by learning rate."""
RunAtRates = Callable[[Sequence[tuple[NameT, float]]], Mapping[tuple[NameT, float], RunOutcome]]
"""Runs of these optimizers at these rates."""

KINDS: Final[tuple[Kind, ...]] = ("adamw", "muon", "muonclip")
RATES: Final = (4e-3, 8e-3, 1.6e-2)
"""The first grid, the same for all: Muon's update has AdamW's size (section 2.2 of Moonlight)."""
ROUNDS: Final = 4
"""Further rates at most, so that the grid may grow to 16 times either end."""
STEPS: Final = 200
PARTS: Final = (0.4, 0.6)
"""Lengths of MuonClip's shorter runs, as shares of the full one."""
_SHOWN: Final[dict[Kind, tuple[str, Colour]]] = {
    "adamw": ("AdamW", "grey"),
    "muon": ("Muon", "vermilion"),
    "muonclip": ("MuonClip", "blue"),
}


@dataclass(frozen=True, slots=True)
class OptimizerRuns:
    """All outcomes of the study."""

    tried: Mapping[Kind, Mapping[float, RunOutcome]]
    """By learning rate, with the first seed."""
    full: Mapping[tuple[Kind, int], RunOutcome]
    """By optimizer and seed, at the tuned rate."""
    shorter: Mapping[tuple[float, int], RunOutcome]
    """MuonClip's, by share of the full length and seed."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return seeds_of(self.full)

    @property
    def parts(self) -> list[float]:
        """The shares of MuonClip's shorter runs, in order."""
        return sorted({part for part, _ in self.shorter})

    def rate(self, kind: Kind) -> float:
        """The tuned one."""
        return best(self.tried[kind])

    def runs(self, kind: Kind) -> list[RunOutcome]:
        """At full length, by seed."""
        return [self.full[kind, seed] for seed in self.seeds]

    def finals(self, kind: Kind) -> list[float]:
        """Held-out losses at the end, by seed."""
        return [run.final for run in self.runs(kind)]

    def ratio(self, seed: int) -> float | None:
        """MuonClip's tokens over AdamW's at AdamW's final loss; None where it is not reached."""
        adamw = self.full["adamw", seed]
        runs = [self.shorter[part, seed] for part in self.parts]
        points = [(run.tokens, run.final) for run in [*runs, self.full["muonclip", seed]]]
        tokens = reached(points, adamw.final)
        return None if tokens is None else tokens / adamw.tokens


def conduct(quick: bool, place: Workplace) -> Page:
    """Tune, run, compare."""
    scale = nano(quick=quick, steps=STEPS, evaluations=5)
    rates, rounds, parts = (RATES[:2], 0, PARTS) if quick else (RATES, ROUNDS, PARTS)
    return page(find(scale, rates, rounds, parts, place), scale)


def find(
    scale: Scale,
    rates: Sequence[float],
    rounds: int,
    parts: Sequence[float],
    place: Workplace,
) -> OptimizerRuns:
    """All runs."""
    first, *further = scale.seeds

    def at_rates(asked: Sequence[tuple[Kind, float]]) -> dict[tuple[Kind, float], RunOutcome]:
        runs: dict[tuple[Kind, float], RunSpec] = {
            (kind, lr): scale.run(first, lr, kind=kind) for kind, lr in asked
        }
        return with_muon(runs, place)

    tried = tune(KINDS, rates, at_rates, rounds)
    rate = {kind: best(tried[kind]) for kind in KINDS}
    seeded: dict[tuple[Kind, int], RunSpec] = {
        (kind, seed): scale.run(seed, rate[kind], kind=kind)
        for kind, seed in product(KINDS, further)
    }
    full: dict[tuple[Kind, int], RunOutcome] = {
        (kind, first): tried[kind][rate[kind]] for kind in KINDS
    }
    full |= with_muon(seeded, place)
    shorter = {
        (part, seed): scale.run(seed, rate["muonclip"], round(scale.steps * part), kind="muonclip")
        for part, seed in product(parts, scale.seeds)
    }
    return OptimizerRuns(tried, full, train_all(shorter, place))


def with_muon(
    runs: Mapping[tuple[Kind, NameT], RunSpec], place: Workplace
) -> dict[tuple[Kind, NameT], RunOutcome]:
    """The outcomes of runs. One of MuonClip that clipped no head is Muon's, bit by bit, so that
    Muon's is not run again."""
    outcomes = train_all({name: run for name, run in runs.items() if name[0] != "muon"}, place)
    without = {
        key_of(run): outcome
        for name, outcome in outcomes.items()
        if (run := runs[name]).optimizer.kind == "muonclip" and not any(outcome.clipped_heads)
    }
    left: dict[tuple[Kind, NameT], RunSpec] = {}
    for name, run in runs.items():
        if name[0] == "muon":
            optimizer = run.optimizer.model_copy(update={"kind": "muonclip"})
            same = without.get(key_of(run.model_copy(update={"optimizer": optimizer})))
            if same is None:
                left[name] = run
            else:
                outcomes[name] = same
    return outcomes | train_all(left, place)


def tune(
    names: Sequence[NameT], rates: Sequence[float], run: RunAtRates[NameT], rounds: int
) -> dict[NameT, dict[float, RunOutcome]]:
    """What was tried for each, until all best rates lie inside of what was tried, or after `rounds`
    further candidates."""
    found = run([(name, rate) for name in names for rate in rates])
    tried = {name: {rate: found[name, rate] for rate in rates} for name in names}
    for _ in range(rounds):
        if not any(at_end(one) for one in tried.values()):
            break
        further = [(name, candidate(one)) for name, one in tried.items()]
        for (name, rate), outcome in run(further).items():
            tried[name][rate] = outcome
    return tried


def best(tried: Tried) -> float:
    """The rate of the lowest held-out loss; the lower rate where two are equal."""
    return min(sorted(tried), key=lambda rate: tried[rate].final)


def at_end(tried: Tried) -> bool:
    """Whether the best rate is the lowest or the highest tried, so that a better one may lie
    outside."""
    return best(tried) in (min(tried), max(tried))


def candidate(tried: Tried) -> float:
    """The rate to try next: twice or half the best at an end, else the geometric mean of the best
    and its better neighbour."""
    rates, chosen = sorted(tried), best(tried)
    if chosen == rates[-1]:
        return chosen * 2
    if chosen == rates[0]:
        return chosen / 2
    at = rates.index(chosen)
    neighbour = min(rates[at - 1], rates[at + 1], key=lambda rate: tried[rate].final)
    return sqrt(chosen * neighbour)


def page(found: OptimizerRuns, scale: Scale) -> Page:
    """What came out."""
    pairs = _pairs(found)
    groups: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for name, of in pairs.items():
        groups[_group(name)] += [(clip, adamw, clip > adamw) for clip, adamw in of]
    ratios = [found.ratio(seed) for seed in found.seeds]
    facts = {
        "found": found,
        "scale": scale,
        "kinds": {kind: name for kind, (name, _) in _SHOWN.items()},
        "rates": sorted({rate for of in found.tried.values() for rate in of}),
        "best": best,
        "at_end": at_end,
        "lengths": [
            f"MuonClip {millions(found.shorter[part, found.seeds[0]].tokens)}"
            for part in found.parts
        ],
        "ratios": ratios,
        "known": [ratio for ratio in ratios if ratio is not None],
        "clipped": sum(sum(run.clipped_heads) for run in found.runs("muonclip")),
        "entropies": groups,
        "higher": [higher for of in groups.values() for _, _, higher in of],
    }
    return Page("optimizers", facts, (_figure(found),))


def _pairs(found: OptimizerRuns) -> dict[str, list[tuple[float, float]]]:
    """(MuonClip's, AdamW's) entropy of each matrix with each seed, by parameter."""
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in found.seeds:
        ours, theirs = found.full["muonclip", seed].entropies, found.full["adamw", seed].entropies
        for name, values in ours.items():
            pairs[name] += zip(values, theirs[name], strict=True)
    return pairs


def _group(name: str) -> str:
    """What a parameter is a part of."""
    parts = name.split(".")
    for part in ("attention", "router", "shared", "experts"):
        if part in parts:
            return part
    return "dense ffn"


def _figure(found: OptimizerRuns) -> Figure:
    ratios = [ratio for seed in found.seeds if (ratio := found.ratio(seed)) is not None]
    title = "MuonClip does not reach AdamW's final loss with every seed"
    if len(ratios) == len(found.seeds):
        title = f"MuonClip needs {between(ratios, '.2f')} of AdamW's tokens for its final loss"
    rates = ", ".join(f"{_SHOWN[kind][0]} {found.rate(kind):.3g}" for kind in ("adamw", "muonclip"))
    caption = f"A line per seed; dots: mean of complete runs of that length; tuned rates: {rates}"
    curves = [*_curves(found), _complete(found)]
    ends = [y for curve in curves for y in curve.y[1:]]
    span = (min(ends) - 0.05, max(ends))
    panel = Panel("Held-out loss, nats per token", curves, span=span)
    return Figure(title, caption, "Tokens trained on, millions", (panel,))


def _curves(found: OptimizerRuns) -> list[Curve]:
    kinds: tuple[Kind, ...] = ("adamw", "muonclip")
    curves = []
    for kind, seed in product(kinds, found.seeds):
        name, colour = _SHOWN[kind]
        label = f"{name}: {mean(found.finals(kind)):.3f}" if seed == found.seeds[0] else ""
        curve = found.full[kind, seed].curve
        x, y = [tokens / 1e6 for tokens, _ in curve], [loss for _, loss in curve]
        curves.append(Curve(x, y, colour, label, width=1.5))
    return curves


def _complete(found: OptimizerRuns) -> Curve:
    """Complete runs of MuonClip by their length, means over seeds."""
    lengths = [[found.shorter[part, seed] for seed in found.seeds] for part in found.parts]
    lengths.append(found.runs("muonclip"))
    x = [runs[0].tokens / 1e6 for runs in lengths]
    y = [mean(run.final for run in runs) for runs in lengths]
    return Curve(x, y, "green", "complete runs", dots=True)


if __name__ == "__main__":
    sys.exit(main(conduct, "AdamW, Muon and MuonClip at equal tokens."))
