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
from reference.studies.command import main
from reference.studies.figure import Colour, Curve, Figure, Panel
from reference.studies.logits import REGIME, SEQUENCE, STEPS, THRESHOLD, described, growth, regime
from reference.studies.outcome import Outcome
from reference.studies.report import Report, Table, percent
from reference.studies.runs import Workplace, conduct
from reference.studies.scale import Scale, nano
from reference.studies.seeds import cells, finals, head, seeds_of, spread

Variant = Literal["off", "per_layer", "per_head", "adaptive"]

_SHOWN: Final[dict[Variant, tuple[str, Colour]]] = {
    "off": ("off", "vermilion"),
    "per_layer": ("per layer", "orange"),
    "per_head": ("per head", "blue"),
    "adaptive": ("adaptive", "green"),
}
SEEDS: Final = 2
VARIANTS: Final[tuple[Variant, ...]] = tuple(_SHOWN)


def study(quick: bool, place: Workplace) -> Report:
    """Run every variant with every seed."""
    scale = nano(quick=quick, steps=STEPS, seeds=SEEDS, sequence=SEQUENCE)
    runs: dict[tuple[Variant, int], RunSpec] = {
        (variant, seed): regime(scale, seed, "muon")
        if variant == "off"
        else regime(scale, seed, "muonclip", variant)
        for variant, seed in product(_SHOWN, scale.seeds)
    }
    return report(conduct(runs, place), scale)


def report(found: Mapping[tuple[Variant, int], Outcome], scale: Scale) -> Report:
    """What came out, in words, a table and a figure."""
    heads = scale.base.model.layers * scale.base.model.attention.heads
    return Report(
        name="clip_variants",
        title="QK-clip: off, per layer, per head, adaptive",
        question="Where Muon's attention logits grow: which heads does each variant clip, how "
        "large do logits get, and what does it cost?",
        settings=(
            *scale.settings(),
            described(),
            "Adaptive with its default outlier and floor",
        ),
        findings=findings(found, heads),
        open=(
            (
                f"{heads} heads in all: a median over so few is noisy, and per layer can only "
                "mistake a few heads for others."
            ),
            "Differences of losses below the spread over seeds are none.",
        ),
        tables=(_table(found, heads),),
        figures=(_figure(found),),
    )


def findings(found: Mapping[tuple[Variant, int], Outcome], heads: int) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    losses = {variant: finals(found, variant) for variant in _SHOWN}
    ends = {variant: _end(found, variant) for variant in _SHOWN}
    clipped = {variant: _clipped(found, variant, heads) for variant in _SHOWN}
    low, high = min(map(mean, losses.values())), max(map(mean, losses.values()))
    noise = max(map(spread, losses.values()))
    said = "less" if high - low < noise else "more"
    return (
        "Largest logit at the end, mean over seeds: "
        + ", ".join(f"{_SHOWN[variant][0]} {ends[variant]:.0f}" for variant in _SHOWN)
        + ".",
        "Heads clipped, as a share of all heads in all steps: "
        + ", ".join(f"{_SHOWN[variant][0]} {percent(clipped[variant])}" for variant in VARIANTS[1:])
        + ".",
        "Held-out loss, mean over seeds: "
        + ", ".join(f"{_SHOWN[variant][0]} {mean(losses[variant]):.4f}" for variant in _SHOWN)
        + f". From the lowest to the highest {high - low:.4f}, {said} than one standard deviation "
        f"over seeds ({noise:.4f}).",
    )


def _end(found: Mapping[tuple[Variant, int], Outcome], variant: Variant) -> float:
    return mean(growth(found[variant, seed]).end for seed in seeds_of(found))


def _clipped(found: Mapping[tuple[Variant, int], Outcome], variant: Variant, heads: int) -> float:
    return mean(mean(found[variant, seed].clipped_heads) / heads for seed in seeds_of(found))


def _table(found: Mapping[tuple[Variant, int], Outcome], heads: int) -> Table:
    rows, seeds = [], seeds_of(found)
    for variant, (name, _) in _SHOWN.items():
        largest = max(growth(found[variant, seed]).largest for seed in seeds)
        steps = [growth(found[variant, seed]).clipping for seed in seeds]
        row = [name, f"{_end(found, variant):.1f}", f"{largest:.1f}"]
        row += [percent(_clipped(found, variant, heads)), percent(mean(steps))]
        rows.append([*row, *cells(finals(found, variant))])
    first = ("", "logit at the end", "largest of any step", "heads clipped", "steps with a clip")
    note = "Steps with a clip: from the first one on."
    return Table("Variant by variant", (*first, *head(seeds, "held out, ")), rows, note)


def _figure(found: Mapping[tuple[Variant, int], Outcome]) -> Figure:
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
    sys.exit(main(study, "Variants of QK-clip where attention logits grow."))
