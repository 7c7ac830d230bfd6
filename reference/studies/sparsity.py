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

from reference.studies.command import main
from reference.studies.crossing import reached
from reference.studies.figure import Curve, Figure, Panel
from reference.studies.outcome import Outcome
from reference.studies.report import Report, Table
from reference.studies.runs import Workplace, conduct
from reference.studies.scale import Scale, nano, with_experts
from reference.studies.seeds import cells, finals, head, seeds_of, spread

EXPERTS: Final = (8, 16, 32, 64)
STEPS: Final = 300
SEQUENCE: Final = 128
RATE: Final = 1.6e-2
"""Learning rate: near the tuned one of the study of optimizers (0.0113, 16 experts); not tuned for
each."""


def study(quick: bool, place: Workplace) -> Report:
    """Run every number of experts with every seed."""
    scale = nano(quick=quick, steps=STEPS, seeds=2, sequence=SEQUENCE)
    experts = EXPERTS[:2] if quick else EXPERTS
    runs = {
        (count, seed): with_experts(scale.run(seed, RATE), count)
        for count, seed in product(experts, scale.seeds)
    }
    return report(conduct(runs, place), scale)


def report(found: Mapping[tuple[int, int], Outcome], scale: Scale) -> Report:
    """What came out, in words, a table and a figure."""
    assert scale.base.model.moe is not None
    active = scale.base.model.moe.top_k
    return Report(
        name="sparsity",
        title="Sparsity at fixed active parameters",
        question=f"Preset nano with {', '.join(map(str, _counts(found)))} experts, {active} of "
        "them active: what does sparsity buy at equal tokens, and at equal FLOP?",
        settings=(
            *scale.settings(),
            (
                f"MuonClip, learning rate {RATE:g} for all: near the best of the study of "
                "optimizers, which had 16 experts"
            ),
            (
                "The scale of the routed experts stays 1.991: the rule it comes from would give "
                "1.971 for 8 and 1.998 for 64"
            ),
        ),
        findings=findings(found, active),
        open=(
            (
                "Runs this short leave experts with few tokens each: with 64 experts, one sees a "
                "sixteenth of them."
            ),
            "K2's law is about compute-optimal training; here all models see the same tokens.",
        ),
        tables=(_table(found, active),),
        figures=(_figure(found, active),),
    )


def findings(found: Mapping[tuple[int, int], Outcome], active: int) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    counts, seeds = _counts(found), seeds_of(found)
    means = {count: mean(finals(found, count)) for count in counts}
    falls = all(means[more] < means[less] for less, more in pairwise(counts))
    noise = max(spread(finals(found, count)) for count in counts)
    least, most = counts[0], counts[-1]
    wins = sum(found[most, seed].final < found[least, seed].final for seed in seeds)
    flops = [found[count, seeds[0]].flop_per_token for count in counts]
    saved = [saving(found, least, most, seed) for seed in seeds]
    shown = ", ".join("not reached" if one is None else f"{one:.2f}" for one in saved)
    return (
        "At equal tokens the held-out loss "
        + ("falls with every doubling of the experts: " if falls else "does not fall with each: ")
        + ", ".join(f"{count}: {means[count]:.4f}" for count in counts)
        + f"; standard deviation over seeds at most {noise:.4f}.",
        (
            f"{most} experts against {least}: lower with {wins} of {len(seeds)} seeds, mean "
            f"difference {means[most] - means[least]:+.4f}."
        ),
        f"FLOP per token differ by the router alone: {max(flops) / min(flops):.4f} times from the "
        "fewest experts to the most. At equal FLOP, so many fewer tokens: "
        + ", ".join(f"{count}: {_equal_flop(found, count):.4f}" for count in counts)
        + ".",
        (
            f"FLOP with {least} experts over those with {most}, at the final loss of {least}, by "
            f"seed: {shown}. Read off inside of a run whose learning rate had not fallen yet, so "
            "it understates. "
            f"(K2: 1.69 for a sparsity of 48 against 8; here {most // active} against "
            f"{least // active}.)"
        ),
    )


def saving(
    found: Mapping[tuple[int, int], Outcome], fewer: int, more: int, seed: int
) -> float | None:
    """How many times less FLOP the model of more experts needs for the other's final loss; None
    where it does not get there."""
    less, most = found[fewer, seed], found[more, seed]
    tokens = reached(most.curve, less.final)
    if tokens is None:
        return None
    return less.tokens * less.flop_per_token / (tokens * most.flop_per_token)


def _equal_flop(found: Mapping[tuple[int, int], Outcome], count: int) -> float:
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


def _counts(found: Mapping[tuple[int, int], Outcome]) -> list[int]:
    return sorted({count for count, _ in found})


def _table(found: Mapping[tuple[int, int], Outcome], active: int) -> Table:
    seeds = seeds_of(found)
    rows = [
        [
            str(count),
            f"{count / active:g}",
            f"{found[count, seeds[0]].flop_per_token / 1e6:.3f}M",
            *cells(finals(found, count)),
            f"{_equal_flop(found, count):.4f}",
            f"{mean(mean(found[count, seed].imbalances[-50:]) for seed in seeds):.2f}",
        ]
        for count in _counts(found)
    ]
    columns = ("experts", "sparsity", "FLOP per token", *head(seeds), "at equal FLOP", "imbalance")
    note = (
        "Held-out loss. Imbalance: tokens of the fullest expert over the mean, in the worst layer, "
        "mean over the last 50 steps."
    )
    return Table("Loss by number of experts", columns, rows, note)


def _figure(found: Mapping[tuple[int, int], Outcome], active: int) -> Figure:
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
    sys.exit(main(study, "Sparsity at fixed active parameters."))
