"""Does a critic that a small model is itself come to agree with the verifiers, as the loop closes?

    python -m reference.studies.critic [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

A model of two layers is fine-tuned on comparisons of digits with letters, until it judges them, and
then learns from rewards to write capitals, by Kimi K2's objective. With the closed loop it learns
beside that from comparisons of its own answers, which the verifier decides (K2, report,
arXiv:2507.20534, section 3.2.2); the ablation is the same run with `critique.weight: 0`. In both
the critic is asked about the iteration's answers before it learns from them. Each run is kept in a
folder that is named by what decides its numbers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, Final

import torch

from reference.config import RunSpec
from reference.dialog import Dialog, Message, dialog_json
from reference.files import yaml_table
from reference.rl.critique.__main__ import write
from reference.rl.critique.ranking import Rubric, VerifiedPair, agreement, by_engine
from reference.rl.gym.environments import QuestionEnvironment
from reference.rl.run import RunObserver, learn_from, opened_session
from reference.rl.spec import RlSpec, find
from reference.rl.tasks import RlTask
from reference.sft import TuneSpec, run_of
from reference.studies import runs
from reference.studies.figure import Curve, Figure, Panel
from reference.studies.study import Page, Workplace, main


@dataclass(frozen=True, slots=True)
class CriticPlan:
    """What all runs share."""

    shown: int
    """Answers to the loop's question that the fine-tuning learns from."""
    right: float
    """Share of them that are right."""
    comparisons: int
    """That it learns from."""
    tuning_steps: int
    iterations: int
    prompts: int
    """Of an iteration, each with 8 responses."""
    pairs: int
    """Comparisons of a step, and of a check, at most."""
    weight: float
    """Of the closed loop; the ablation has 0."""
    rates: tuple[float, float]
    """Of fine-tuning, of learning from rewards."""
    judged: int = 128
    """Comparisons that judge, before and after."""


@dataclass(frozen=True, slots=True)
class CriticScores:
    """Share of comparisons that no run learned from that a model decides rightly."""

    apart: float
    """Of the loop's kind."""
    taught: float
    """Of the kind that the fine-tuning was about."""


@dataclass(frozen=True, slots=True)
class LoopOutcome:
    """What a run did, by iteration."""

    agreement: tuple[float | None, ...]
    """Share of the comparisons that the critic decides as the verifier does; None where all
    responses were right, or none."""
    success: tuple[float, ...]
    """Share of right responses."""
    after: CriticScores
    seconds: float
    """Of one core: others may use it, too."""


Start = tuple[int, int]
"""The seeds of first weights, and of the dialogues that they are fine-tuned on."""
Outcomes = Mapping[tuple[bool, int], LoopOutcome]
"""By whether the loop was closed, and seed."""
_SETTINGS: Final = runs.settings_of("critic")
PLAN, QUICK = runs.plans_of("critic", CriticPlan)
SEEDS: Final = (0, 1, 2, 3, 4, 5)
COMMON: Final[Start] = (0, 100)
"""Kin to what the settings were chosen with: the same seeds, other draws."""
ARMS: Final = {True: "closed loop", False: "ablation"}
ENDS: Final = 8
"""Iterations with a comparison that are averaged, at the beginning and at the end."""
RUBRIC: Final = Rubric(name="right", asks="It is right.")
"""The only one: a sentence that stands in every comparison tells a small model nothing."""
CHARACTERS: Final[Mapping[str, str]] = _SETTINGS["characters"]
"""Kinds of characters, by what a user says who wants them."""
LENGTH: Final = 4
"""Of an answer."""
BOOTSTRAP: Final = ("d", "l")
"""What is asked for, and what wrong answers consist of, in the comparisons before the loop."""
LOOP: Final = ("u", "p")
"""The same in the loop: characters that no comparison before it has."""
_JUDGED: Final = 1_000_000
"""The seed of the comparisons that judge, of no run."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs of several seeds, from fine-tuned models that are judged before."""

    name: str
    before: Mapping[int, CriticScores]
    found: Outcomes

    def arm(self, *, closed: bool) -> list[LoopOutcome]:
        """The runs of an arm, by seed."""
        order = sorted(self.found, key=lambda key: key[1])
        return [self.found[key] for key in order if key[0] == closed]

    def ends(self, *, closed: bool) -> list[tuple[float, float]]:
        """Agreement at the beginning and at the end of each run of an arm."""
        return [ends(run) for run in self.arm(closed=closed)]


def conduct(quick: bool, place: Workplace) -> Page:
    """The study; quick: one seed, two iterations: shows that it runs."""
    plan, seeds = (QUICK, (0,)) if quick else (PLAN, SEEDS)
    home = place.cache / ("critic-quick" if quick else "critic")
    groups = {
        "one start": dict.fromkeys(seeds, COMMON),
        "own starts": {seed: (seed, seed) for seed in seeds},
    }
    return page(plan, *(_group(name, of, plan, home, place) for name, of in groups.items()))


def _group(
    name: str, starts: Mapping[int, Start], plan: CriticPlan, home: Path, place: Workplace
) -> RunGroup:
    place.tell(f"{name}: fine-tuning")
    before = {seed: bootstrapped(plan, home, start) for seed, start in starts.items()}
    calls = {
        (closed, seed): partial(refined, plan, home, (start, seed), closed=closed)
        for seed, start in starts.items()
        for closed in ARMS
    }

    def words(key: tuple[bool, int], run: LoopOutcome) -> str:
        (closed, seed), (first, last) = key, ends(run)
        said = f"agreement {first:.3f} to {last:.3f}, apart {run.after.apart:.3f}"
        return f"{name}, {ARMS[closed]}, seed {seed}, {run.seconds:.0f} s: {said}"

    found = runs.gathered(place, calls, words)
    return RunGroup(name, before, found)


def base_of(home: Path, seed: int) -> RunSpec:
    """The model of preset `characters` after one step on bytes: a run to begin from."""
    preset = yaml_table(find("characters"))
    changes = {
        "model": preset["model"],
        "data": {**preset["data"], "source": str(_text(home)), "cache": str(home / "data")},
        "train.steps": 1,
        "train.micro_batch": 2,
        "train.seed": seed,
        "train.sequence": 64,
    }
    return runs.named(RunSpec.model_validate(runs.nested(_SETTINGS["train"] | changes)), home)


def tuned_of(plan: CriticPlan, home: Path, start: Start) -> RunSpec:
    """A fine-tuning of it on answers, right and wrong, and on comparisons of such."""
    weights, seed = start
    changes = {
        "start": base_of(home, weights).train.output,
        "dialogs.source": [str(path) for path in _shown(plan, home, seed)],
        "seed": seed,
        "train.steps": plan.tuning_steps,
        "train.micro_batch": 32,
        "train.sequence": 128,
        "optimizer.lr": plan.rates[0],
        "schedule.warmup_steps": 1,
        "schedule.constant_steps": plan.tuning_steps,
    }
    spec = TuneSpec.model_validate(runs.nested(_SETTINGS["train"] | changes))
    return runs.named(run_of(spec), home)


def refining(plan: CriticPlan, home: Path, begins: tuple[Start, int], *, closed: bool) -> RlSpec:
    """Learning from rewards, with the closed loop or without it."""
    start, seed = begins
    changes = {
        "start": tuned_of(plan, home, start).train.output,
        "tasks": [{"source": "reference.studies.critic:make", "count": plan.prompts}],
        "iterations": plan.iterations,
        "prompts.count": plan.prompts,
        "prompts.seed": seed,
        "rollout.cap": LENGTH + 1,
        "critique.rubrics": [str(_rubrics(home))],
        "critique.weight": plan.weight if closed else 0.0,
        "critique.pairs": plan.pairs,
        "critique.check": plan.pairs,
        "optimizer.lr": plan.rates[1],
        "schedule.constant_steps": plan.iterations // 2,
        "schedule.decay_steps": plan.iterations - plan.iterations // 2,
        "schedule.final_lr": plan.rates[1] / 10,
    }
    return runs.named(RlSpec.model_validate(runs.nested(_SETTINGS["learn"] | changes)), home)


def refined(
    plan: CriticPlan, home: Path, begins: tuple[Start, int], *, closed: bool
) -> LoopOutcome:
    """What came of it; kept."""
    spec = refining(plan, home, begins, closed=closed)
    folder = spec.train.output or ""

    def made() -> LoopOutcome:
        torch.set_num_threads(1)
        begun = time.process_time()
        result = learn_from(spec, RunObserver(), existing="resume")
        shares = tuple(iteration.agreement for iteration in result.iterations)
        success = tuple(iteration.success or 0.0 for iteration in result.iterations)
        seconds = time.process_time() - begun
        return LoopOutcome(shares, success, judged(plan, spec, folder), seconds)

    return runs.kept(Path(folder) / "refined.json", LoopOutcome, made)


def bootstrapped(plan: CriticPlan, home: Path, start: Start) -> CriticScores:
    """The fine-tuned model of a start, made and judged; kept."""
    runs.trained(base_of(home, start[0]))
    folder = runs.trained(tuned_of(plan, home, start))
    spec = refining(plan, home, (start, 0), closed=False)
    made = partial(judged, plan, spec, str(folder))
    return runs.kept(folder / "judged.json", CriticScores, made)


def judged(plan: CriticPlan, spec: RlSpec, folder: str) -> CriticScores:
    """How a run's model decides fresh comparisons as its own critic; sizes are those of `spec`."""
    bare = spec.train.model_copy(update={"output": None})
    own = spec.model_copy(update={"start": folder, "train": bare})
    with opened_session(own, RunObserver(), "refuse") as session:
        critic = by_engine(session.rollout.engine)
        shares = [
            agreement(critic, compared(kinds, plan.judged, _JUDGED), [RUBRIC])
            for kinds in (LOOP, BOOTSTRAP)
        ]
    apart, taught = (0.5 if share is None else share for share in shares)
    return CriticScores(apart, taught)


def compared(kinds: tuple[str, str], count: int, seed: int) -> list[VerifiedPair]:
    """Comparisons of an answer of one kind, which is asked for, with one of another."""
    draw = Random(f"compared {kinds} {seed}")
    made = ([_drawn(draw, kind) for kind in kinds] for _ in range(count))
    return [VerifiedPair(kinds[0], right, wrong) for right, wrong in made]


def make(count: int, seed: int) -> Sequence[RlTask]:
    """The loop's question, so many times: most characters of an answer must be of its kind."""
    del seed
    question = QuestionEnvironment(LOOP[0], lambda text: {"mostly": _share(text, LOOP[0]) > 0.5})
    return [RlTask(f"letters-{at}", "letters", question) for at in range(count)]


def _share(text: str, kind: str) -> float:
    """Share of characters of a kind."""
    return sum(character in CHARACTERS[kind] for character in text) / len(text)


def _shown(plan: CriticPlan, home: Path, seed: int) -> tuple[Path, Path]:
    """Files of answers and of comparisons."""
    facts = runs.digest([plan.shown, plan.comparisons, plan.right, seed])
    answers, pairs = home / f"answers-{facts}.jsonl", home / f"pairs-{facts}.jsonl"
    if not answers.is_file():
        write(pairs, compared(BOOTSTRAP, plan.comparisons, seed), [RUBRIC])
    return runs.write_lines(answers, _answers(plan, seed)), pairs


def _answers(plan: CriticPlan, seed: int) -> Iterator[dict[str, Any]]:
    draw = Random(f"answers {seed}")
    for at in range(plan.shown):
        said = _drawn(draw, LOOP[0] if draw.random() < plan.right else LOOP[1])
        dialog = Dialog((Message("user", LOOP[0]), Message("assistant", said)))
        yield {"id": f"answer-{at}", **dialog_json(dialog)}


def _drawn(draw: Random, kind: str) -> str:
    return "".join(draw.choice(CHARACTERS[kind]) for _ in range(LENGTH))


def _text(home: Path) -> Path:
    """What a tokenizer of bytes reads makes no difference."""
    for number in range(8):
        text = f"{number} says little.\n" * 40
        runs.write_text(home / "text" / f"{number}.txt", lambda text=text: text)
    return home / "text"


def _rubrics(home: Path) -> Path:
    rubrics = {"rubrics": [RUBRIC.model_dump()]}
    return runs.write_text(home / "rubrics.yaml", lambda: json.dumps(rubrics))


def ends(run: LoopOutcome) -> tuple[float, float]:
    """Mean agreement of the first and of the last iterations that had comparisons; one half, which
    is what a coin has, where none had."""
    shares = [share for share in run.agreement if share is not None] or [0.5]
    return mean(shares[:ENDS]), mean(shares[-ENDS:])


def rises(group: RunGroup, *, closed: bool) -> list[float]:
    """By seed, how far agreement rises from the first to the last iterations, as shares."""
    return [last - first for first, last in group.ends(closed=closed)]


def margins(group: RunGroup) -> list[float]:
    """By seed, how far the closed loop ends above its ablation, as shares."""
    pairs = zip(group.ends(closed=True), group.ends(closed=False), strict=True)
    return [loop - ablation for (_, loop), (_, ablation) in pairs]


def page(plan: CriticPlan, common: RunGroup, own: RunGroup) -> Page:
    """What came out."""
    facts = {
        "plan": plan,
        "groups": (common, own),
        "arms": ARMS,
        "averaged": ENDS,
        "common": COMMON,
        "seeds": sorted(common.before),
        "ends": ends,
        "rises": rises,
        "margins": margins,
    }
    return Page("critic", facts, _figures(common))


def _figures(group: RunGroup) -> tuple[Figure, ...]:
    """Agreement by iteration, mean of the seeds that had comparisons; none where nobody had."""
    curves: list[Curve] = []
    for closed, name in ARMS.items():
        each = [run.agreement for run in group.arm(closed=closed)]
        means: dict[int, float] = {}
        for at in range(len(each[0])):
            near = [share for shares in each for share in shares[max(0, at - 4) : at + 1]]
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


if __name__ == "__main__":
    sys.exit(main(conduct, "A critic in the closed loop, with an ablation."))
