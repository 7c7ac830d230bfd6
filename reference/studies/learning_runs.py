"""The runs of the study of learning from rewards: a model that answers at all, and what verdicts on
its answers make of it. Each is kept in a folder that is named by what decides its numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from reference.agentic.play import follow
from reference.config import RunSpec, load_run
from reference.dialog import dialog_json
from reference.rl.gym.family import item
from reference.rl.run import Watch, document, learn_from, measure, opened_session
from reference.rl.spec import RlSpec
from reference.sft import TuneSpec, run_of
from reference.studies.keep import digest, named
from reference.train import train

_JUDGED: Final = 1
"""The seed of the tasks that judge; those that are learned on have 0."""


@dataclass(frozen=True, slots=True)
class Plan:
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
class Learned:
    """What a run did."""

    success: Mapping[str, float]
    """Share of right responses to tasks that it did not learn on, by family."""
    curve: tuple[float, ...]
    """The same on those that it did, by iteration."""
    seconds: float


def base_of(plan: Plan, home: Path) -> RunSpec:
    """A pre-training of nano on its own text; ten ids are left to the template's markers."""
    lr = plan.rates[0]
    words = {
        "train.steps": plan.steps,
        "train.precision": "fp32",
        "train.threads": 1,
        "train.checkpoint_every": 0,
        "train.evaluate_every": 0,
        "train.final_sequences": 8,
        "data.cache": home / "data",
        "data.tokenizer.vocab": 2038,
        "optimizer.lr": lr,
        "schedule.warmup_steps": max(1, plan.steps // 10),
        "schedule.constant_steps": plan.steps,
    }
    return named(load_run("nano", [f"{key}={value}" for key, value in words.items()]), home)


def tuned_of(plan: Plan, home: Path) -> RunSpec:
    """A fine-tuning of it on a few right answers of each family."""
    steps, lr = plan.tuning_steps, plan.rates[1]
    spec = {
        "start": base_of(plan, home).train.output,
        "dialogs": {"source": str(_shown(plan, home))},
        "train": {
            "steps": steps,
            "sequence": 128,
            "micro_batch": 16,
            "precision": "fp32",
            "threads": 1,
            "checkpoint_every": 0,
            "evaluate_every": 0,
            "final_sequences": 8,
        },
        "optimizer": {"lr": lr, "nesterov": True},
        "schedule": {
            "warmup_steps": max(1, steps // 10),
            "constant_steps": steps - steps // 10 - steps // 2,
            "decay_steps": steps // 2,
            "final_lr": lr / 10,
        },
    }
    return named(run_of(TuneSpec.model_validate(spec)), home)


def rewarded(plan: Plan, home: Path, seed: int, *, shuffle: bool) -> RlSpec:
    """Learning from verdicts on all families at once, or from the same ones dealt out at random."""
    kinds = [
        {"source": name, "levels": [level], "count": plan.tasks}
        for name, level in plan.families.items()
    ]
    spec = RlSpec.model_validate(
        {
            "start": tuned_of(plan, home).train.output,
            "tasks": kinds,
            "iterations": plan.iterations,
            "prompts": {"count": 4 * len(kinds), "seed": seed},
            "rollout": {"responses": 8, "cap": 24, "repeat": {"window": 0}},
            "rewards": {"shuffle": shuffle},
            "objective": {"kl_weight": 0.05},
            "train": {
                "sequence": 192,
                "micro_batch": 32,
                "precision": "fp32",
                "checkpoint_every": 0,
            },
            "optimizer": {"lr": plan.rates[2]},
        }
    )
    facts = json.dumps([spec.model_dump(mode="json"), str(home)], sort_keys=True)
    output = str(home / "runs" / digest(facts.replace(str(home), "")))
    return spec.model_copy(update={"train": spec.train.model_copy(update={"output": output})})


def trained(run: RunSpec) -> Path:
    """The folder of the run, which is done."""
    assert run.train.output is not None
    torch.set_num_threads(1)
    train(run, existing="resume")
    return Path(run.train.output)


def learned(plan: Plan, home: Path, seed: int, *, shuffle: bool) -> Learned:
    """What came of it; kept."""
    spec = rewarded(plan, home, seed, shuffle=shuffle)
    assert spec.train.output is not None
    file = Path(spec.train.output) / "judged.json"
    if file.is_file():
        return _read(file)
    torch.set_num_threads(1)
    begun = time.monotonic()
    result = learn_from(spec, existing="resume")
    seconds = time.monotonic() - begun
    curve = tuple(one.success or 0.0 for one in result.iterations)
    found = Learned(judged(plan, Path(spec.train.output)), curve, seconds)
    file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def before(plan: Plan, home: Path) -> Learned:
    """What the fine-tuned model does by itself; kept."""
    folder = Path(tuned_of(plan, home).train.output or "")
    file = folder / "judged.json"
    if not file.is_file():
        found = Learned(judged(plan, folder), (), 0.0)
        file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return _read(file)


def judged(plan: Plan, folder: Path) -> dict[str, float]:
    """Share of right responses of a run's model, drawn at temperature 1, by family."""
    kinds = [
        {"source": name, "levels": [level], "count": plan.tasks, "seed": _JUDGED}
        for name, level in plan.families.items()
    ]
    spec = RlSpec.model_validate(
        {
            "start": str(folder),
            "tasks": kinds,
            "iterations": 1,
            "prompts": {"count": 16},
            "rollout": {"responses": plan.tries, "cap": 24, "repeat": {"window": 0}},
            "train": {"sequence": 192, "precision": "fp32"},
        }
    )
    with opened_session(spec, Watch(), "refuse") as session:
        means = document(measure(session), session.tasks)["means"]
    return {name: means[name]["pass_at"][0] for name in plan.families}


def _shown(plan: Plan, home: Path) -> Path:
    """Right answers as dialogues."""
    path = home / f"shown-{digest(json.dumps([dict(plan.families), plan.shown]))}.jsonl"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text("".join(f"{json.dumps(one)}\n" for one in _dialogues(plan)))
        partial.replace(path)
    return path


def _dialogues(plan: Plan) -> Iterator[dict[str, Any]]:
    for name, level in plan.families.items():
        for number in range(plan.shown):
            made = item(name, level, number)
            _, dialog = follow(made.environment, made.solve())
            yield {
                **dialog_json(dialog),
                "id": f"{name}-{level}-{number}",
                "provenance": {"split": "train", "application": name},
            }


def _read(file: Path) -> Learned:
    found = json.loads(file.read_text(encoding="utf-8"))
    return Learned(found["success"], tuple(found["curve"]), found["seconds"])
