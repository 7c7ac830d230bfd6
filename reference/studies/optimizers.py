"""AdamW, Muon and MuonClip at equal tokens: which loss, and how many tokens for the same loss?

    python -m reference.studies.optimizers [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

Learning rates are tuned with equal effort (`tuning`), then every optimizer runs with three seeds.
Moonlight (arXiv:2502.16982, section 3.2) found that Muon needs about 52 % of AdamW's tokens for
equal loss, each run with its own complete schedule. So are MuonClip's shorter runs here: the
tokens with which it reaches AdamW's loss are read off between them, at the
rate tuned for the full length.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean
from typing import Final, Literal, TypeVar

from reference.config import RunSpec
from reference.studies.command import main
from reference.studies.crossing import reached
from reference.studies.figure import Colour, Curve, Figure, Panel
from reference.studies.outcome import Outcome, key_of
from reference.studies.report import Report, Table, millions, percent
from reference.studies.runs import Workplace, conduct
from reference.studies.scale import Scale, nano
from reference.studies.seeds import between, cells, finals, head, seeds_of, spread
from reference.studies.tuning import at_end, best, tune

Kind = Literal["adamw", "muon", "muonclip"]
NameT = TypeVar("NameT", bound=Hashable)

KINDS: Final[tuple[Kind, ...]] = ("adamw", "muon", "muonclip")
RATES: Final = (4e-3, 8e-3, 1.6e-2)
"""The first grid, the same for all: Muon's update has AdamW's size (section 2.2 of Moonlight)."""
ROUNDS: Final = 4
"""Further rates at most, so that the grid may grow to 16 times either end."""
STEPS: Final = 200
PARTS: Final = (0.4, 0.6)
"""Lengths of MuonClip's shorter runs, as shares of the full one."""
_SHOWN: Final[dict[Kind, tuple[str, Colour]]] = {
    "adamw": ("AdamW", "grey"),
    "muon": ("Muon", "vermilion"),
    "muonclip": ("MuonClip", "blue"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """All outcomes of the study."""

    tried: Mapping[Kind, Mapping[float, Outcome]]
    """By learning rate, with the first seed."""
    full: Mapping[tuple[Kind, int], Outcome]
    """By optimizer and seed, at the tuned rate."""
    shorter: Mapping[tuple[float, int], Outcome]
    """MuonClip's, by share of the full length and seed."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return seeds_of(self.full)

    def rate(self, kind: Kind) -> float:
        """The tuned one."""
        return best(self.tried[kind])

    def finals(self, kind: Kind) -> list[float]:
        """Held-out losses at the end, by seed."""
        return finals(self.full, kind)

    def ratio(self, seed: int) -> float | None:
        """MuonClip's tokens over AdamW's at AdamW's final loss; None where it is not reached."""
        adamw = self.full["adamw", seed]
        runs = [self.shorter[part, seed] for part in sorted({part for part, _ in self.shorter})]
        points = [(run.tokens, run.final) for run in [*runs, self.full["muonclip", seed]]]
        tokens = reached(points, adamw.final)
        return None if tokens is None else tokens / adamw.tokens


def study(quick: bool, place: Workplace) -> Report:
    """Tune, run, compare."""
    scale = nano(quick=quick, steps=STEPS, evaluations=5)
    rates, rounds, parts = (RATES[:2], 0, PARTS) if quick else (RATES, ROUNDS, PARTS)
    found = find(scale, rates, rounds, parts, place)
    return report(found, scale)


def find(
    scale: Scale,
    rates: Sequence[float],
    rounds: int,
    parts: Sequence[float],
    place: Workplace,
) -> Found:
    """All runs."""
    first, *further = scale.seeds

    def at_rates(asked: Sequence[tuple[Kind, float]]) -> dict[tuple[Kind, float], Outcome]:
        runs: dict[tuple[Kind, float], RunSpec] = {
            (kind, lr): scale.run(first, lr, kind=kind) for kind, lr in asked
        }
        return with_muon(runs, place)

    tried = tune(KINDS, rates, at_rates, rounds)
    rate = {kind: best(tried[kind]) for kind in KINDS}
    seeded: dict[tuple[Kind, int], RunSpec] = {
        (kind, seed): scale.run(seed, rate[kind], kind=kind)
        for kind, seed in product(KINDS, further)
    }
    full: dict[tuple[Kind, int], Outcome] = {
        (kind, first): tried[kind][rate[kind]] for kind in KINDS
    }
    full |= with_muon(seeded, place)
    shorter = {
        (part, seed): scale.run(seed, rate["muonclip"], round(scale.steps * part), kind="muonclip")
        for part, seed in product(parts, scale.seeds)
    }
    return Found(tried, full, conduct(shorter, place))


def with_muon(
    runs: Mapping[tuple[Kind, NameT], RunSpec], place: Workplace
) -> dict[tuple[Kind, NameT], Outcome]:
    """The outcomes of runs. One of MuonClip that clipped no head is Muon's, bit by bit, so that
    Muon's is not run again."""
    outcomes = conduct({name: run for name, run in runs.items() if name[0] != "muon"}, place)
    without = {
        key_of(run): outcome
        for name, outcome in outcomes.items()
        if (run := runs[name]).optimizer.kind == "muonclip" and not any(outcome.clipped_heads)
    }
    left: dict[tuple[Kind, NameT], RunSpec] = {}
    for name, run in runs.items():
        if name[0] == "muon":
            optimizer = run.optimizer.model_copy(update={"kind": "muonclip"})
            same = without.get(key_of(run.model_copy(update={"optimizer": optimizer})))
            if same is None:
                left[name] = run
            else:
                outcomes[name] = same
    return outcomes | conduct(left, place)


def report(found: Found, scale: Scale) -> Report:
    """What came out, in words, tables and a figure."""
    return Report(
        name="optimizers",
        title="AdamW, Muon and MuonClip at equal tokens",
        question="Preset nano on the standard library's source: which held-out loss does each "
        "optimizer reach, and how many tokens does MuonClip need for AdamW's?",
        settings=scale.settings(),
        findings=findings(found),
        open=(
            (
                "One small model and few tokens: Moonlight's figure is of models up to 1.5B at "
                "compute-optimal lengths, and nothing here extrapolates."
            ),
            "Weight decay, betas, momentum and schedule are as Moonlight's, not tuned for either.",
        ),
        tables=(
            tuning_table(found.tried),
            _losses(found),
            _tokens(found),
            _entropies(found),
        ),
        figures=(_figure(found),),
    )


def findings(found: Found) -> tuple[str, ...]:
    """Sentences of numbers as they came out."""
    adamw, clip = mean(found.finals("adamw")), mean(found.finals("muonclip"))
    ratios = [found.ratio(seed) for seed in found.seeds]
    known = [ratio for ratio in ratios if ratio is not None]
    shown = ", ".join("not reached" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    heads = sum(sum(found.full["muonclip", seed].clipped_heads) for seed in found.seeds)
    higher, count = _higher(found)
    lower = "lower" if clip < adamw else "not lower"
    average = f", mean {mean(known):.2f}" if len(known) == len(ratios) else ""
    shortest = min(part for part, _ in found.shorter)
    if any(ratio <= shortest for ratio in known):
        average += f"; {shortest:.2f} is an upper bound, since no shorter run was made"
    return (
        (
            f"MuonClip's held-out loss is {lower} than AdamW's: {clip:.4f} against {adamw:.4f} on "
            f"average, standard deviation over seeds {spread(found.finals('muonclip')):.4f} and "
            f"{spread(found.finals('adamw')):.4f}."
        ),
        (
            f"Tokens that MuonClip needs for AdamW's final loss, over AdamW's, by seed: {shown}"
            f"{average}. (Moonlight: about 0.52.)"
        ),
        f"Heads clipped in all of MuonClip's runs at its tuned rate: {heads}."
        + (" Without a clip, Muon and MuonClip are the same run." if not heads else ""),
        (
            f"SVD entropy at the end is higher under MuonClip than under AdamW in "
            f"{percent(higher)} of {count:,} matrices (Moonlight, section 3.4: more than nine of "
            "ten)."
        ),
    )


def tuning_table(tried: Mapping[Kind, Mapping[float, Outcome]]) -> Table:
    """Final held-out loss of every rate tried."""
    rates = sorted({rate for of in tried.values() for rate in of})
    rows = [
        [
            _SHOWN[kind][0],
            *(_cell(of[rate].final, rate == best(of)) if rate in of else "" for rate in rates),
        ]
        for kind, of in tried.items()
    ]
    return Table(
        "Learning rates tried",
        ("", *(f"{rate:.3g}" for rate in rates)),
        rows,
        "Held-out loss with the first seed, the best in bold. Everyone has as many candidates."
        + "".join(
            f" {_SHOWN[kind][0]}'s best is at an end: one further out may be better still."
            for kind, of in tried.items()
            if at_end(of)
        ),
    )


def _cell(loss: float, chosen: bool) -> str:
    return f"**{loss:.4f}**" if chosen else f"{loss:.4f}"


def _losses(found: Found) -> Table:
    rows = [
        [
            _SHOWN[kind][0],
            f"{found.rate(kind):.3g}",
            *cells(found.finals(kind)),
            f"{mean(found.full[kind, seed].bits_per_byte for seed in found.seeds):.4f}",
            f"{max(max(found.full[kind, seed].max_logits) for seed in found.seeds):.0f}",
        ]
        for kind in _SHOWN
    ]
    columns = ("", "rate", *head(found.seeds), "bits per byte", "largest logit")
    return Table("Held-out loss at the end", columns, rows)


def _tokens(found: Found) -> Table:
    rows = []
    for seed in found.seeds:
        adamw, ratio = found.full["adamw", seed], found.ratio(seed)
        parts = sorted({part for part, _ in found.shorter})
        losses = [f"{found.shorter[part, seed].final:.4f}" for part in parts]
        reach = (
            ("not reached", "")
            if ratio is None
            else (millions(ratio * adamw.tokens), f"{ratio:.2f}")
        )
        full = f"{found.full['muonclip', seed].final:.4f}"
        rows.append([str(seed), f"{adamw.final:.4f}", *losses, full, *reach])
    lengths = [found.shorter[part, found.seeds[0]].tokens for part in parts]
    full_length = found.full["muonclip", found.seeds[0]].tokens
    head = ("seed", f"AdamW {millions(full_length)}")
    head += tuple(f"MuonClip {millions(tokens)}" for tokens in (*lengths, full_length))
    return Table(
        "Tokens for AdamW's final loss",
        (*head, "reached at", "ratio"),
        rows,
        "Every column is a run with its own complete schedule; between two lengths the loss is a "
        "straight line over the logarithm of tokens.",
    )


def _entropies(found: Found) -> Table:
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, pairs in _pairs(found).items():
        groups[_group(name)] += pairs
    rows = [
        [
            group,
            str(len(pairs)),
            f"{mean(clip for clip, _ in pairs):.4f}",
            f"{mean(adamw for _, adamw in pairs):.4f}",
            percent(mean(clip > adamw for clip, adamw in pairs)),
        ]
        for group, pairs in sorted(groups.items())
    ]
    head = ("matrices", "count", "MuonClip", "AdamW", "higher under MuonClip")
    note = "All seeds; 1 is an orthogonal matrix, 0 one of rank 1 (Moonlight, section 3.4)."
    return Table("SVD entropy at the end", head, rows, note)


def _pairs(found: Found) -> dict[str, list[tuple[float, float]]]:
    """(MuonClip's, AdamW's) entropy of each matrix with each seed, by parameter."""
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in found.seeds:
        ours, theirs = found.full["muonclip", seed].entropies, found.full["adamw", seed].entropies
        for name, values in ours.items():
            pairs[name] += zip(values, theirs[name], strict=True)
    return pairs


def _higher(found: Found) -> tuple[float, int]:
    """Share of the matrices with a higher entropy under MuonClip, and how many there are."""
    pairs = [pair for of in _pairs(found).values() for pair in of]
    return mean(clip > adamw for clip, adamw in pairs), len(pairs)


def _group(name: str) -> str:
    """What a parameter is a part of."""
    parts = name.split(".")
    for part in ("attention", "router", "shared", "experts"):
        if part in parts:
            return part
    return "dense ffn"


def _figure(found: Found) -> Figure:
    ratios = [ratio for seed in found.seeds if (ratio := found.ratio(seed)) is not None]
    title = "MuonClip does not reach AdamW's final loss with every seed"
    if len(ratios) == len(found.seeds):
        title = f"MuonClip needs {between(ratios, '.2f')} of AdamW's tokens for its final loss"
    rates = ", ".join(f"{_SHOWN[kind][0]} {found.rate(kind):.3g}" for kind in ("adamw", "muonclip"))
    caption = f"A line per seed; dots: mean of complete runs of that length; tuned rates: {rates}"
    curves = [*_curves(found), _complete(found)]
    ends = [y for curve in curves for y in curve.y[1:]]
    span = (min(ends) - 0.05, max(ends))
    panel = Panel("Held-out loss, nats per token", curves, span=span)
    return Figure(title, caption, "Tokens trained on, millions", (panel,))


def _curves(found: Found) -> list[Curve]:
    kinds: tuple[Kind, ...] = ("adamw", "muonclip")
    curves = []
    for kind, seed in product(kinds, found.seeds):
        name, colour = _SHOWN[kind]
        label = f"{name}: {mean(found.finals(kind)):.3f}" if seed == found.seeds[0] else ""
        curve = found.full[kind, seed].curve
        x, y = [tokens / 1e6 for tokens, _ in curve], [loss for _, loss in curve]
        curves.append(Curve(x, y, colour, label, width=1.5))
    return curves


def _complete(found: Found) -> Curve:
    """Complete runs of MuonClip by their length, means over seeds."""
    parts = sorted({part for part, _ in found.shorter})
    lengths = [[found.shorter[part, seed] for seed in found.seeds] for part in parts]
    lengths.append([found.full["muonclip", seed] for seed in found.seeds])
    x = [runs[0].tokens / 1e6 for runs in lengths]
    y = [mean(run.final for run in runs) for runs in lengths]
    return Curve(x, y, "green", "complete runs", dots=True)


if __name__ == "__main__":
    sys.exit(main(study, "AdamW, Muon and MuonClip at equal tokens."))
