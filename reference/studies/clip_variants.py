"""QK-clip's variants where logits grow: whom they clip, what they hold, what they cost.

    python -m reference.studies.clip_variants [--quick] [--output FOLDER] [--jobs N]

The runs of `logits` with the clip off, per layer (one factor for all heads of a layer), per head
(Kimi K2's, arXiv:2507.20534, section 2.1, which spares heads that did nothing), and adaptive (ours,
`reference.optim.qk_clip`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from statistics import mean
from typing import Final, Literal

from reference.config import RunSpec
from reference.studies.figure import Colour, Curve, Figure, Panel
from reference.studies.logits import REGIME, SEQUENCE, STEPS, THRESHOLD, growth, regime
from reference.studies.runs import RunOutcome, Scale, finals, nano, train_all
from reference.studies.study import Page, Workplace, main, seeds_of, spread

Variant = Literal["off", "per_layer", "per_head", "adaptive"]

_SHOWN: Final[dict[Variant, tuple[str, Colour]]] = {
    "off": ("off", "vermilion"),
    "per_layer": ("per layer", "orange"),
    "per_head": ("per head", "blue"),
    "adaptive": ("adaptive", "green"),
}
SEEDS: Final = 2
VARIANTS: Final[tuple[Variant, ...]] = tuple(_SHOWN)


def conduct(quick: bool, place: Workplace) -> Page:
    """Run every variant with every seed."""
    scale = nano(quick=quick, steps=STEPS, seeds=SEEDS, sequence=SEQUENCE)
    runs: dict[tuple[Variant, int], RunSpec] = {
        (variant, seed): regime(scale, seed, "muon")
        if variant == "off"
        else regime(scale, seed, "muonclip", variant)
        for variant, seed in product(_SHOWN, scale.seeds)
    }
    return page(train_all(runs, place), scale)


def page(found: Mapping[tuple[Variant, int], RunOutcome], scale: Scale) -> Page:
    """What came out."""
    heads = scale.base.model.layers * scale.base.model.attention.heads
    runs = {variant: [found[variant, seed] for seed in seeds_of(found)] for variant in VARIANTS}
    losses = {variant: finals(found, variant) for variant in VARIANTS}
    means = [mean(of) for of in losses.values()]
    facts = {
        "scale": scale,
        "regime": REGIME,
        "threshold": THRESHOLD,
        "variants": {variant: name for variant, (name, _) in _SHOWN.items()},
        "seeds": seeds_of(found),
        "heads": heads,
        "growths": {variant: [growth(run) for run in of] for variant, of in runs.items()},
        "clipped": {
            variant: mean(mean(run.clipped_heads) / heads for run in of)
            for variant, of in runs.items()
        },
        "losses": losses,
        "apart": max(means) - min(means),
        "noise": max(map(spread, losses.values())),
    }
    return Page("clip_variants", facts, (_figure(found),))


def _figure(found: Mapping[tuple[Variant, int], RunOutcome]) -> Figure:
    logits, clips, first = [], [], seeds_of(found)[0]
    for variant, (name, colour) in _SHOWN.items():
        run = found[variant, first]
        steps = range(1, len(run.max_logits) + 1)
        logits.append(Curve(steps, run.max_logits, colour, name, width=1.5))
        if variant != "off":
            total = [sum(run.clipped_heads[:at]) for at in steps]
            clips.append(Curve(steps, total, colour, f"{name}: {total[-1]:,}"))
    level = (THRESHOLD, f"threshold {THRESHOLD:g}")
    top = max(max(curve.y) for curve in logits) * 1.3
    clipped = {one: sum(found[one, first].clipped_heads) for one in ("per_layer", "per_head")}
    title = (
        f"Per layer clips {clipped['per_layer'] / clipped['per_head']:.1f} times as many heads as "
        "per head"
        if clipped["per_head"]
        else "No head passed the threshold"
    )
    caption = f"Preset nano at learning rate {REGIME['lr']:g}, seed {first}"
    panels = (
        Panel("Largest attention logit", logits, log=True, level=level, span=(1.0, top)),
        Panel("Heads clipped so far", clips),
    )
    return Figure(title, caption, "Optimizer step", panels)


if __name__ == "__main__":
    sys.exit(main(conduct, "Variants of QK-clip where attention logits grow."))
