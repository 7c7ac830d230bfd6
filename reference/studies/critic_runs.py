"""The runs of the study of the critic: a small model that writes characters of a kind or not, has
seen some comparisons, and then learns from rewards, with the closed loop or without it. Each is
kept in a folder that is named by what decides its numbers."""

from __future__ import annotations

import json
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
import yaml

from reference.config import RunSpec
from reference.dialog import Dialog, Message, dialog_json
from reference.rl.critique.__main__ import write
from reference.rl.critique.loop import by_engine
from reference.rl.critique.ranking import Rubric
from reference.rl.critique.verified import Outcome, agreement
from reference.rl.gym.environments import Question
from reference.rl.run import Watch, learn_from, opened_session
from reference.rl.spec import RlSpec, find
from reference.rl.tasks import Task
from reference.sft import TuneSpec, run_of
from reference.studies.keep import digest, named
from reference.train import train

RUBRIC: Final = Rubric(name="right", asks="It is right.")
"""The only one: a sentence that stands in every comparison tells a small model nothing."""
CHARACTERS: Final[Mapping[str, str]] = {
    "d": string.digits,
    "l": string.ascii_lowercase,
    "u": string.ascii_uppercase,
    "p": "!#$%&()*+-/<=>@^",
}
"""Kinds of characters, by what a user says who wants them."""
Start = tuple[int, int]
"""The seeds of first weights, and of the dialogues that they are fine-tuned on."""
_JUDGED: Final = 1_000_000
"""The seed of the comparisons that judge, of no run."""
LENGTH: Final = 4
"""Of an answer."""
BOOTSTRAP: Final = ("d", "l")
"""What is asked for, and what wrong answers consist of, in the comparisons before the loop."""
LOOP: Final = ("u", "p")
"""The same in the loop: characters that no comparison before it has."""


@dataclass(frozen=True, slots=True)
class Plan:
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
class Judged:
    """Share of comparisons that no run learned from that a model decides rightly."""

    apart: float
    """Of the loop's kind."""
    taught: float
    """Of the kind that the fine-tuning was about."""


@dataclass(frozen=True, slots=True)
class Refined:
    """What a run did, by iteration."""

    agreement: tuple[float | None, ...]
    """Share of the comparisons that the critic decides as the verifier does; None where all
    responses were right, or none."""
    success: tuple[float, ...]
    """Share of right responses."""
    after: Judged
    seconds: float
    """Of one core: others may use it, too."""


def base_of(home: Path, seed: int) -> RunSpec:
    """The model of preset `characters` after one step on bytes: a run to begin from."""
    preset = yaml.safe_load(find("characters").read_text(encoding="utf-8"))
    spec = {
        "model": preset["model"],
        "data": {**preset["data"], "source": str(_text(home)), "cache": str(home / "data")},
        "train": {"steps": 1, "micro_batch": 2, "seed": seed, **_train(64)},
    }
    return named(RunSpec.model_validate(spec), home)


def tuned_of(plan: Plan, home: Path, start: Start) -> RunSpec:
    """A fine-tuning of it on answers, right and wrong, and on comparisons of such."""
    (weights, seed), steps, lr = start, plan.tuning_steps, plan.rates[0]
    spec = {
        "start": base_of(home, weights).train.output,
        "dialogs": {"source": [str(one) for one in _shown(plan, home, seed)]},
        "seed": seed,
        "train": {"steps": steps, "micro_batch": 32, **_train(128)},
        "optimizer": {"lr": lr},
        "schedule": {"warmup_steps": 1, "constant_steps": steps},
    }
    return named(run_of(TuneSpec.model_validate(spec)), home)


def _train(sequence: int) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "precision": "fp32",
        "threads": 1,
        "checkpoint_every": 0,
        "evaluate_every": 0,
        "final_sequences": 8,
    }


def refining(plan: Plan, home: Path, begins: tuple[Start, int], *, closed: bool) -> RlSpec:
    """Learning from rewards, with the closed loop or without it."""
    start, seed = begins
    spec = RlSpec.model_validate(
        {
            "start": tuned_of(plan, home, start).train.output,
            "tasks": [{"source": f"{__name__}:make", "count": plan.prompts}],
            "iterations": plan.iterations,
            "prompts": {"count": plan.prompts, "seed": seed},
            "rollout": {"responses": 8, "cap": LENGTH + 1, "repeat": {"window": 0}},
            "rewards": {"over_budget": 0.0},
            "critique": {
                "rubrics": [str(_rubrics(home))],
                "weight": plan.weight if closed else 0.0,
                "pairs": plan.pairs,
                "check": plan.pairs,
            },
            "objective": {"kl_weight": 0.02},
            "train": {
                "sequence": 160,
                "micro_batch": 64,
                "precision": "fp32",
                "checkpoint_every": 0,
            },
            "optimizer": {"lr": plan.rates[1]},
            "schedule": {
                "warmup_steps": 1,
                "constant_steps": plan.iterations // 2,
                "decay_steps": plan.iterations - plan.iterations // 2,
                "final_lr": plan.rates[1] / 10,
            },
        }
    )
    facts = json.dumps([torch.__version__, spec.model_dump(mode="json")], sort_keys=True)
    output = str(home / "runs" / digest(facts.replace(str(home), "")))
    return spec.model_copy(update={"train": spec.train.model_copy(update={"output": output})})


def refined(plan: Plan, home: Path, begins: tuple[Start, int], *, closed: bool) -> Refined:
    """What came of it; kept."""
    spec = refining(plan, home, begins, closed=closed)
    assert spec.train.output is not None
    file = Path(spec.train.output) / "refined.json"
    if file.is_file():
        return _read(file)
    torch.set_num_threads(1)
    begun = time.process_time()
    result = learn_from(spec, Watch(), existing="resume")
    shares = tuple(one.agreement for one in result.iterations)
    success = tuple(one.success or 0.0 for one in result.iterations)
    seconds = time.process_time() - begun
    found = Refined(shares, success, judged(plan, spec, spec.train.output), seconds)
    file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def bootstrapped(plan: Plan, home: Path, start: Start) -> Judged:
    """The fine-tuned model of a start, made and judged; kept."""
    trained(base_of(home, start[0]))
    folder = trained(tuned_of(plan, home, start))
    file = folder / "judged.json"
    if not file.is_file():
        found = judged(plan, refining(plan, home, (start, 0), closed=False), str(folder))
        file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return Judged(**json.loads(file.read_text(encoding="utf-8")))


def trained(run: RunSpec) -> Path:
    """The folder of the run, which is done."""
    assert run.train.output is not None
    torch.set_num_threads(1)
    train(run, existing="resume")
    return Path(run.train.output)


def judged(plan: Plan, spec: RlSpec, folder: str) -> Judged:
    """How a run's model decides fresh comparisons as its own critic; sizes are those of `spec`."""
    bare = spec.train.model_copy(update={"output": None})
    asked = spec.model_copy(update={"start": folder, "train": bare})
    with opened_session(asked, Watch(), "refuse") as session:
        critic = by_engine(session.rollout.engine)
        shares = [
            agreement(critic, compared(kinds, plan.judged, _JUDGED), [RUBRIC])
            for kinds in (LOOP, BOOTSTRAP)
        ]
    apart, taught = (0.5 if one is None else one for one in shares)
    return Judged(apart, taught)


def compared(kinds: tuple[str, str], count: int, seed: int) -> list[Outcome]:
    """Comparisons of an answer of one kind, which is asked for, with one of another."""
    draw = Random(f"compared {kinds} {seed}")
    made = ([_drawn(draw, one) for one in kinds] for _ in range(count))
    return [Outcome(kinds[0], right, wrong) for right, wrong in made]


def make(count: int, seed: int) -> Sequence[Task]:
    """The loop's question, so many times: most characters of an answer must be of its kind."""
    del seed
    asked = Question(LOOP[0], lambda text: {"mostly": _share(text, LOOP[0]) > 0.5})
    return [Task(f"letters-{at}", "letters", asked) for at in range(count)]


def _share(text: str, kind: str) -> float:
    """Share of characters of a kind."""
    return sum(one in CHARACTERS[kind] for one in text) / len(text)


def _shown(plan: Plan, home: Path, seed: int) -> tuple[Path, Path]:
    """Files of answers and of comparisons."""
    facts = json.dumps([plan.shown, plan.comparisons, plan.right, seed])
    answers = home / f"answers-{digest(facts)}.jsonl"
    pairs = home / f"pairs-{digest(facts)}.jsonl"
    if not answers.is_file():
        write(pairs, compared(BOOTSTRAP, plan.comparisons, seed), [RUBRIC])
        answers.write_text("".join(f"{json.dumps(one)}\n" for one in _answers(plan, seed)))
    return answers, pairs


def _answers(plan: Plan, seed: int) -> Iterator[dict[str, Any]]:
    draw = Random(f"answers {seed}")
    for at in range(plan.shown):
        said = _drawn(draw, LOOP[0] if draw.random() < plan.right else LOOP[1])
        dialog = Dialog((Message("user", LOOP[0]), Message("assistant", said)))
        yield {"id": f"answer-{at}", **dialog_json(dialog)}


def _drawn(draw: Random, kind: str) -> str:
    return "".join(draw.choice(CHARACTERS[kind]) for _ in range(LENGTH))


def _text(home: Path) -> Path:
    """What a tokenizer of bytes reads makes no difference."""
    folder = home / "text"
    for number in range(8):
        file = folder / f"{number}.txt"
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number} says little.\n" * 40, encoding="utf-8")
    return folder


def _rubrics(home: Path) -> Path:
    path = home / "rubrics.yaml"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"rubrics": [RUBRIC.model_dump()]}), encoding="utf-8")
    return path


def _read(file: Path) -> Refined:
    found = json.loads(file.read_text(encoding="utf-8"))
    after = Judged(**found["after"])
    return Refined(tuple(found["agreement"]), tuple(found["success"]), after, found["seconds"])
