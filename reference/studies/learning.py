"""Does nano learn from rewards that programs check, and from rewards that are dealt out at random?

    python -m reference.studies.learning [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

nano is pre-trained for some minutes, shown a few right answers of several families of the gym, and
then learns by Kimi K2's objective (arXiv:2507.20534, section 3.2.3) from verdicts on its own ones:
all families at once, a run for each seed. The control gets the same rewards, dealt out at random
over the responses of an iteration. What is judged are tasks that no run learned on.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Final

from reference.studies.command import main
from reference.studies.figure import Curve, Figure, Panel
from reference.studies.fine_tuning import interval
from reference.studies.learning_runs import (
    Learned,
    Plan,
    base_of,
    before,
    learned,
    trained,
    tuned_of,
)
from reference.studies.report import Report, Table
from reference.studies.runs import Workplace

PLAN: Final = Plan(
    families={"morse": 2, "sudoku": 1, "cryptarithm": 1, "twentyfour": 2},
    steps=150,
    shown=60,
    tuning_steps=80,
    tasks=64,
    iterations=70,
    rates=(7e-3, 4e-3, 7e-4),
)
QUICK: Final = replace(
    PLAN, families={"morse": 1}, steps=2, shown=4, tuning_steps=2, tasks=2, iterations=2, tries=2
)
SEEDS: Final = (0, 1, 2)
CONTROL: Final = {False: "by verdicts", True: "dealt out at random"}

Found = Mapping[tuple[bool, int], Learned]
"""By whether rewards were shuffled, and seed."""


def conduct(quick: bool, place: Workplace) -> Report:
    """The study; quick: one seed, one family, two iterations: shows that it runs."""
    plan, seeds = (QUICK, (0,)) if quick else (PLAN, SEEDS)
    home = place.cache / ("learning-quick" if quick else "learning")
    place.tell("pre-training and fine-tuning")
    with _pool(place) as pool:
        first = pool.submit(_first, plan, home).result()
        place.tell(f"before: {_shown(first)}")
        asked: dict[Future[Learned], tuple[bool, int]] = {
            pool.submit(_learned, plan, home, seed, shuffle): (shuffle, seed)
            for seed in seeds
            for shuffle in CONTROL
        }
        found: dict[tuple[bool, int], Learned] = {}
        for future in as_completed(asked):
            shuffle, seed = asked[future]
            found[shuffle, seed] = one = future.result()
            place.tell(f"{CONTROL[shuffle]}, seed {seed}, {one.seconds:.0f} s: {_shown(one)}")
    return report(plan, first, found, seeds)


def _first(plan: Plan, home: Path) -> Learned:
    trained(base_of(plan, home))
    trained(tuned_of(plan, home))
    return before(plan, home)


def _learned(plan: Plan, home: Path, seed: int, shuffle: bool) -> Learned:
    return learned(plan, home, seed, shuffle=shuffle)


def _pool(place: Workplace) -> ProcessPoolExecutor:
    """Spawned, since a forked child of a process that used torch's threads may hang."""
    return ProcessPoolExecutor(place.jobs, mp_context=multiprocessing.get_context("spawn"))


def _shown(one: Learned) -> str:
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in one.success.items())


def gains(first: Learned, found: Found, family: str, *, shuffle: bool) -> list[float]:
    """By seed, what learning adds to the success on a family's tasks, as shares."""
    return [
        one.success[family] - first.success[family]
        for (shuffled, _), one in sorted(found.items())
        if shuffled == shuffle
    ]


def raised(first: Learned, found: Found, *, shuffle: bool) -> list[str]:
    """The families whose gain over the seeds has a 95 % interval above zero."""
    return [
        family
        for family in first.success
        if interval(gains(first, found, family, shuffle=shuffle))[1] > 0
    ]


def report(plan: Plan, first: Learned, found: Found, seeds: Sequence[int]) -> Report:
    """What came out, in words, tables and a picture."""
    return Report(
        name="learning",
        title="Learning from verified rewards, and from rewards dealt out at random",
        question="Does nano, after a short fine-tuning, raise its verified success by what "
        "programs say of its own answers, and does a control with the same rewards at random?",
        settings=_settings(plan, seeds),
        findings=findings(first, found),
        open=(
            "Easy levels of families that were made for small models: what a run of minutes shows.",
            "The rate of learning was chosen of three by runs of another seed on the same tasks.",
        ),
        tables=(_table(first, found, seeds),),
        figures=(_figure(found, seeds),),
    )


def findings(first: Learned, found: Found) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    told: list[str] = []
    for shuffle, name in CONTROL.items():
        above = raised(first, found, shuffle=shuffle)
        each = "; ".join(
            f"{family} {_gain(gains(first, found, family, shuffle=shuffle))}"
            for family in first.success
        )
        rising = [
            family
            for family in first.success
            if min(gains(first, found, family, shuffle=shuffle)) > 0
        ]
        told.append(
            f"Rewards {name}: of {len(first.success)} families {len(rising)} gain with every seed "
            f"({', '.join(rising) or 'none'}), {len(above)} with an interval above zero "
            f"({', '.join(above) or 'none'}). {each}."
        )
    seconds = [one.seconds for one in found.values()]
    told.append(f"A run takes `{min(seconds):.0f} s` to `{max(seconds):.0f} s` on one thread.")
    return tuple(told)


def _gain(values: Sequence[float]) -> str:
    middle, low, high = (100 * one for one in interval(values))
    return f"`{middle:+.1f} points` [`{low:+.1f}`, `{high:+.1f}`]"


def _table(first: Learned, found: Found, seeds: Sequence[int]) -> Table:
    rows = [
        [
            family,
            f"{100 * share:.1f}",
            *(
                f"{100 * found[shuffle, seed].success[family]:.1f}"
                for shuffle in CONTROL
                for seed in seeds
            ),
        ]
        for family, share in first.success.items()
    ]
    head = ["family", "before"]
    head += [f"{name}, seed {seed}" for name in CONTROL.values() for seed in seeds]
    note = "Percent of right responses to tasks that no run learned on, drawn at temperature 1."
    return Table("Verified success", head, rows, note)


def _figure(found: Found, seeds: Sequence[int]) -> Figure:
    """Success while learning, mean of the seeds."""
    curves: list[Curve] = []
    for shuffle, name in CONTROL.items():
        each = [found[shuffle, seed].curve for seed in seeds]
        means = [mean(values) for values in zip(*each, strict=True)]
        smooth = [mean(means[max(0, at - 4) : at + 1]) for at in range(len(means))]
        places = tuple(range(1, len(means) + 1))
        curves.append(Curve(places, smooth, "vermilion" if shuffle else "blue", name))
    return Figure(
        title="What is rewarded becomes more frequent",
        caption="Mean of the seeds and of five iterations, on the tasks that are learned on",
        x_title="iteration",
        panels=(Panel("share of right responses", curves),),
    )


def _settings(plan: Plan, seeds: Sequence[int]) -> list[str]:
    families = ", ".join(f"{name} level {level}" for name, level in plan.families.items())
    pre, tune, learn = plan.rates
    return [
        f"`kimi-k2-nano`, fp32, pre-trained for {plan.steps} steps of its preset (rate {pre:g})",
        (
            f"fine-tuned for {plan.tuning_steps} steps of 16 sequences of 128 tokens on "
            f"{plan.shown} right answers of each family: {families} (rate {tune:g})"
        ),
        (
            f"{plan.iterations} iterations of {4 * len(plan.families)} prompts, 8 responses each, "
            f"of {plan.tasks} tasks of each family; MuonClip, rate {learn:g}, seeds "
            f"{', '.join(map(str, seeds))}"
        ),
        f"judged by {plan.tasks} other tasks of each family, {plan.tries} responses each",
    ]


if __name__ == "__main__":
    sys.exit(main(conduct, "Learning from verified rewards, with a control at random."))
