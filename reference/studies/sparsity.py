"""Sparsity at fixed active parameters: does a model with more experts, of which as many work, learn
more from the same tokens?

    python -m reference.studies.sparsity [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

Kimi K2 (arXiv:2507.20534, section 2.3): with 8 active experts, a sparsity (experts over active
ones) of 48 needs 1.69, 1.39 and 1.15 times less FLOP than 8, 16 and 32 for a loss of 1.5. Here
preset nano with 8, 16, 32 and 64 experts, 4 of them active, and everything else as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from statistics import mean
from typing import Final

from reference.studies.figure import Curve, Figure, Panel
from reference.studies.runs import RunOutcome, Scale, finals, nano, train_all, with_experts
from reference.studies.study import Page, Workplace, main, reached, seeds_of, spread

EXPERTS: Final = (8, 16, 32, 64)
STEPS: Final = 300
SEQUENCE: Final = 128
RATE: Final = 1.6e-2
"""Learning rate: near the tuned one of the study of optimizers (0.0113, 16 experts); not tuned for
each."""


def conduct(quick: bool, place: Workplace) -> Page:
    """Run every number of experts with every seed."""
    scale = nano(quick=quick, steps=STEPS, seeds=2, sequence=SEQUENCE)
    experts = EXPERTS[:2] if quick else EXPERTS
    runs = {
        (count, seed): with_experts(scale.run(seed, RATE), count)
        for count, seed in product(experts, scale.seeds)
    }
    return page(train_all(runs, place), scale)


def page(found: Mapping[tuple[int, int], RunOutcome], scale: Scale) -> Page:
    """What came out."""
    assert scale.base.model.moe is not None
    active, counts, seeds = scale.base.model.moe.top_k, _counts(found), seeds_of(found)
    losses = {count: finals(found, count) for count in counts}
    means = {count: mean(of) for count, of in losses.items()}
    flops = {count: found[count, seeds[0]].flop_per_token for count in counts}
    least, most = counts[0], counts[-1]
    facts = {
        "scale": scale,
        "rate": RATE,
        "active": active,
        "counts": counts,
        "seeds": seeds,
        "losses": losses,
        "means": means,
        "falls": all(means[more] < means[less] for less, more in pairwise(counts)),
        "noise": max(map(spread, losses.values())),
        "wins": sum(many < few for few, many in zip(losses[least], losses[most], strict=True)),
        "flops": flops,
        "equal_flop": {count: _equal_flop(found, count) for count in counts},
        "saved": [saving(found, least, most, seed) for seed in seeds],
        "imbalance": {
            count: mean(mean(found[count, seed].imbalances[-50:]) for seed in seeds)
            for count in counts
        },
    }
    return Page("sparsity", facts, (_figure(found, active),))


def saving(
    found: Mapping[tuple[int, int], RunOutcome], fewer: int, more: int, seed: int
) -> float | None:
    """How many times less FLOP the model of more experts needs for the other's final loss; None
    where it does not get there."""
    less, most = found[fewer, seed], found[more, seed]
    tokens = reached(most.curve, less.final)
    if tokens is None:
        return None
    return less.tokens * less.flop_per_token / (tokens * most.flop_per_token)


def _equal_flop(found: Mapping[tuple[int, int], RunOutcome], count: int) -> float:
    """Mean held-out loss after the FLOP that the model with the fewest experts took."""
    least = _counts(found)[0]
    losses = []
    for seed in seeds_of(found):
        run, budget = found[count, seed], found[least, seed]
        tokens = budget.tokens * budget.flop_per_token / run.flop_per_token
        losses.append(_at(run.curve, tokens))
    return mean(losses)


def _at(curve: Sequence[tuple[int, float]], tokens: float) -> float:
    """The loss between two evaluations, along a straight line; the last one at the end."""
    for (start, first), (end, second) in pairwise(curve):
        if start <= tokens <= end:
            return first + (second - first) * (tokens - start) / (end - start)
    return curve[-1][1]


def _counts(found: Mapping[tuple[int, int], RunOutcome]) -> list[int]:
    return sorted({count for count, _ in found})


def _figure(found: Mapping[tuple[int, int], RunOutcome], active: int) -> Figure:
    counts, seeds = _counts(found), seeds_of(found)
    means = [mean(finals(found, count)) for count in counts]
    lines = [
        Curve(counts, [found[count, seed].final for count in counts], "grey", "", 1, faint=True)
        for seed in seeds
    ]
    lines.append(Curve(counts, means, "blue", f"mean of {len(seeds)} seeds", dots=True))
    falls = all(after < before for before, after in pairwise(means))
    title = (
        f"{active} active experts of more: every doubling lowers the loss"
        if falls
        else f"{active} active experts of more: not every doubling lowers the loss"
    )
    caption = "Held-out loss of preset nano at equal tokens; a faint line per seed"
    panel = Panel("Held-out loss, nats per token", lines)
    return Figure(title, caption, "Routed experts", (panel,), x_log=True, x_ticks=counts)


if __name__ == "__main__":
    sys.exit(main(conduct, "Sparsity at fixed active parameters."))
