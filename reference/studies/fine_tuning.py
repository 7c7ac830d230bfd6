"""Does fine-tuning on synthesised dialogues teach a small model to use tools it has never seen?

    python -m reference.studies.fine_tuning [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

A model is pre-trained on text that repeats itself, fine-tuned on dialogues of
`python -m reference.agentic` and copies of them in other words (`fine_tuning_text`), and judged on
tasks with tools of applications that no training dialogue has, by free decoding: nothing holds its
calls to a form. The control is tuned on the same dialogues with the assistant's messages exchanged
between them, for as many steps.

The same with AdamW in the place of MuonClip in either stage is Moonlight's question (arXiv:
2502.16982, section 3.5.1): it found that Muon fine-tunes best what Muon pre-trained.

Settings were chosen on applications that are set apart for it (`for_choosing`). Every run has a
folder that is named by all that decides its numbers; what a model did with the tasks is kept there.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final, Literal

from reference.agentic.run import TRAJECTORIES, Scene, scene_of, synthesise
from reference.agentic.spec import SynthesisSpec
from reference.config import RunSpec
from reference.evaluate.tool_use import ToolUse, tool_use
from reference.evaluate.trained import open_trained
from reference.generate.request import Sampling
from reference.metrics import NAME, read_lines
from reference.sft import TuneSpec, run_of
from reference.studies import runs
from reference.studies.fine_tuning_text import renamed, texts, without_mistakes
from reference.studies.study import Page, Workplace, interval, main
from reference.text.dialogs import HELD_OUT
from twin.loading.load import load_config

Kind = Literal["muonclip", "adamw"]
Labels = Literal["own", "shuffled"]
_ROOT: Final = Path(__file__).parents[1]
_TRAINS: Final = ("model", "kernels", "optim", "trainer", "text", "agentic", "inference")
_WINDOW: Final = 640
"""Tokens of a dialogue with its answer, of every model alike, however short it was trained."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """A way to go on from a pre-trained model."""

    optimizer: Kind
    labels: Labels = "own"


@dataclass(frozen=True, slots=True)
class FineTuningPlan:
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
class ToolScores:
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


Scores = Mapping[tuple[Kind, int], Mapping[str, ToolScores]]
"""What was judged, by pre-training and seed, by what was tuned."""
_SETTINGS: Final = runs.settings_of("fine_tuning")
PLAN, QUICK = runs.plans_of("fine_tuning", FineTuningPlan)
SEEDS: Final = (0, 1, 2)
MUON: Final = Tuning("muonclip")
SHUFFLED: Final = Tuning("muonclip", "shuffled")
ADAMW: Final = Tuning("adamw")
WAYS: Final[Mapping[Kind, tuple[Tuning | None, ...]]] = {
    "muonclip": (None, MUON, SHUFFLED, ADAMW),
    "adamw": (None, MUON, ADAMW),
}
"""What is judged after each pre-training; None: without tuning."""
REPEATED: Final[tuple[tuple[Kind, Tuning], ...]] = (("muonclip", MUON), ("muonclip", SHUFFLED))
"""What is done with every seed; the others with the first."""
_WANTED: Final = {"validity": 0.30, "success": 0.10}
"""Gains on held-out tools that were asked for, as shares."""
_FAULTS: Final = ("form", "name", "json", "arguments")


def conduct(quick: bool, place: Workplace) -> Page:
    """The study; quick: one seed, a few steps, two tasks: shows that it runs."""
    plan, seeds = (QUICK, (0,)) if quick else (PLAN, SEEDS)
    home = place.cache / ("fine-tuning-quick" if quick else "fine-tuning")
    place.tell("dialogues and text")
    prepare_study(plan, home)
    bases: dict[Kind, RunSpec] = {kind: base_of(plan, kind, home) for kind in WAYS}
    place.tell(f"pre-training: {', '.join(str(run.train.output) for run in bases.values())}")
    pre_training = {kind: partial(runs.trained, run) for kind, run in bases.items()}
    list(runs.in_processes(place, pre_training))
    calls = {key: partial(outcome, plan, *key, home) for key in _judged_runs(seeds)}
    found: dict[tuple[Kind, int], dict[str, ToolScores]] = {
        (kind, seed): {} for kind in WAYS for seed in seeds
    }
    for count, ((kind, way, seed), scores) in enumerate(runs.in_processes(place, calls), start=1):
        # Every seed begins with the same model, which is judged once.
        own: Sequence[int] = seeds if way is None else (seed,)
        for each in own:
            found[kind, each][name_of(way)] = scores
        says = f"validity {scores.validity:.2f}, success {scores.success:.2f}"
        place.tell(f"{count}/{len(calls)}: {kind}, {name_of(way)}, seed {seed}: {says}")
    facts = {
        f"{kind} {seed}": {way: asdict(scores) for way, scores in ways.items()}
        for (kind, seed), ways in found.items()
    }
    (home / "found.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return page(found, plan, seeds, home)


def _judged_runs(seeds: Sequence[int]) -> list[tuple[Kind, Tuning | None, int]]:
    """What is judged, what matters most first."""
    repeated: list[tuple[Kind, Tuning | None, int]] = [
        (kind, way, seed) for seed in seeds for kind, way in REPEATED
    ]
    others: list[tuple[Kind, Tuning | None, int]] = [
        (kind, way, seeds[0])
        for kind, ways in WAYS.items()
        for way in ways
        if (kind, way) not in REPEATED
    ]
    return [*repeated, *others]


def base_of(plan: FineTuningPlan, kind: Kind, home: Path) -> RunSpec:
    """A pre-training: a small dense model on text of copies, in short sequences, in which copying
    is learned soonest."""
    changes = {
        "train.steps": plan.steps,
        "data.source": home / f"text-{plan.text}.jsonl",
        "data.cache": home / "data",
        "optimizer.kind": kind,
        "optimizer.lr": plan.rates[kind],
        "schedule.warmup_steps": max(1, plan.steps // 20),
        "schedule.constant_steps": plan.steps,
    }
    return runs.named(runs.nano_with(_SETTINGS["base"] | changes), home, runs.code(rooms=_TRAINS))


def tuned_from(start: RunSpec, plan: FineTuningPlan, way: Tuning, seed: int, home: Path) -> RunSpec:
    """A fine-tuning of it; the seed is that of the order of dialogues."""
    steps, lr = plan.tuning_steps, plan.tuning_rates[way.optimizer]
    rising, falling = max(1, steps // 40), steps * 2 // 5
    labels = f"{way.labels}-choosing" if plan.validate else way.labels
    changes = {
        "start": start.train.output,
        "dialogs.source": str(home / f"{labels}.jsonl"),
        "seed": seed,
        "train.steps": steps,
        "optimizer.kind": way.optimizer,
        "optimizer.lr": lr,
        "schedule.warmup_steps": rising,
        "schedule.constant_steps": steps - rising - falling,
        "schedule.decay_steps": falling,
        "schedule.final_lr": lr / 30,
    }
    tune = TuneSpec.model_validate(runs.nested(_SETTINGS["tune"] | changes))
    return runs.named(run_of(tune), home, runs.code(rooms=_TRAINS))


def synthesis_of(plan: FineTuningPlan, home: Path) -> SynthesisSpec:
    """Which dialogues are made."""
    preset = _ROOT / "agentic" / "presets" / "nano.yaml"
    words = [f"output={home / 'agentic'}", f"kept={plan.dialogues}", *_SETTINGS["synthesis"]]
    return load_config(SynthesisSpec, preset, words)


def words_of(scene: Scene) -> list[str]:
    """The words of all tools' names and arguments, the most frequent first: the language that a
    model knows before it is tuned. Which tools there are is not told."""
    counts = Counter[str]()
    for tool in scene.repository.tools.values():
        for name in (tool.name, *tool.parameters["properties"]):
            counts.update(word for word in name.split("_") if len(word) > 1)
    return sorted(counts, key=lambda word: (-counts[word], word))


def prepare_study(plan: FineTuningPlan, home: Path) -> None:
    """Text and dialogues: their own labels, and shuffled ones; and those for choosing, of which the
    set apart are the held-out ones."""
    spec = synthesis_of(plan, home)
    words = words_of(scene_of(spec))
    documents = ({"text": text} for text in texts(words, plan.text, 0))
    runs.write_lines(home / f"text-{plan.text}.jsonl", documents)
    if (home / "own-choosing.jsonl").is_file():
        return
    synthesise(spec, "resume")
    lines = (home / "agentic" / TRAJECTORIES).read_text(encoding="utf-8").splitlines()
    rows = [without_mistakes(json.loads(line)) for line in lines]
    held_out = [row for row in rows if row["provenance"]["split"] == HELD_OUT]
    train = [row for row in rows if row["provenance"]["split"] != HELD_OUT]
    learned = [row for row in train if not for_choosing(row["provenance"]["application"])]
    learned += list(renamed(learned, words, plan.copies, 0))
    apart = [row for row in train if for_choosing(row["provenance"]["application"])]
    judging = [{**row, "provenance": {**row["provenance"], "split": HELD_OUT}} for row in apart]
    runs.write_lines(home / "own.jsonl", [*learned, *held_out])
    runs.write_lines(home / "shuffled.jsonl", shuffled([*learned, *held_out]))
    runs.write_lines(home / "own-choosing.jsonl", [*learned, *judging])


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
        given = rows[giver[at]]["messages"]
        others = iter(message for message in given if message["role"] == "assistant")
        messages = [
            next(others) if message["role"] == "assistant" else message
            for message in row["messages"]
        ]
        made.append({**row, "messages": messages})
    return made


def _shape(row: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Who speaks in turn, and calls how often."""
    messages = row["messages"]
    return tuple((message["role"], len(message.get("tool_calls") or ())) for message in messages)


def outcome(
    plan: FineTuningPlan, kind: Kind, way: Tuning | None, seed: int, home: Path
) -> ToolScores:
    """What a model does with the tasks as it is pre-trained, or tuned in this way; the
    pre-training is done."""
    base = base_of(plan, kind, home)
    return judged(base if way is None else tuned_from(base, plan, way, seed, home), plan, home)


def judged(run: RunSpec, plan: FineTuningPlan, home: Path) -> ToolScores:
    """The run's model on the tasks; kept."""
    folder = runs.trained(run)
    path = folder / f"judged-{plan.tasks}-{'choosing' if plan.validate else HELD_OUT}.json"
    return runs.kept(path, ToolScores, partial(_scores, folder, plan, home))


def _scores(folder: Path, plan: FineTuningPlan, home: Path) -> ToolScores:
    begun = time.monotonic()
    scene = scene_of(synthesis_of(plan, home))
    sampling = Sampling(temperature=0.0, max_tokens=64)
    subject = open_trained(folder)
    subject.generator.window = _WINDOW
    found: ToolUse = tool_use(
        environments(scene, plan), subject.generator, steps=8, sampling=sampling
    )
    lines = read_lines(folder / NAME)
    return ToolScores(
        validity=found.valid_turns.value,
        success=found.success.value,
        valid=tuple(
            sum(fault is None for fault in play.faults) / max(1, len(play.faults))
            for play in found.plays
        ),
        solved=tuple(float(play.verdict.success) for play in found.plays),
        calls=found.calls,
        faults={str(key): count for key, count in found.faults.items()},
        causes=found.causes,
        loss=[line for line in lines if line["kind"] == "evaluation"][-1]["loss"],
        tokens=[line for line in lines if line["kind"] == "step"][-1]["tokens"],
        seconds=time.monotonic() - begun,
    )


def environments(scene: Scene, plan: FineTuningPlan) -> list[Any]:
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


def _runs(found: Scores, kind: Kind, way: Tuning | None) -> list[ToolScores]:
    """By seed."""
    order = sorted(found)
    return [
        found[key][name_of(way)] for key in order if key[0] == kind and name_of(way) in found[key]
    ]


def gains(
    found: Scores, kind: Kind, after: Tuning, metric: str, before: Tuning | None = None
) -> list[float]:
    """By seed, what a tuning adds to the model before, or to another tuning."""
    both = {name_of(after), name_of(before)}
    seeds = {key: of for key, of in found.items() if both <= of.keys()}
    pairs = zip(_runs(seeds, kind, after), _runs(seeds, kind, before), strict=True)
    return [getattr(later, metric) - getattr(first, metric) for later, first in pairs]


def page(found: Scores, plan: FineTuningPlan, seeds: Sequence[int], home: Path) -> Page:
    """What came out."""
    success = {
        (kind, way.optimizer): [run.success for run in _runs(found, kind, way)]
        for kind in WAYS
        for way in (MUON, ADAMW)
    }
    facts = {
        "plan": plan,
        "seeds": seeds,
        "dialogues": synthesis_of(plan, home).kept,
        "wanted": _WANTED,
        "gains": {
            metric: [
                gains(found, "muonclip", MUON, metric),
                gains(found, "muonclip", MUON, metric, SHUFFLED),
                gains(found, "muonclip", SHUFFLED, metric),
            ]
            for metric in _WANTED
        },
        "interval": interval,
        "success": success,
        "order": sorted(success, key=lambda pair: -mean(success[pair])),
        "judged": [
            (kind, name_of(way), _runs(found, kind, way))
            for kind, ways in WAYS.items()
            for way in ways
        ],
        "cell": _cell,
        "faults": _FAULTS,
        "faulty": {name_of(way): _runs(found, "muonclip", way) for way in (None, MUON, SHUFFLED)},
    }
    return Page("fine_tuning", facts)


def _cell(values: Sequence[float]) -> str:
    """Percent, and of several seeds the standard deviation."""
    deviation = f" +- {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"`{100 * mean(values):.1f}{deviation}`"


if __name__ == "__main__":
    sys.exit(main(conduct, "Fine-tuning on dialogues with tools, judged on tools never seen."))
