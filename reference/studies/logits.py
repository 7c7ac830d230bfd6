"""Do Muon's attention logits explode, and does QK-clip cure it at no cost?

    python -m reference.studies.logits [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

Kimi K2 (arXiv:2507.20534, section 2.1, figure 2): under Muon the largest logits of a mid-size model
pass 1000; with QK-clip they stay at the threshold, 100, and the loss is the same. The threshold
here is K2's. A model of a million weights does not get there in minutes at the rate that is best
for its loss, so the regime is another one, the same for both (`REGIME`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from statistics import mean, median
from typing import Any, Final, Literal

from reference.config import RunSpec
from reference.studies.figure import Colour, Curve, Figure, Panel
from reference.studies.runs import RunOutcome, Scale, finals, nano, train_all
from reference.studies.study import Page, Workplace, main, seeds_of, spread

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

    @property
    def growth(self) -> float:
        """The end over the middle."""
        return self.end / self.half


def conduct(quick: bool, place: Workplace) -> Page:
    """Run both with every seed, and compare."""
    scale = nano(quick=quick, steps=STEPS, sequence=SEQUENCE)
    kinds: tuple[Kind, ...] = ("muon", "muonclip")
    runs: dict[tuple[Kind, int], RunSpec] = {
        (kind, seed): regime(scale, seed, kind) for kind, seed in product(kinds, scale.seeds)
    }
    return page(train_all(runs, place), scale)


def regime(scale: Scale, seed: int, kind: Kind, variant: str = "per_head") -> RunSpec:
    """One run of the regime in which logits grow."""
    clip = {"variant": variant, "threshold": THRESHOLD}
    return scale.run(seed, **REGIME, kind=kind, qk_clip=clip)


def growth(run: RunOutcome) -> Growth:
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


def page(found: Mapping[tuple[Kind, int], RunOutcome], scale: Scale) -> Page:
    """What came out, and the figure of the README."""
    seeds, (costs, noise) = seeds_of(found), _costs(found)
    facts = {
        "found": found,
        "scale": scale,
        "regime": REGIME,
        "threshold": THRESHOLD,
        "kinds": {kind: name for kind, (name, _) in _SHOWN.items()},
        "seeds": seeds,
        "growths": {key: growth(run) for key, run in found.items()},
        "muon": [growth(found["muon", seed]) for seed in seeds],
        "clip": [growth(found["muonclip", seed]) for seed in seeds],
        "losses": {kind: finals(found, kind) for kind in _SHOWN},
        "costs": costs,
        "noise": noise,
    }
    return Page("logits", facts, (figure(found),))


def _costs(found: Mapping[tuple[Kind, int], RunOutcome]) -> tuple[list[float], float]:
    """By seed what MuonClip adds to Muon's held-out loss, and one standard deviation of those
    losses over seeds."""
    clips, muons = finals(found, "muonclip"), finals(found, "muon")
    differences = [clip - muon for clip, muon in zip(clips, muons, strict=True)]
    return differences, max(spread(clips), spread(muons))


def figure(found: Mapping[tuple[Kind, int], RunOutcome]) -> Figure:
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
    ends, (costs, noise) = [growth(found["muon", seed]) for seed in seeds], _costs(found)
    grows = all(one.end > max(THRESHOLD, one.half) for one in ends)
    title = (
        "Under Muon attention logits keep growing; QK-clip holds them, at no cost in loss"
        if grows and mean(costs) <= noise
        else "Attention logits under Muon and MuonClip"
    )
    return Figure(
        title,
        f"Preset nano, learning rate {REGIME['lr']:g}, without weight decay; a line per seed",
        "Optimizer step",
        (
            Panel(
                "Largest attention logit", logits, log=True, level=level, span=(1, max(shown) * 1.3)
            ),
            Panel("Held-out loss, nats per token", losses),
        ),
    )


if __name__ == "__main__":
    sys.exit(main(conduct, "Attention logits under Muon and MuonClip."))
