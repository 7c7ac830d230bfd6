"""Does a critic that a small model is itself come to agree with the verifiers, as the loop closes?

    python -m reference.studies.critic [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

A model of two layers is fine-tuned on comparisons of digits with letters, until it judges them, and
then learns from rewards to write capitals, by Kimi K2's objective. With the closed loop it learns
beside that from comparisons of its own answers, which the verifier decides (K2, report,
arXiv:2507.20534, section 3.2.2); the ablation is the same run with `critique.weight: 0`. In both
the critic is asked about the iteration's answers before it learns from them.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Final

from reference.studies.command import main
from reference.studies.critic_runs import Judged, Plan, Refined, Start, bootstrapped, refined
from reference.studies.figure import Curve, Figure, Panel
from reference.studies.fine_tuning import interval
from reference.studies.report import Report, Table
from reference.studies.runs import Workplace

PLAN: Final = Plan(
    shown=1000,
    right=0.3,
    comparisons=1500,
    tuning_steps=160,
    iterations=48,
    prompts=16,
    pairs=32,
    weight=1.0,
    rates=(0.02, 0.002),
)
QUICK: Final = replace(
    PLAN, shown=20, comparisons=8, tuning_steps=2, iterations=2, prompts=2, pairs=4, judged=4
)
SEEDS: Final = (0, 1, 2, 3, 4, 5)
COMMON: Final[Start] = (0, 100)
"""Kin to what the settings were chosen with: the same seeds, other draws."""
ARMS: Final = {True: "closed loop", False: "ablation"}
ENDS: Final = 8
"""Iterations with a comparison that are averaged, at the beginning and at the end."""

Found = Mapping[tuple[bool, int], Refined]
"""By whether the loop was closed, and seed."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of several seeds, from fine-tuned models that are judged before."""

    name: str
    before: Mapping[int, Judged]
    found: Found


def conduct(quick: bool, place: Workplace) -> Report:
    """The study; quick: one seed, two iterations: shows that it runs."""
    plan, seeds = (QUICK, (0,)) if quick else (PLAN, SEEDS)
    home = place.cache / ("critic-quick" if quick else "critic")
    common = dict.fromkeys(seeds, COMMON)
    own: dict[int, Start] = {seed: (seed, seed) for seed in seeds}
    with _pool(place) as pool:
        made = [
            _group(name, starts, (plan, home), (pool, place))
            for name, starts in (("one start", common), ("own starts", own))
        ]
    return report(plan, *made)


def _group(
    name: str,
    starts: Mapping[int, Start],
    where: tuple[Plan, Path],
    by: tuple[ProcessPoolExecutor, Workplace],
) -> Group:
    (plan, home), (pool, place) = where, by
    place.tell(f"{name}: fine-tuning")
    before = {  # one by one: all begin from the same files
        seed: pool.submit(bootstrapped, plan, home, start).result()
        for seed, start in starts.items()
    }
    asked: dict[Future[Refined], tuple[bool, int]] = {
        pool.submit(_refined, plan, home, (start, seed), closed): (closed, seed)
        for seed, start in starts.items()
        for closed in ARMS
    }
    found: dict[tuple[bool, int], Refined] = {}
    for future in as_completed(asked):
        closed, seed = asked[future]
        found[closed, seed] = one = future.result()
        place.tell(f"{name}, {ARMS[closed]}, seed {seed}, {one.seconds:.0f} s: {_shown(one)}")
    return Group(name, before, found)


def _refined(plan: Plan, home: Path, begins: tuple[Start, int], closed: bool) -> Refined:
    return refined(plan, home, begins, closed=closed)


def _pool(place: Workplace) -> ProcessPoolExecutor:
    """Spawned, since a forked child of a process that used torch's threads may hang."""
    return ProcessPoolExecutor(place.jobs, mp_context=multiprocessing.get_context("spawn"))


def _shown(one: Refined) -> str:
    first, last = ends(one)
    return f"agreement {first:.3f} to {last:.3f}, apart {one.after.apart:.3f}"


def ends(one: Refined) -> tuple[float, float]:
    """Mean agreement of the first and of the last iterations that had comparisons; one half, which
    is what a coin has, where none had."""
    said = [share for share in one.agreement if share is not None] or [0.5]
    return mean(said[:ENDS]), mean(said[-ENDS:])


def rises(found: Found, *, closed: bool) -> list[float]:
    """By seed, how far agreement rises from the first to the last iterations, as shares."""
    each = [ends(one) for (arm, _), one in sorted(found.items()) if arm == closed]
    return [last - first for first, last in each]


def margins(found: Found) -> list[float]:
    """By seed, how far the closed loop ends above its ablation, as shares."""
    seeds = sorted({seed for _, seed in found})
    return [ends(found[True, seed])[1] - ends(found[False, seed])[1] for seed in seeds]


def report(plan: Plan, common: Group, own: Group) -> Report:
    """What came out, in words, tables and a picture."""
    return Report(
        name="critic",
        title="A critic in the closed loop, and without it",
        question="Does a model as its own critic come to agree with the verifier while it learns "
        "from comparisons that this decides, and does it not where they count nothing?",
        settings=_settings(plan, sorted(common.before)),
        findings=(*findings(common), *findings(own)),
        open=(
            "One toy: what is right can be seen from an answer's characters, under one rubric.",
            "Whether answers to open prompts become better by it: these runs have none.",
            "Settings were chosen by runs of seed 100, from a start that is kin to the one.",
            (
                "The one start was added after the own starts had been seen, which mostly failed "
                "while a critic's word alone counted; since then its odds count, in both orders. "
                "Seeds 3 to 5 were added after the others had been seen."
            ),
        ),
        tables=(_table(common), _table(own)),
        figures=_figures(common),
    )


def findings(group: Group) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    found, told = group.found, list[str]()
    for closed, name in ARMS.items():
        each = [ends(one) for (arm, _), one in sorted(found.items()) if arm == closed]
        rise = rises(found, closed=closed)
        told.append(
            f"{group.name.capitalize()}, {name}: agreement with the verifier on the iteration's "
            f"own answers is {_share(mean(first for first, _ in each))} in the first {ENDS} "
            f"iterations that had any to compare, {_share(mean(last for _, last in each))} in the "
            f"last; it rises by {_points(rise)}, with {sum(one > 0 for one in rise)} of "
            f"{len(rise)} seeds."
        )
    above = margins(found)
    told.append(
        f"{group.name.capitalize()}: the closed loop ends above its ablation by {_points(above)}, "
        f"with {sum(one > 0 for one in above)} of {len(above)} seeds. On fresh comparisons of pure "
        "capitals with pure marks, the same for all runs, agreement is "
        f"{_share(mean(one.apart for one in group.before.values()))} before, "
        f"{_share(_mean(found, 'apart', closed=True))} after the closed loop, "
        f"{_share(_mean(found, 'apart', closed=False))} after the ablation."
    )
    success = {
        arm: mean(one.success[-1] for (its, _), one in found.items() if its == arm) for arm in ARMS
    }
    seconds = [one.seconds for one in found.values()]
    told.append(
        f"{group.name.capitalize()}: the loop has a price. In the last iteration "
        f"{_share(success[True])} of the responses are right with it, {_share(success[False])} "
        f"without. A run takes `{min(seconds):.0f} s` to `{max(seconds):.0f} s` of one core."
    )
    return tuple(told)


def _mean(found: Found, what: str, *, closed: bool) -> float:
    return mean(getattr(one.after, what) for (arm, _), one in found.items() if arm == closed)


def _share(value: float) -> str:
    return f"`{100 * value:.1f} %`"


def _points(values: Sequence[float]) -> str:
    middle, low, high = (100 * one for one in interval(values))
    return f"`{middle:+.1f} points` [`{low:+.1f}`, `{high:+.1f}`]"


def _table(group: Group) -> Table:
    before, found = group.before, group.found
    rows: list[list[str]] = []
    for seed in sorted(before):
        for closed, name in ARMS.items():
            one = found[closed, seed]
            said = [share for share in one.agreement if share is not None]
            shares = (*ends(one), before[seed].apart, one.after.apart, one.success[-1])
            rows.append([str(seed), name, *(f"{100 * share:.1f}" for share in shares)])
            rows[-1].append(f"{len(said)} of {len(one.agreement)}")
    head = ["seed", "", "first", "last", "apart, before", "apart, after", "right at the end"]
    note = (
        f"Percent. First and last: agreement on the iteration's own answers, mean of {ENDS} "
        "iterations that had a right and a wrong one to compare; how many had is in the last "
        "column. Apart: on fresh comparisons, the same for all."
    )
    return Table(f"Agreement by seed, {group.name}", [*head, "iterations compared"], rows, note)


def _figures(group: Group) -> tuple[Figure, ...]:
    """Agreement by iteration, mean of the seeds that had comparisons; none where nobody had."""
    found, seeds = group.found, sorted(group.before)
    curves: list[Curve] = []
    for closed, name in ARMS.items():
        each = [found[closed, seed].agreement for seed in seeds]
        means: dict[int, float] = {}
        for at in range(len(each[0])):
            near = [one[one_at] for one in each for one_at in range(max(0, at - 4), at + 1)]
            said = [share for share in near if share is not None]
            if said:
                means[at + 1] = mean(said)
        colour = "blue" if closed else "vermilion"
        if means:
            curves.append(Curve(tuple(means), tuple(means.values()), colour, name))
    made = Figure(
        title="Agreement of the critic with the verifier, by iteration",
        caption=f"{group.name.capitalize()}; mean of the seeds and of five iterations",
        x_title="iteration",
        panels=(Panel("agreement", curves, level=(0.5, "a coin"), span=(0.0, 1.0)),),
    )
    return (made,) if curves else ()


def _settings(plan: Plan, seeds: Sequence[int]) -> list[str]:
    tune, learn = plan.rates
    return [
        (
            f"the model of preset `characters` (two layers, width 32), fp32; fine-tuned for "
            f"{plan.tuning_steps} steps (MuonClip, rate {tune:g}) on {plan.comparisons:,} "
            "comparisons of four digits with four small letters, each in both orders, and on "
            f"{plan.shown:,} answers to the loop's question, `{100 * plan.right:.0f} %` of which "
            "are right"
        ),
        (
            f"{plan.iterations} iterations of {plan.prompts} prompts, 8 responses each; right is "
            "an answer most of whose characters are capitals; K2's objective on success (MuonClip, "
            f"rate {learn:g}, with a decay over the second half)"
        ),
        (
            f"`critique: {{critic: self, weight: {plan.weight:g}, pairs: {plan.pairs}, check: "
            f"{plan.pairs}}}`, in the ablation `weight: 0`; one rubric; seeds "
            f"{', '.join(map(str, seeds))}"
        ),
        (
            f"one start: first weights of seed {COMMON[0]}, dialogues of seed {COMMON[1]}, so that "
            "seeds differ in the responses drawn; own starts: weights and dialogues of the seed"
        ),
        f"apart: {plan.judged} comparisons of four capitals with four marks",
    ]


if __name__ == "__main__":
    sys.exit(main(conduct, "A critic in the closed loop, with an ablation."))
