"""The runs of the study of fine-tuning: what is pre-trained, tuned and judged, each kept as soon as
it is there, so that a study that was killed goes on where it was.

Every run has a folder that is named by all that decides its numbers; what a model did with the
tasks is kept there as JSON.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import torch

from reference.agentic.run import TRAJECTORIES, Scene, scene_of, synthesise
from reference.agentic.spec import SynthesisSpec
from reference.config import RunSpec, load_run
from reference.evaluate.tool_use import ToolUse, tool_use
from reference.evaluate.trained import open_trained
from reference.generate.request import Sampling
from reference.sft import TuneSpec, run_of
from reference.studies.fine_tuning_renamed import renamed, without_mistakes
from reference.studies.fine_tuning_text import write_texts
from reference.studies.keep import named
from reference.text.dialogs import HELD_OUT
from reference.train import train
from twin.loading.config import load_config

Kind = Literal["muonclip", "adamw"]
Labels = Literal["own", "shuffled"]
_ROOT: Final = Path(__file__).parents[1]
_TRAINS: Final = ("model", "kernels", "optim", "trainer", "text", "agentic", "inference")
_ROLES: Final = ("assistant",)
_WINDOW: Final = 640
"""Tokens of a dialogue with its answer, of every model alike, however short it was trained."""
_MODEL: Final = {
    "model.layers": 3,
    "model.moe": "null",
    "model.ffn.width": 256,
    "model.attention": "{kind: gqa, heads: 4, kv_heads: 4, head_dim: 32}",
    "model.rope.theta": 500,
    "model.tied_embeddings": "true",
}
"""Nano's width and vocabulary without experts and latents: more tokens per second, and a head that
reads what the embedding writes, so that one circuit copies every token."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """A way to go on from a pre-trained model."""

    optimizer: Kind
    labels: Labels = "own"


@dataclass(frozen=True, slots=True)
class Plan:
    """What all chains share."""

    text: int
    """Documents to pre-train on."""
    steps: int
    """Of pre-training."""
    tuning_steps: int
    """Of fine-tuning."""
    dialogues: int
    """Kept by the synthesis, before applications are set apart."""
    copies: int
    """Of each training dialogue with other words, beside its own."""
    tasks: int
    """That a model is judged by."""
    rates: Mapping[Kind, float]
    tuning_rates: Mapping[Kind, float]
    validate: bool = False
    """Whether to judge by the tools for choosing instead of the held-out ones."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model does with the tasks."""

    validity: float
    """Share of calls that are valid; a dialogue without any counts as an invalid one."""
    success: float
    """Share of tasks whose end state is right."""
    valid: tuple[float, ...]
    """By task: share of its calls that are valid."""
    solved: tuple[float, ...]
    """By task: 1 where it is done."""
    calls: int
    faults: Mapping[str, int]
    causes: Mapping[str, int]
    loss: float
    """Nats per learned token of the held-out dialogues; of held-out text before tuning."""
    tokens: int
    """Trained on in this stage."""
    seconds: float


def base_of(plan: Plan, kind: Kind, home: Path) -> RunSpec:
    """A pre-training: a small dense model on text of copies, in short sequences, in which copying
    is learned soonest; ten ids are left to the template's markers."""
    lr = plan.rates[kind]
    words = {
        **_MODEL,
        "train.steps": plan.steps,
        "train.sequence": 64,
        "train.micro_batch": 64,
        "train.precision": "fp32",
        "train.threads": 1,
        "train.checkpoint_every": 200,
        "train.evaluate_every": 0,
        "train.final_sequences": 32,
        "data.source": home / f"text-{plan.text}.jsonl",
        "data.cache": home / "data",
        "data.tokenizer.vocab": 2038,
        "optimizer.kind": kind,
        "optimizer.lr": lr,
        "schedule.warmup_steps": max(1, plan.steps // 20),
        "schedule.constant_steps": plan.steps,
    }
    run = load_run("nano", [f"{key}={value}" for key, value in words.items()])
    return named(run, home, code())


def tuned_from(start: RunSpec, plan: Plan, way: Tuning, seed: int, home: Path) -> RunSpec:
    """A fine-tuning of it; the seed is that of the order of dialogues."""
    steps = plan.tuning_steps
    lr, rising, falling = plan.tuning_rates[way.optimizer], max(1, steps // 40), steps * 2 // 5
    labels = f"{way.labels}-choosing" if plan.validate else way.labels
    spec = {
        "start": start.train.output,
        "dialogs": {"source": str(home / f"{labels}.jsonl")},
        "seed": seed,
        "train": {
            "steps": steps,
            "sequence": 512,
            "micro_batch": 6,
            "precision": "fp32",
            "threads": 1,
            "checkpoint_every": 0,
            "evaluate_every": 0,
            "final_sequences": 32,
        },
        "optimizer": {"kind": way.optimizer, "lr": lr, "nesterov": True},
        "schedule": {
            "warmup_steps": rising,
            "constant_steps": steps - rising - falling,
            "decay_steps": falling,
            "final_lr": lr / 30,
        },
    }
    return named(run_of(TuneSpec.model_validate(spec)), home, code())


@cache
def code() -> str:
    """A digest of the sources that these runs' numbers may come from."""
    digest = hashlib.blake2b(digest_size=8)
    for room in _TRAINS:
        for path in sorted((_ROOT / room).rglob("*.py")):
            digest.update(path.relative_to(_ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def synthesis_of(plan: Plan, home: Path) -> SynthesisSpec:
    """Short dialogues over many applications, a share of which nobody trains on."""
    preset = _ROOT / "agentic" / "presets" / "nano.yaml"
    words = [
        f"output={home / 'agentic'}",
        f"kept={plan.dialogues}",
        "agents.tools=[2, 3]",
        "tasks.withheld=0.0",
        "play.candidates=1",
    ]
    return load_config(SynthesisSpec, preset, words)


def words_of(scene: Scene) -> list[str]:
    """The words of all tools' names and arguments, the most frequent first: the language that a
    model knows before it is tuned. Which tools there are is not told."""
    counts = Counter[str]()
    for tool in scene.repository.tools.values():
        for name in (tool.name, *tool.parameters["properties"]):
            counts.update(word for word in name.split("_") if len(word) > 1)
    return sorted(counts, key=lambda word: (-counts[word], word))


def prepare_study(plan: Plan, home: Path) -> None:
    """Text and dialogues: their own labels, and shuffled ones; and those for choosing, of which the
    set apart are the held-out ones."""
    spec = synthesis_of(plan, home)
    words = words_of(scene_of(spec))
    text = home / f"text-{plan.text}.jsonl"
    if not text.is_file():
        write_texts(text, words, plan.text, 0)
    if (home / "own-choosing.jsonl").is_file():
        return
    synthesise(spec, "resume")
    lines = (home / "agentic" / TRAJECTORIES).read_text(encoding="utf-8").splitlines()
    rows = [without_mistakes(json.loads(line)) for line in lines]
    train = [row for row in rows if not _held_out(row)]
    learned = [row for row in train if not for_choosing(row["provenance"]["application"])]
    learned += list(renamed(learned, words, plan.copies, 0))
    held_out = [row for row in rows if _held_out(row)]
    apart = [row for row in train if for_choosing(row["provenance"]["application"])]
    _write(home / "own.jsonl", [*learned, *held_out])
    _write(home / "shuffled.jsonl", shuffled([*learned, *held_out]))
    _write(home / "own-choosing.jsonl", [*learned, *map(_choosing, apart)])


def _held_out(row: Mapping[str, Any]) -> bool:
    return row["provenance"]["split"] == HELD_OUT


def _choosing(row: Mapping[str, Any]) -> dict[str, Any]:
    """A dialogue of an application that is set apart, as a held-out one."""
    return {**row, "provenance": {**row["provenance"], "split": HELD_OUT}}


def for_choosing(application: str) -> bool:
    """Whether an application is set apart, a tenth of all, to choose settings by: neither trained
    on nor judged by in the end."""
    return hashlib.blake2b(application.encode(), digest_size=2).digest()[0] < 26


def shuffled(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same dialogues with the assistant's messages of others: among those of one split and of
    one order of calls and answers, each gets those of the next. One that is alone keeps its own."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault((row["provenance"]["split"], *_shape(row)), []).append(at)
    giver = {
        at: places[(index + 1) % len(places)]
        for places in groups.values()
        for index, at in enumerate(places)
    }
    made: list[dict[str, Any]] = []
    for at, row in enumerate(rows):
        others = iter(_said(rows[giver[at]]))
        messages = [
            next(others) if message["role"] in _ROLES else message for message in row["messages"]
        ]
        made.append({**row, "messages": messages})
    return made


def _shape(row: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Who speaks in turn, and calls how often."""
    return tuple((one["role"], len(one.get("tool_calls") or ())) for one in row["messages"])


def _said(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for one in row["messages"] if one["role"] in _ROLES]


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def trained(run: RunSpec) -> Path:
    """The folder of the run, which is done."""
    assert run.train.output is not None
    torch.set_num_threads(1)
    train(run, existing="resume")
    return Path(run.train.output)


def outcome(plan: Plan, kind: Kind, way: Tuning | None, seed: int, home: Path) -> Judged:
    """What a model does with the tasks as it is pre-trained, or tuned in this way."""
    base = base_of(plan, kind, home)
    if way is None:
        return judged(base, plan, home)
    trained(base)
    return judged(tuned_from(base, plan, way, seed, home), plan, home)


def judged(run: RunSpec, plan: Plan, home: Path) -> Judged:
    """The run's model on the tasks; kept."""
    folder = trained(run)
    path = folder / f"judged-{plan.tasks}-{'choosing' if plan.validate else HELD_OUT}.json"
    if path.is_file():
        return Judged(**json.loads(path.read_text(encoding="utf-8")))
    begun = time.monotonic()
    scene = scene_of(synthesis_of(plan, home))
    sampling = Sampling(temperature=0.0, max_tokens=64)
    subject = open_trained(folder)
    subject.generator.window = _WINDOW
    found = tool_use(environments(scene, plan), subject.generator, steps=8, sampling=sampling)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "evaluation"][-1]
    tokens = [line for line in lines if line["kind"] == "step"][-1]["tokens"]
    made = _judged(found, last["loss"], tokens, time.monotonic() - begun)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(asdict(made)), encoding="utf-8")
    partial.replace(path)
    return made


def _judged(found: ToolUse, loss: float, tokens: int, seconds: float) -> Judged:
    valid = [
        sum(fault is None for fault in play.faults) / max(1, len(play.faults))
        for play in found.plays
    ]
    return Judged(
        validity=found.valid_turns.value,
        success=found.success.value,
        valid=tuple(valid),
        solved=tuple(float(play.verdict.success) for play in found.plays),
        calls=found.calls,
        faults={str(key): count for key, count in found.faults.items()},
        causes=found.causes,
        loss=loss,
        tokens=tokens,
        seconds=seconds,
    )


def environments(scene: Scene, plan: Plan) -> list[Any]:
    """The first tasks of the agents whose tools are held out, or set apart for choosing."""
    made: list[Any] = []
    for at in range(scene.spec.most_tasks):
        agent = scene.agents[at % len(scene.agents)]
        chosen = agent.split != HELD_OUT and for_choosing(agent.application)
        if (chosen if plan.validate else agent.split == HELD_OUT) and len(made) < plan.tasks:
            environment = scene.environment(at)
            made += [] if environment is None else [environment]
    return made


def name_of(way: Tuning | None) -> str:
    """What a table calls it."""
    return "before" if way is None else f"{way.optimizer} {way.labels}"
