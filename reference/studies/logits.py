"""Do Muon's attention logits explode, and does QK-clip cure it at no cost?

    python -m reference.studies.logits [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

Kimi K2 (arXiv:2507.20534, section 2.1, figure 2): under Muon the largest logits of a mid-size model
pass 1000; with QK-clip they stay at the threshold, 100, and the loss is the same. The threshold
here is K2's. A model of a million weights does not get there in minutes at the rate that is best
for its loss, so the regime is another one, the same for both (`REGIME`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, median
from typing import Any, Final, Literal

from reference.config import RunSpec
from reference.studies.command import main
from reference.studies.figure import Colour, Curve, Figure, Panel
from reference.studies.outcome import Outcome
from reference.studies.report import Report, Table, percent
from reference.studies.runs import Workplace, conduct
from reference.studies.scale import Scale, nano
from reference.studies.seeds import between, finals, seeds_of, spread

Kind = Literal["muon", "muonclip"]

REGIME: Final[Mapping[str, Any]] = {
    "lr": 0.03,
    "weight_decay": 0.0,
    "adamw": {"lr_scale": 0.1},
    "decay": 0.2,
}
"""A high rate for matrices, and a tenth of it for what AdamW moves, which would not learn at it. No
weight decay: a step at this rate would take 0.3 % of every weight, where one of K2's takes 0.002 %,
and growth would end before it is an explosion. The rate falls in the last fifth alone, so that
final losses can be compared."""
STEPS: Final = 400
SEQUENCE: Final = 128
"""Tokens of each; eight per step."""
THRESHOLD: Final = 100.0
"""K2's (section 2.1)."""
_SHOWN: Final[dict[Kind, tuple[str, Colour]]] = {
    "muon": ("Muon", "vermilion"),
    "muonclip": ("MuonClip", "blue"),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """What the largest logit of a run did."""

    passed: int | None
    """The first step above the threshold."""
    half: float
    """Mean over the tenth of the steps around the middle."""
    end: float
    """Mean over the last tenth."""
    largest: float
    clipping: float
    """Share of the steps, from the first clip on, in which a head was clipped."""


def study(quick: bool, place: Workplace) -> Report:
    """Run both with every seed, and compare."""
    scale = nano(quick=quick, steps=STEPS, sequence=SEQUENCE)
    kinds: tuple[Kind, ...] = ("muon", "muonclip")
    runs: dict[tuple[Kind, int], RunSpec] = {
        (kind, seed): regime(scale, seed, kind) for kind, seed in product(kinds, scale.seeds)
    }
    return report(conduct(runs, place), scale)


def regime(scale: Scale, seed: int, kind: Kind, variant: str = "per_head") -> RunSpec:
    """One run of the regime in which logits grow."""
    clip = {"variant": variant, "threshold": THRESHOLD}
    return scale.run(seed, **REGIME, kind=kind, qk_clip=clip)


def described() -> str:
    """The regime, for a reader."""
    scale, decay = REGIME["adamw"]["lr_scale"], REGIME["decay"]
    return (
        f"All alike: learning rate {REGIME['lr']:g} for matrices, {scale:g} times it for the rest, "
        f"falling over the last {decay:g} of the steps alone; weight decay "
        f"{REGIME['weight_decay']:g}; QK-clip's threshold {THRESHOLD:g}, as Kimi K2's"
    )


def growth(run: Outcome) -> Growth:
    """What the largest logit did, in numbers."""
    logits = run.max_logits
    tenth = max(1, len(logits) // 10)
    middle = (len(logits) - tenth) // 2
    first = next((at for at, heads in enumerate(run.clipped_heads) if heads), None)
    since = run.clipped_heads[first:] if first is not None else ()
    return Growth(
        passed=next((at + 1 for at, logit in enumerate(logits) if logit > THRESHOLD), None),
        half=mean(logits[middle : middle + tenth]),
        end=mean(logits[-tenth:]),
        largest=max(logits),
        clipping=mean(heads > 0 for heads in since) if since else 0.0,
    )


def report(found: Mapping[tuple[Kind, int], Outcome], scale: Scale) -> Report:
    """What came out, in words, a table and the figure of the README."""
    return Report(
        name="logits",
        title="The explosion of attention logits under Muon, and its cure",
        question="Do the largest attention logits of preset nano keep growing under Muon, does "
        "MuonClip hold them at the threshold, and what does that cost?",
        settings=(
            *scale.settings(),
            described(),
        ),
        findings=findings(found),
        open=(
            (
                "The rate is above the one that is best for the loss "
                "(see the study of optimizers): a small model shows the explosion only there."
            ),
            "How stable a long run is. Here no run is long enough to fail from its logits.",
        ),
        tables=(_table(found),),
        figures=(figure(found),),
    )


def findings(found: Mapping[tuple[Kind, int], Outcome]) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    seeds = seeds_of(found)
    muon = [growth(found["muon", seed]) for seed in seeds]
    clip = [growth(found["muonclip", seed]) for seed in seeds]
    passed = [one.passed for one in muon if one.passed is not None]
    first = (
        f"Muon's largest logit passes {THRESHOLD:g} with {len(passed)} of {len(seeds)} seeds"
        + (f", after {min(passed)} to {max(passed)} steps" if passed else "")
        + f"; at the end it is {between([one.end for one in muon], '.0f')}, "
        f"{between([one.end / one.half for one in muon], '.2f')} times that of half-way."
    )
    ends = between([one.end for one in clip], ".0f")
    held = (
        f"MuonClip's largest logit is {ends} at the end; the largest of any step is "
        f"{max(one.largest for one in clip):.0f}. A clip comes after the step that "
        "passed the threshold, and the next step may pass it again: heads are clipped in "
        f"{_percents([one.clipping for one in clip])} of the steps since the first clip."
    )
    return (first, held, _penalty(found))


def _penalty(found: Mapping[tuple[Kind, int], Outcome]) -> str:
    clips, muons = finals(found, "muonclip"), finals(found, "muon")
    differences = [clip - muon for clip, muon in zip(clips, muons, strict=True)]
    noise = max(spread(clips), spread(muons))
    gap = mean(differences)
    shown = ", ".join(f"{one:+.4f}" for one in differences)
    lower = sum(one < 0 for one in differences)
    verdict = "above" if gap > noise else "not above"
    return (
        f"Held-out loss: MuonClip {mean(clips):.4f}, Muon {mean(muons):.4f}; "
        f"MuonClip's is lower with {lower} of {len(clips)} seeds (difference "
        f"{shown}; mean {gap:+.4f}, {verdict} one standard deviation over seeds, {noise:.4f})."
    )


def figure(found: Mapping[tuple[Kind, int], Outcome]) -> Figure:
    """The largest logit above, on a logarithmic axis, and the loss below; every seed a line."""
    logits, losses, seeds = [], [], seeds_of(found)
    for (kind, (name, colour)), seed in product(_SHOWN.items(), seeds):
        run, first = found[kind, seed], seed == seeds[0]
        steps = range(1, len(run.losses) + 1)
        end = median(growth(found[kind, one]).end for one in seeds)
        held = mean(finals(found, kind))
        logits.append(Curve(steps, run.max_logits, colour, f"{name}: {end:.0f}" if first else ""))
        at, loss = zip(*run.held_out, strict=True)
        losses.append(Curve(at, loss, colour, f"{name}: {held:.3f}" if first else "", width=1.5))
    level = (THRESHOLD, f"threshold {THRESHOLD:g}")
    shown = [logit for curve in logits for logit in curve.y]
    ends = [growth(found["muon", seed]) for seed in seeds]
    grows = all(one.end > max(THRESHOLD, one.half) for one in ends)
    title = (
        "Under Muon attention logits keep growing; QK-clip holds them, at no cost in loss"
        if grows and "not above" in _penalty(found)
        else "Attention logits under Muon and MuonClip"
    )
    return Figure(
        title,
        f"Preset nano, learning rate {REGIME['lr']:g}, without weight decay; a line per seed",
        "Optimizer step",
        (
            Panel("Largest attention logit", logits, log=True, level=level, span=_decades(shown)),
            Panel("Held-out loss, nats per token", losses),
        ),
    )


def _table(found: Mapping[tuple[Kind, int], Outcome]) -> Table:
    rows = []
    for (kind, (name, _)), seed in product(_SHOWN.items(), seeds_of(found)):
        run, of = found[kind, seed], growth(found[kind, seed])
        row = [name, str(seed), str(of.passed or "never"), f"{of.half:.1f}", f"{of.end:.1f}"]
        row += [f"{of.largest:.1f}", str(sum(run.clipped_heads)), f"{run.final:.4f}"]
        rows.append(row)
    head = ("", "seed", "passed at step", "half-way", "end", "largest", "heads clipped", "held out")
    note = "Largest logit of all heads, means over a tenth of the steps; clips summed over steps."
    return Table("Run by run", head, rows, note)


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """From 1, below which nobody needs to look, to above the largest."""
    return 1.0, max(values) * 1.3


def _percents(shares: Sequence[float]) -> str:
    low, high = percent(min(shares), 0), percent(max(shares), 0)
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    sys.exit(main(study, "Attention logits under Muon and MuonClip."))
