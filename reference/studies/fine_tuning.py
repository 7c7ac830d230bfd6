"""Does fine-tuning on synthesised dialogues teach a small model to use tools it has never seen?

    python -m reference.studies.fine_tuning [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

A model is pre-trained on text that repeats itself (`fine_tuning_text`), fine-tuned on dialogues of
`python -m reference.agentic` and copies of them in other words (`fine_tuning_renamed`), and judged
on tasks with tools of applications that no training dialogue has, by free decoding: nothing holds
its calls to a form. The control is tuned on the same dialogues with the assistant's messages
exchanged between them, for as many steps.

The same with AdamW in the place of MuonClip in either stage is Moonlight's question (arXiv:
2502.16982, section 3.5.1): it found that Muon fine-tunes best what Muon pre-trained.

Settings were chosen on applications that are set apart for it (`fine_tuning_runs.for_choosing`).
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Final

from reference.studies.command import main
from reference.studies.fine_tuning_runs import (
    Judged,
    Kind,
    Plan,
    Tuning,
    base_of,
    name_of,
    outcome,
    prepare_study,
    synthesis_of,
    trained,
)
from reference.studies.report import Report, Table, percent
from reference.studies.runs import Workplace

PLAN: Final = Plan(
    text=30_000,
    steps=2000,
    tuning_steps=1200,
    dialogues=2600,
    copies=6,
    tasks=100,
    rates={"muonclip": 1e-2, "adamw": 3e-3},
    tuning_rates={"muonclip": 8e-3, "adamw": 2e-3},
)
QUICK: Final = replace(PLAN, text=300, steps=4, tuning_steps=2, dialogues=40, copies=1, tasks=2)
SEEDS: Final = (0, 1, 2)
MUON: Final = Tuning("muonclip")
SHUFFLED: Final = Tuning("muonclip", "shuffled")
ADAMW: Final = Tuning("adamw")
WAYS: Final[Mapping[Kind, tuple[Tuning, ...]]] = {
    "muonclip": (MUON, SHUFFLED, ADAMW),
    "adamw": (MUON, ADAMW),
}
REPEATED: Final[tuple[tuple[Kind, Tuning], ...]] = (("muonclip", MUON), ("muonclip", SHUFFLED))
"""What is done with every seed; the others with the first."""
STUDENT: Final = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}
"""97.5 % points of Student's t by degrees of freedom."""
_WANTED: Final = {"validity": 0.30, "success": 0.10}
"""Gains on held-out tools that were asked for, as shares."""

Found = Mapping[tuple[Kind, int], Mapping[str, Judged]]
"""What was judged, by pre-training and seed, by what was tuned."""


def conduct(quick: bool, place: Workplace) -> Report:
    """The study; quick: one seed, a few steps, two tasks: shows that it runs."""
    plan, seeds = (QUICK, (0,)) if quick else (PLAN, SEEDS)
    home = place.cache / ("fine-tuning-quick" if quick else "fine-tuning")
    place.tell("dialogues and text")
    prepare_study(plan, home)
    bases = [base_of(plan, kind, home) for kind in WAYS]
    place.tell(f"pre-training: {', '.join(str(one.train.output) for one in bases)}")
    with _pool(place) as pool:
        list(pool.map(trained, bases))
    found: dict[tuple[Kind, int], dict[str, Judged]] = {
        (kind, seed): {} for kind in WAYS for seed in seeds
    }
    with _pool(place) as pool:
        asked: dict[Future[Judged], tuple[Kind, Tuning | None, int]] = {
            pool.submit(outcome, plan, kind, way, seed, home): (kind, way, seed)
            for kind, way, seed in _asked(seeds)
        }
        for count, future in enumerate(as_completed(asked), start=1):
            kind, way, seed = asked[future]
            one = future.result()
            # Every seed begins with the same model, which is judged once.
            own: Sequence[int] = seeds if way is None else (seed,)
            for each in own:
                found[kind, each][name_of(way)] = one
            says = f"validity {one.validity:.2f}, success {one.success:.2f}"
            place.tell(f"{count}/{len(asked)}: {kind}, {name_of(way)}, seed {seed}: {says}")
    _keep(found, home)
    return report(found, plan, seeds, home)


def _asked(seeds: Sequence[int]) -> list[tuple[Kind, Tuning | None, int]]:
    """What is judged, what matters most first."""
    repeated: list[tuple[Kind, Tuning | None, int]] = [
        (kind, way, seed) for seed in seeds for kind, way in REPEATED
    ]
    others: list[tuple[Kind, Tuning | None, int]] = [
        (kind, way, seeds[0])
        for kind, ways in WAYS.items()
        for way in (None, *ways)
        if (kind, way) not in REPEATED
    ]
    return [*repeated, *others]


def _pool(place: Workplace) -> ProcessPoolExecutor:
    """Spawned, since a forked child of a process that used torch's threads may hang."""
    return ProcessPoolExecutor(place.jobs, mp_context=multiprocessing.get_context("spawn"))


def _keep(found: Found, home: Path) -> None:
    facts = {
        f"{kind} {seed}": {way: asdict(one) for way, one in ways.items()}
        for (kind, seed), ways in found.items()
    }
    (home / "found.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval over seeds by Student's t; without an interval where
    there is one value.

    >>> [round(one, 3) for one in interval([0.5, 0.6, 0.7])]
    [0.6, 0.352, 0.848]
    """
    if len(values) < 2:
        return values[0], float("-inf"), float("inf")
    half = STUDENT[len(values) - 1] * stdev(values) / sqrt(len(values))
    return mean(values), mean(values) - half, mean(values) + half


def gains(
    found: Found, kind: Kind, after: Tuning, metric: str, before: Tuning | None = None
) -> list[float]:
    """By seed, what a tuning adds to the model before, or to another tuning."""
    both = {name_of(after), name_of(before)}
    return [
        getattr(one[name_of(after)], metric) - getattr(one[name_of(before)], metric)
        for (its, _), one in sorted(found.items())
        if its == kind and both <= one.keys()
    ]


def report(found: Found, plan: Plan, seeds: Sequence[int], home: Path) -> Report:
    """What came out, in words and tables."""
    return Report(
        name="fine_tuning",
        title="Fine-tuning on synthesised dialogues, judged on tools that no dialogue had",
        question="Does a model of less than a million parameters learn to use tools that it has "
        "never seen, and does it matter which optimizer pre-trained and fine-tuned it?",
        settings=_settings(plan, seeds, home),
        findings=findings(found),
        open=(
            (
                "One small model and terse dialogues of one grammar of tools: held-out "
                "applications have other things and names, and the same kinds of operations."
            ),
            (
                "Pre-training text was made so that copying pays; natural text of as many tokens "
                "does not teach this model to copy (`reference/NOTEBOOK.md`)."
            ),
            "Rates of AdamW and MuonClip were not tuned with equal effort here.",
        ),
        tables=(_table(found, seeds), _two_by_two(found), _faults(found)),
    )


def findings(found: Found) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    told: list[str] = []
    for metric, wanted in _WANTED.items():
        own = gains(found, "muonclip", MUON, metric)
        against = gains(found, "muonclip", MUON, metric, SHUFFLED)
        control = gains(found, "muonclip", SHUFFLED, metric)
        says = "met" if mean(own) >= wanted and interval(own)[1] > 0 else "not met"
        told.append(
            f"{metric.capitalize()} on held-out tools gains {_gain(own)} by fine-tuning (asked "
            f"for: {100 * wanted:.0f} points, and an interval above zero: {says}), "
            f"{_gain(against)} more than the control, which itself gains {_gain(control)}."
        )
    return (*told, _best(found))


def _gain(values: Sequence[float]) -> str:
    middle, low, high = interval(values)
    return f"`{100 * middle:+.1f} points` [`{100 * low:+.1f}`, `{100 * high:+.1f}`]"


def _best(found: Found) -> str:
    """Which of the four pairs of optimizers does best."""
    pairs = {
        (kind, way): _values(found, kind, way, "success") for kind in WAYS for way in (MUON, ADAMW)
    }
    order = sorted(pairs, key=lambda pair: -mean(pairs[pair]))
    shown = "; ".join(
        f"{kind} then {way.optimizer} {percent(mean(pairs[kind, way]))}" for kind, way in order
    )
    return f"Success on held-out tools by optimizer of pre-training and of fine-tuning: {shown}."


def _values(found: Found, kind: Kind, way: Tuning | None, metric: str) -> list[float]:
    return [
        getattr(one[name_of(way)], metric)
        for (its, _), one in sorted(found.items())
        if its == kind and name_of(way) in one
    ]


def _table(found: Found, seeds: Sequence[int]) -> Table:
    rows: list[list[str]] = []
    for kind, ways in WAYS.items():
        for way in (None, *ways):
            valid, done = (_values(found, kind, way, name) for name in ("validity", "success"))
            loss = mean(_values(found, kind, way, "loss"))
            shown = [*_shares(valid, len(seeds)), *_shares(done, len(seeds))]
            rows.append([kind, name_of(way), *shown, f"{loss:.3f}"])
    columns = [f"seed {seed}" for seed in seeds]
    head = ["pre-trained", "tuned", *(f"valid, {one}" for one in [*columns, "mean"])]
    head += [*(f"done, {one}" for one in [*columns, "mean"]), "loss"]
    note = (
        "Percent of calls that are valid (a dialogue without a call counts as an invalid one), "
        "percent of tasks done, by seed; nats per token of held-out text before tuning, of learned "
        "tokens of held-out dialogues after it."
    )
    return Table("Held-out tools", head, rows, note)


def _shares(values: Sequence[float], columns: int) -> list[str]:
    """In percent, with the mean behind them; a dash where nothing was run."""
    each = [f"{100 * one:.1f}" for one in values]
    return [*each, *["-"] * (columns - len(each)), f"{100 * mean(values):.1f}"]


def _two_by_two(found: Found) -> Table:
    rows = [
        [f"pre-trained with {kind}", *(_cell(found, kind, way) for way in (MUON, ADAMW))]
        for kind in WAYS
    ]
    head = ["success, percent", "tuned with muonclip", "tuned with adamw"]
    note = (
        "Mean over seeds and, of several, standard deviation. Moonlight (section 3.5.1) compares "
        "the same four by benchmarks at 16B parameters: Muon in both stages is best there."
    )
    return Table("Two optimizers in two stages", head, rows, note)


def _cell(found: Found, kind: Kind, way: Tuning) -> str:
    values = [100 * one for one in _values(found, kind, way, "success")]
    spread = f" +- {stdev(values):.1f}" if len(values) > 1 else ""
    return f"`{mean(values):.1f}{spread}`"


def _faults(found: Found) -> Table:
    rows: list[list[str]] = []
    for way in (None, MUON, SHUFFLED):
        all_ = [
            one[name_of(way)]
            for (kind, _), one in found.items()
            if kind == "muonclip" and name_of(way) in one
        ]
        counts = [sum(one.faults.get(name, 0) for one in all_) for name in _KINDS]
        calls = sum(one.calls for one in all_)
        rows.append([name_of(way), f"{calls}", *(f"{count}" for count in counts)])
    note = (
        "Of the models that MuonClip pre-trained: calls, and of those without a form, of a tool "
        "that is not declared, of arguments that are no JSON, that do not fit the schema."
    )
    return Table("What is wrong with calls", ["tuned", "calls", *_KINDS], rows, note)


_KINDS: Final = ("form", "name", "json", "arguments")


def _settings(plan: Plan, seeds: Sequence[int], home: Path) -> list[str]:
    spec = synthesis_of(plan, home)
    return [
        (
            "a dense model of 3 layers with the width and vocabulary of `kimi-k2-nano`, embedding "
            "and head one, fp32; one pre-training per optimizer; MuonClip and its control with "
            f"seeds {', '.join(map(str, seeds))} of the order of dialogues, the others with one"
        ),
        (
            f"pre-trained on {plan.steps:,} steps of 64 sequences of 64 tokens of "
            f"`fine_tuning_text` ({plan.text:,} documents), rates {_rates(plan.rates)}"
        ),
        (
            f"tuned for {plan.tuning_steps:,} steps of 6 sequences of 512 tokens, several "
            f"dialogues to a sequence, rates {_rates(plan.tuning_rates)}"
        ),
        (
            f"dialogues: preset `nano` of `reference.agentic`, {spec.kept:,} kept, a tenth of the "
            f"training applications set apart for choosing; of the others {plan.copies} copies "
            "each in other words; calls that a tool refused are not learned"
        ),
        f"judged on {plan.tasks} tasks, greedily, at most 8 steps and 64 tokens an answer",
    ]


def _rates(rates: Mapping[Kind, float]) -> str:
    return ", ".join(f"{kind} {rate:g}" for kind, rate in rates.items())


if __name__ == "__main__":
    sys.exit(main(conduct, "Fine-tuning on dialogues with tools, judged on tools never seen."))
