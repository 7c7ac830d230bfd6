"""Does preset nano learn more than counting can: is it below a 5-gram over the same tokens?

    python -m reference.studies.baseline [--quick] [--output FOLDER] [--jobs N] [--cache FOLDER]

One run of the preset as it is, with `--jobs` threads, beside interpolated modified Kneser-Ney
(`ngram`) of orders 1 to 5, fitted to exactly the tokens that the run consumed and judged on the same
held-out tokens, in bits per byte. The seconds are those of the steps, on a machine that should have
nothing else to do.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from reference.config import RunSpec, load_run
from reference.data.packing import Stream
from reference.data.prepare import prepare
from reference.studies.command import main
from reference.studies.figure import Curve, Figure, Panel
from reference.studies.ngram import fit
from reference.studies.outcome import Outcome
from reference.studies.report import Report, Table, millions
from reference.studies.runs import Workplace, conduct

ORDERS: Final = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Counted:
    """What n-grams make of the run's tokens."""

    bits_per_byte: Mapping[int, float]
    """Of held-out text, by order."""
    tokens: int
    """Held-out ones."""
    bytes: int
    """Of held-out text."""

    def nats_per_token(self, bits_per_byte: float) -> float:
        """The same loss as a model's loss is shown."""
        return bits_per_byte * log(2) * self.bytes / self.tokens


def study(quick: bool, place: Workplace) -> Report:
    """Train, count, compare."""
    words = ["train.final_sequences=null", "train.evaluate_sequences=1000000"]
    words += ["train.device=cpu", f"train.threads={place.jobs}", "train.checkpoint_every=0"]
    if quick:
        words += ["train.steps=10", "train.sequence=64", "train.evaluate_every=0"]
    run = load_run("nano", words)
    outcome = conduct({"nano": run}, place)["nano"]
    return report(run, outcome, counted(run))


def counted(run: RunSpec) -> Counted:
    """N-grams over the tokens that the run consumes, with the last target. Held-out text begins
    after the end of a document, for the n-gram as for the model."""
    prepared = prepare(run.data, run.model.vocab)
    train = run.train
    tokens = train.steps * train.sequence * train.micro_batch * train.accumulate
    seen_N = Stream(prepared.training, run.data.seed).read(0, tokens + 1)
    judged_N = np.concatenate([[prepared.tokenizer.end], prepared.held_out_tokens.ids_N])
    bits = {
        order: fit(seen_N, prepared.tokenizer.vocabulary, order).bits(judged_N) for order in ORDERS
    }
    total = prepared.held_out_bytes
    per_byte = {order: of / total for order, of in bits.items()}
    return Counted(per_byte, len(prepared.held_out_tokens), total)


def report(run: RunSpec, outcome: Outcome, found: Counted) -> Report:
    """What came out, in words, a table and a figure."""
    best, ours = found.bits_per_byte[ORDERS[-1]], outcome.bits_per_byte
    train = run.train
    return Report(
        name="baseline",
        title="Preset nano against a 5-gram",
        question="After the same tokens, which predicts held-out text better: preset nano, or "
        "interpolated modified Kneser-Ney of order 5?",
        settings=(
            f"Preset nano, {train.precision}, {train.steps:,} steps of "
            f"{outcome.tokens_per_step:,} tokens, {train.threads} threads, seed {train.seed}",
            f"Held out: {found.tokens:,} tokens, {found.bytes:,} bytes of text",
        ),
        findings=(
            f"Preset nano is {'below' if ours < best else 'not below'} the 5-gram: {ours:.4f} "
            f"against {best:.4f} bits per byte, after {millions(outcome.tokens)} tokens.",
            f"Its steps took `{outcome.seconds:.0f} s` on {train.threads} threads, evaluations "
            "aside; on a machine with other work to do it is longer.",
        ),
        open=(
            "One seed, and one corpus: source text, in which names come again and again; the "
            "n-gram sees four tokens back, and no cache of what it has just read.",
        ),
        tables=(_table(outcome, found),),
        figures=(_figure(outcome, found),),
    )


def _table(outcome: Outcome, found: Counted) -> Table:
    rows = [
        [f"{order}-gram", f"{bits:.4f}", f"{found.nats_per_token(bits):.4f}"]
        for order, bits in found.bits_per_byte.items()
    ]
    rows.append(["preset nano", f"{outcome.bits_per_byte:.4f}", f"{outcome.final:.4f}"])
    head = ("", "bits per byte", "nats per token")
    note = "Of the same held-out text, ends of documents included."
    return Table("Held-out loss", head, rows, note)


def _figure(outcome: Outcome, found: Counted) -> Figure:
    bits = found.bits_per_byte[ORDERS[-1]]
    verb = "is below" if outcome.bits_per_byte < bits else "is not below"
    curve = Curve(
        [tokens / 1e6 for tokens, _ in outcome.curve],
        [loss for _, loss in outcome.curve],
        "blue",
        f"preset nano: {outcome.final:.3f}",
        dots=True,
    )
    level = (found.nats_per_token(bits), f"5-gram: {found.nats_per_token(bits):.3f}")
    losses = [*curve.y, level[0]]
    span = (min(losses) - 0.1, max(losses) + 0.1)
    panel = Panel("Held-out loss, nats per token", (curve,), level=level, span=span)
    title = f"Preset nano {verb} a 5-gram over the same {millions(outcome.tokens)} tokens"
    caption = "The dashed line is Kneser-Ney over all of these tokens"
    return Figure(title, caption, "Tokens trained on, millions", (panel,))


if __name__ == "__main__":
    sys.exit(main(study, "Preset nano against a 5-gram over the same tokens."))
