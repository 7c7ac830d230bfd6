"""Does nano learn from rewards that programs check, and from rewards that are dealt out at random?

    python -m reference.studies.learning [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

nano is pre-trained for some minutes, shown a few right answers of several families of the gym, and
then learns by Kimi K2's objective (arXiv:2507.20534, section 3.2.3) from verdicts on its own ones:
all families at once, a run for each seed. The control gets the same rewards, dealt out at random
over the responses of an iteration. What is judged are tasks that no run learned on. Each run is
kept in a folder that is named by what decides its numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Final

import torch

from reference.agentic.environment import follow
from reference.config import RunSpec
from reference.dialog import dialog_json
from reference.rl.gym.environments import item
from reference.rl.prompts import document
from reference.rl.run import RunObserver, learn_from, measure, opened_session
from reference.rl.spec import RlSpec
from reference.sft import TuneSpec, run_of
from reference.studies import runs
from reference.studies.figure import Curve, Figure, Panel
from reference.studies.study import Page, Workplace, interval, main, points


@dataclass(frozen=True, slots=True)
class LearningPlan:
    """What all runs share."""

    families: Mapping[str, int]
    """Levels, by family."""
    steps: int
    """Of pre-training."""
    shown: int
    """Dialogues of each family that the fine-tuning learns from."""
    tuning_steps: int
    tasks: int
    """Of each family, to learn on; as many others judge."""
    iterations: int
    rates: tuple[float, float, float]
    """Of pre-training, of fine-tuning, of learning from rewards."""
    tries: int = 8
    """Responses to each task that judges."""


@dataclass(frozen=True, slots=True)
class LearningOutcome:
    """What a run did."""

    success: Mapping[str, float]
    """Share of right responses to tasks that it did not learn on, by family."""
    curve: tuple[float, ...]
    """The same on those that it did, by iteration."""
    seconds: float


_SETTINGS: Final = runs.settings_of("learning")
PLAN, QUICK = runs.plans_of("learning", LearningPlan)
SEEDS: Final = (0, 1, 2)
CONTROL: Final = {False: "by verdicts", True: "dealt out at random"}
_JUDGED: Final = 1
"""The seed of the tasks that judge; those that are learned on have 0."""

Outcomes = Mapping[tuple[bool, int], LearningOutcome]
"""By whether rewards were shuffled, and seed."""


def conduct(quick: bool, place: Workplace) -> Page:
    """The study; quick: one seed, one family, two iterations: shows that it runs."""
    plan, seeds = (QUICK, (0,)) if quick else (PLAN, SEEDS)
    home = place.cache / ("learning-quick" if quick else "learning")
    place.tell("pre-training and fine-tuning")
    first = before(plan, home)
    place.tell(f"before: {_shares(first)}")
    calls = {
        (shuffle, seed): partial(learned, plan, home, seed, shuffle=shuffle)
        for seed in seeds
        for shuffle in CONTROL
    }

    def words(key: tuple[bool, int], run: LearningOutcome) -> str:
        return f"{CONTROL[key[0]]}, seed {key[1]}, {run.seconds:.0f} s: {_shares(run)}"

    found = runs.gathered(place, calls, words)
    return page(plan, first, found, seeds)


def _shares(run: LearningOutcome) -> str:
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in run.success.items())


def base_of(plan: LearningPlan, home: Path) -> RunSpec:
    """A pre-training of nano on its own text."""
    changes = {
        "train.steps": plan.steps,
        "data.cache": home / "data",
        "optimizer.lr": plan.rates[0],
        "schedule.warmup_steps": max(1, plan.steps // 10),
        "schedule.constant_steps": plan.steps,
    }
    return runs.named(runs.nano_with(_SETTINGS["base"] | changes), home)


def tuned_of(plan: LearningPlan, home: Path) -> RunSpec:
    """A fine-tuning of it on a few right answers of each family."""
    steps, lr = plan.tuning_steps, plan.rates[1]
    facts = runs.digest([dict(plan.families), plan.shown])
    changes = {
        "start": base_of(plan, home).train.output,
        "dialogs.source": str(runs.write_lines(home / f"shown-{facts}.jsonl", dialogues(plan))),
        "train.steps": steps,
        "optimizer.lr": lr,
        "schedule.warmup_steps": max(1, steps // 10),
        "schedule.constant_steps": steps - steps // 10 - steps // 2,
        "schedule.decay_steps": steps // 2,
        "schedule.final_lr": lr / 10,
    }
    return runs.named(
        run_of(TuneSpec.model_validate(runs.nested(_SETTINGS["tune"] | changes))), home
    )


def rewarded(plan: LearningPlan, home: Path, seed: int, *, shuffle: bool) -> RlSpec:
    """Learning from verdicts on all families at once, or from the same ones dealt out at random."""
    changes = {
        "start": tuned_of(plan, home).train.output,
        "tasks": _tasks(plan),
        "iterations": plan.iterations,
        "prompts.count": 4 * len(plan.families),
        "prompts.seed": seed,
        "rewards.shuffle": shuffle,
        "optimizer.lr": plan.rates[2],
    }
    return runs.named(RlSpec.model_validate(runs.nested(_SETTINGS["learn"] | changes)), home)


def _tasks(plan: LearningPlan, **seed: int) -> list[dict[str, Any]]:
    return [
        {"source": name, "levels": [level], "count": plan.tasks, **seed}
        for name, level in plan.families.items()
    ]


def learned(plan: LearningPlan, home: Path, seed: int, *, shuffle: bool) -> LearningOutcome:
    """What came of it; kept."""
    spec = rewarded(plan, home, seed, shuffle=shuffle)
    folder = Path(spec.train.output or "")

    def made() -> LearningOutcome:
        torch.set_num_threads(1)
        begun = time.monotonic()
        result = learn_from(spec, existing="resume")
        seconds = time.monotonic() - begun
        curve = tuple(iteration.success or 0.0 for iteration in result.iterations)
        return LearningOutcome(judged(plan, folder), curve, seconds)

    return runs.kept(folder / "judged.json", LearningOutcome, made)


def before(plan: LearningPlan, home: Path) -> LearningOutcome:
    """What the fine-tuned model does by itself; kept."""
    runs.trained(base_of(plan, home))
    folder = runs.trained(tuned_of(plan, home))
    return runs.kept(
        folder / "judged.json",
        LearningOutcome,
        lambda: LearningOutcome(judged(plan, folder), (), 0.0),
    )


def judged(plan: LearningPlan, folder: Path) -> dict[str, float]:
    """Share of right responses of a run's model, drawn at temperature 1, by family."""
    changes = {
        "start": str(folder),
        "tasks": _tasks(plan, seed=_JUDGED),
        "rollout.responses": plan.tries,
    }
    spec = RlSpec.model_validate(runs.nested(_SETTINGS["judge"] | changes))
    with opened_session(spec, RunObserver(), "refuse") as session:
        means = document(measure(session), session.tasks)["means"]
    return {name: means[name]["pass_at"][0] for name in plan.families}


def dialogues(plan: LearningPlan) -> Iterator[dict[str, Any]]:
    """Right answers."""
    for name, level in plan.families.items():
        for number in range(plan.shown):
            made = item(name, level, number)
            _, dialog = follow(made.environment, made.solve())
            yield {
                **dialog_json(dialog),
                "id": f"{name}-{level}-{number}",
                "provenance": {"split": "train", "application": name},
            }


def gains(first: LearningOutcome, found: Outcomes, family: str, *, shuffle: bool) -> list[float]:
    """By seed, what learning adds to the success on a family's tasks, as shares."""
    return [
        run.success[family] - first.success[family]
        for (shuffled, _), run in sorted(found.items())
        if shuffled == shuffle
    ]


def raised(first: LearningOutcome, found: Outcomes, *, shuffle: bool) -> list[str]:
    """The families whose gain over the seeds has a 95 % interval above zero."""
    return [
        family
        for family in first.success
        if interval(gains(first, found, family, shuffle=shuffle))[1] > 0
    ]


def page(plan: LearningPlan, first: LearningOutcome, found: Outcomes, seeds: Sequence[int]) -> Page:
    """What came out."""
    by_control = {
        shuffle: {family: gains(first, found, family, shuffle=shuffle) for family in first.success}
        for shuffle in CONTROL
    }
    facts = {
        "plan": plan,
        "first": first,
        "found": found,
        "seeds": seeds,
        "control": CONTROL,
        "gains": {
            shuffle: {family: points(values) for family, values in of.items()}
            for shuffle, of in by_control.items()
        },
        "rising": {
            shuffle: [family for family, values in of.items() if min(values) > 0]
            for shuffle, of in by_control.items()
        },
        "above": {shuffle: raised(first, found, shuffle=shuffle) for shuffle in CONTROL},
        "seconds": [run.seconds for run in found.values()],
    }
    return Page("learning", facts, (_figure(found, seeds),))


def _figure(found: Outcomes, seeds: Sequence[int]) -> Figure:
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


if __name__ == "__main__":
    sys.exit(main(conduct, "Learning from verified rewards, with a control at random."))
