"""Do invented facts survive rephrasing, and which way of repeating them does a model learn from?

Kimi K2 (arXiv:2507.20534, section 2.2, table 1) repeats knowledge in three ways and asks SimpleQA:
raw text for 10 epochs 23.76, one rephrasing for 10 epochs 27.39, ten rephrasings for one epoch
28.94. Here the facts are about towns that nobody else knows (`reference.text.toy`), the model is
`kimi-k2-nano`, and the rephrasings are those of the rules: this shows what the pipeline does, and
is no test of Kimi K2's numbers.

A model that begins from nothing recalls little of what it read ten times, so that each run reads
three groups of towns, 10, 30 and 100 times; the arm says how these readings share between texts
and epochs. All arms read the same other towns once, half of them raw, half in every style, so that
each knows the forms. A fact is recalled where its answer has the least loss of eight of its kind
(six of metals). It is asked for in three forms: as the raw text says it, as one style says it, as a
question.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional

from reference.data.pipeline import build
from reference.data.spec import STYLES, BuildSpec
from reference.data.stage import Record, read_records, write_records
from reference.evaluate.statistics import Interval, grouped, ratio, share
from reference.model import Transformer
from reference.studies.runs import kept, nano_with, nested, settings_of
from reference.studies.study import Page, Workplace, main
from reference.text.prepare import prepare
from reference.text.tokenizer import Tokenizer
from reference.text.toy import Fact, Town, towns
from reference.train import train

_SETTINGS: Final = settings_of("facts")
CHOICES: Final = 8
READINGS: Final[Mapping[str, int]] = _SETTINGS["readings"]
"""How often the towns of each group are read."""
CARRIERS: Final = ("others", "styled")
"""Further towns that are read once, raw and in every style."""
FORMS: Final[Mapping[str, Sequence[str]]] = _SETTINGS["forms"]
"""Ways to ask for the four facts of a town."""
_STYLES: Final = tuple(name for name, style in STYLES.items() if style.kind == "rewrite")
_SEQUENCE: Final[int] = _SETTINGS["train"]["train.sequence"]
_BATCH: Final[int] = _SETTINGS["train"]["train.micro_batch"]
_ASKED: Final = 128


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of repeating: how many rephrasings share the readings."""

    name: str
    rephrasings: int
    simpleqa: float
    """What Kimi K2 reports for it, in percent."""


ARMS: Final = tuple(Arm(**arm) for arm in _SETTINGS["arms"])
Recall = dict[str, dict[str, list[tuple[str, float]]]]
"""By group, then form: each fact's town, and 1 where the fact was recalled."""


@dataclass(frozen=True, slots=True)
class ArmOutcome:
    """What came out of one run of an arm."""

    documents: int
    """About planted towns."""
    refused: int
    """Rewritings that the fidelity check left out."""
    survived: float
    """Share of facts of kept rewritings whose town and answer stand in the text; 1 of raw."""
    tokens: int
    """Trained on, repetitions counted."""
    asked: Recall


def conduct(quick: bool, place: Workplace) -> Page:
    """The study: three arms, three seeds; quick: one seed, few towns, few steps."""
    size, others, seeds = (4, 4, (0,)) if quick else (14, 16, (0, 1, 2))
    rows: dict[str, list[ArmOutcome]] = defaultdict(list)
    for seed in seeds:
        known = planted(size, others, seed)
        for arm in ARMS:
            found = run_arm(arm, known, place.cache / "facts", seed, 4 if quick else None)
            rows[arm.name].append(found)
            shown = {group: f"{_recalled([found], group, None).value:.3f}" for group in READINGS}
            place.tell(f"seed {seed}, {arm.name}: recalled after {READINGS}: {shown}")
    return page(rows, size, others, seeds)


def planted(size: int, others: int, seed: int) -> dict[str, tuple[Town, ...]]:
    """The towns of each group of a seed."""
    every = towns(size * len(READINGS) + others, seed=11 + seed)
    sizes = [size] * len(READINGS) + [others - others // 2, others // 2]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    names = (*READINGS, *CARRIERS)
    return {
        name: every[start : start + count]
        for name, start, count in zip(names, starts, sizes, strict=True)
    }


def run_arm(
    arm: Arm,
    known: Mapping[str, Sequence[Town]],
    cache: Path,
    seed: int,
    steps: int | None = None,
) -> ArmOutcome:
    """Builds the arm's text, trains nano on it once through (or `steps`), asks for the facts; what
    came out is kept, and not run again."""
    folder = cache / f"{sum(map(len, known.values()))}-{arm.rephrasings}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    made = partial(_made, arm, known, folder, seed, steps)
    return kept(folder / f"found-{steps}.json", ArmOutcome, made)


def _made(
    arm: Arm, known: Mapping[str, Sequence[Town]], folder: Path, seed: int, steps: int | None
) -> ArmOutcome:
    for name, those in known.items():
        told = (Record(town.name, "", "", town.text) for town in those)
        write_records(folder / f"{name}.jsonl", told)
    manifest = build(_spec(arm, folder, known, seed), existing="resume")
    tokens = sum(row["tokens"] for row in manifest["training"])
    planned = steps or tokens // (_SEQUENCE * _BATCH)
    model, tokenizer = _trained(folder / "build", planned, seed)
    report = manifest["stages"]["rephrase"]
    domains = manifest["mixture"]["domains"]
    asked = {
        group: {form: recall(model, tokenizer, known[group], form, seed) for form in FORMS}
        for group in READINGS
    }
    return ArmOutcome(
        sum(
            round(row["documents"] / row["epochs"]) for row in domains if row["domain"] in READINGS
        ),
        report["in"] - report["out"],
        survival(folder / "build", known),
        planned * _SEQUENCE * _BATCH,
        asked,
    )


def survival(folder: Path, known: Mapping[str, Sequence[Town]]) -> float:
    """Share of the facts of rewritten towns that the rewriting still tells: the town's name and the
    answer stand in it; 1 where no planted town is rewritten."""
    by_id = {
        f"{name}/{name}.jsonl:{at + 1}": town
        for name, those in known.items()
        if name in READINGS
        for at, town in enumerate(those)
    }
    told = [
        fact.subject in record.text and fact.answer in record.text
        for record in read_records(folder / "rephrase" / "rewrites.jsonl")
        if record.parent in by_id
        for fact in by_id[record.parent].facts
    ]
    return sum(told) / len(told) if told else 1.0


def recall(
    model: Transformer, tokenizer: Tokenizer, known: Sequence[Town], form: str, seed: int = 0
) -> list[tuple[str, float]]:
    """Of each fact the town, and 1 where its answer has the least loss per byte of eight, asked for
    in this form. A town's name has the seed before it: other seeds have other towns."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for fact in (fact for town in known for fact in town.facts):
        kinds[fact.kind].add(fact.answer)
    chance = random.Random("choices")
    asked: list[tuple[Fact, str, str]] = []
    for town in known:
        for fact, words in zip(town.facts, FORMS[form], strict=True):
            others = sorted(kinds[fact.kind] - {fact.answer})
            wrong = chance.sample(others, min(CHOICES - 1, len(others)))
            before = _before(fact, words)
            asked += [(fact, before, answer) for answer in (fact.answer, *wrong)]
    losses: dict[Fact, list[float]] = defaultdict(list)
    for start in range(0, len(asked), _ASKED):
        part = asked[start : start + _ASKED]
        pairs = [(before, answer) for _, before, answer in part]
        for (fact, _, _), loss in zip(part, _losses(model, tokenizer, pairs), strict=True):
            losses[fact].append(loss)
    return [
        (f"{seed}/{fact.subject}", float(one[0] < min(one[1:]))) for fact, one in losses.items()
    ]


def _before(fact: Fact, words: str) -> str:
    """What stands before the answer."""
    if words == "{}":
        return fact.beginning
    lowered = fact.beginning[0].lower() + fact.beginning[1:]
    return words.replace("{town}", fact.subject).replace("{}", lowered)


@torch.no_grad()
def _losses(
    model: Transformer, tokenizer: Tokenizer, asked: Sequence[tuple[str, str]]
) -> list[float]:
    """Nats per byte of each answer behind what stands before it, all in one pass: what fills the
    shorter ones stands behind them, where a causal model does not look."""
    befores = list(tokenizer.encode([before for before, _ in asked]))
    afters = list(tokenizer.encode([f" {answer}." for _, answer in asked]))
    rows = [
        [tokenizer.end, *before.tolist(), *after.tolist()]
        for before, after in zip(befores, afters, strict=True)
    ]
    longest = max(map(len, rows))
    ids_BT = torch.tensor([row + [tokenizer.end] * (longest - len(row)) for row in rows])
    logits_BTW = model(ids_BT[:, :-1]).float()
    nats_BT = functional.cross_entropy(logits_BTW.transpose(1, 2), ids_BT[:, 1:], reduction="none")
    return [
        float(nats_BT[at, len(row) - 1 - len(after) : len(row) - 1].sum())
        / (len(answer.encode()) + 2)
        for at, (row, after, (_, answer)) in enumerate(zip(rows, afters, asked, strict=True))
    ]


def _spec(arm: Arm, folder: Path, known: Iterable[str], seed: int) -> BuildSpec:
    """The build of an arm. Which one style the second arm has goes by the seed."""
    styles = [_STYLES[(seed + at) % len(_STYLES)] for at in range(arm.rephrasings)]
    pairs = [(group, style) for group in READINGS for style in styles]
    pairs += [("styled", style) for style in _STYLES]
    domains = {name: name if name in READINGS else "web" for name in known}
    changes = {
        "output": str(folder / "build"),
        "sources": [
            {"name": name, "domain": domain, "path": str(folder / f"{name}.jsonl"), "rules": []}
            for name, domain in domains.items()
        ],
        "rephrase": [{"source": group, "style": style} for group, style in pairs],
        # Ten texts read once, or one text read ten times.
        "mixture.epochs": {
            name: count / max(1, arm.rephrasings) for name, count in READINGS.items()
        },
        "seed": seed,
    }
    return BuildSpec.model_validate(nested(_SETTINGS["build"] | changes))


def _trained(folder: Path, steps: int, seed: int) -> tuple[Transformer, Tokenizer]:
    changes = {
        "data.source": folder,
        "data.seed": seed,
        "train.seed": seed,
        "train.steps": steps,
        "schedule.warmup_steps": steps // 20,
        "schedule.constant_steps": steps // 2,
        "schedule.decay_steps": steps - steps // 20 - steps // 2,
    }
    run = nano_with(_SETTINGS["train"] | changes)
    tokenizer = prepare(run.data, run.model.vocab).tokenizer
    model = train(run).model
    model.eval()
    return model, tokenizer


def _pooled(
    found: Sequence[ArmOutcome], group: str, form: str | None = None
) -> list[tuple[str, float]]:
    """Each fact's town and whether it was recalled, over seeds; of all forms if none is named."""
    forms = FORMS if form is None else (form,)
    return [pair for one in found for each in forms for pair in one.asked[group][each]]


def _shown(interval: Interval) -> str:
    """An estimate with its 95 % interval."""
    if interval.low is None or interval.high is None:
        return f"`{interval.value:.3f}`"
    return f"`{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})`"


def _difference(found: Sequence[ArmOutcome], other: Sequence[ArmOutcome], group: str) -> Interval:
    """Recall of one less that of another, on the same facts and forms, by town."""
    pairs = zip(_pooled(found, group), _pooled(other, group), strict=True)
    return ratio(grouped((town, (one - two, 1.0)) for (town, one), (_, two) in pairs), "paired t")  # pyright: ignore[reportArgumentType]


def chance() -> float:
    """What guessing recalls: towns' metals are six, all else has eight choices or more."""
    return (3 / CHOICES + 1 / 6) / 4


def page(
    rows: Mapping[str, Sequence[ArmOutcome]], size: int, others: int, seeds: Sequence[int]
) -> Page:
    """What came out, by arm."""
    pairs = [(ARMS[1], ARMS[0]), (ARMS[2], ARMS[0]), (ARMS[2], ARMS[1])]
    facts = {
        "arms": {arm.name: (arm, rows[arm.name]) for arm in ARMS},
        "forms": tuple(FORMS),
        "readings": READINGS,
        "choices": CHOICES,
        "chance": chance(),
        "size": size,
        "others": others,
        "seeds": seeds,
        "sequence": _SEQUENCE,
        "batch": _BATCH,
        "recalled": lambda name, group, form=None: _shown(_recalled(rows[name], group, form)),
        "ranked": {group: _ranked(rows, group) for group in READINGS},
        "differences": [
            (READINGS[group], f"{one.name} less {other.name}", _shown(difference))
            for group in READINGS
            for one, other in pairs
            for difference in [_difference(rows[one.name], rows[other.name], group)]
        ],
    }
    return Page("facts", facts)


def _recalled(found: Sequence[ArmOutcome], group: str, form: str | None) -> Interval:
    return share(grouped(_pooled(found, group, form)))


def _ranked(rows: Mapping[str, Sequence[ArmOutcome]], group: str) -> dict[str, Any]:
    """Arms by recall, whether the first and the last differ, and which are above guessing."""
    found = {arm.name: _recalled(rows[arm.name], group, None) for arm in ARMS}
    order = sorted(found, key=lambda name: -found[name].value)
    apart = _difference(rows[order[0]], rows[order[-1]], group)
    return {
        "order": {name: found[name].value for name in order},
        "differ": apart.low is not None and apart.low > 0,
        "above": [name for name, recall in found.items() if (recall.low or 0.0) > chance()],
    }


if __name__ == "__main__":
    sys.exit(main(conduct, "Planted facts through rephrasing, and recalled."))
