"""The baseline that a trained model must beat: interpolated modified Kneser-Ney over token ids.

What is learnt from text by counting alone, at its best: Chen and Goodman, "An empirical study of
smoothing techniques for language modeling" (Harvard TR-10-98, 1998), interpolated with three
discounts per order. With c the counts of an order, c(h) their sum over what follows h, and N1, N2,
N3 the numbers of words that follow h once, twice, and more often,

    p(w | h) = (c(hw) - D(c(hw))) / c(h) + (D1 N1(h) + D2 N2(h) + D3 N3(h)) / c(h) * p(w | h')

where h' is h without its first word. The highest order counts occurrences; every lower one counts
the different words before a gram. Below the unigrams stands 1 / vocabulary, so the model is closed:
every id has a probability and they sum to 1. Discounts (their equation 26, section 2.8): with
n1..n4 the numbers of grams that have the count 1..4, and Y = n1 / (n1 + 2 n2),

    D1 = 1 - 2 Y n2 / n1,   D2 = 2 - 3 Y n3 / n2,   D3 = 3 - 4 Y n4 / n3

Where one of n1..n4 is 0, or a discount leaves [0, count], which happens in small texts and among
few unigrams, 0.5, 1 and 1.5 take their place (KenLM's `--discount_fallback`).

Both sides are judged alike: on the tokens that a run consumed, each document once; on the same
held-out tokens, ends of documents included, per byte of text.

Legend: N tokens, G different grams of an order, C contexts of an order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.config import RunSpec, load_run
from reference.ending import exit_code
from reference.metrics import NAME, read_lines
from reference.text.loader import Loader
from reference.text.packing import Tokens
from reference.text.prepare import prepare
from twin.errors import Problem, UsageError

Ids = NDArray[np.integer]
_FALLBACK = (0.5, 1.0, 1.5)
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Order:
    """The grams of one length: a context, numbered as the grams one shorter, and the word after."""

    grams_G: NDArray[np.int64]
    """context * vocabulary + word, ascending."""
    share_G: NDArray[np.float64]
    """Discounted count over the count of the context."""
    backoff_C: NDArray[np.float64]
    """What discounts took from each context: the weight of the shorter context; 1 where nothing
    ever followed. The last place is that of contexts that are unknown."""
    discounts: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class KneserNey:
    """A model of the next token given those before it."""

    vocabulary: int
    orders: tuple[Order, ...]
    """Unigrams first."""

    def probabilities(self, tokens_N: Ids) -> NDArray[np.float64]:
        """Of each token but the first, given all before it (as many as the order knows)."""
        word_N = np.asarray(tokens_N, dtype=np.int64)
        context_N = np.zeros(len(word_N), dtype=np.int64)
        probability_N = np.full(len(word_N), 1 / self.vocabulary)
        for order in self.orders:
            gram_N = _find(order.grams_G, context_N, word_N, self.vocabulary)
            share_N = np.where(gram_N == _UNKNOWN, 0.0, order.share_G[gram_N])
            probability_N = share_N + order.backoff_C[context_N] * probability_N
            context_N = np.concatenate([[_UNKNOWN], gram_N[:-1]])
        return probability_N[1:]

    def bits(self, tokens_N: Ids) -> float:
        """Bits to write down all tokens but the first."""
        return -float(np.log2(self.probabilities(tokens_N)).sum())


def fit(tokens_N: Ids, vocabulary: int, order: int = 5) -> KneserNey:
    """The model of a row of ids below `vocabulary`. Before the first one stands a word of its own,
    as often as the order needs, which nothing predicts."""
    word_N = np.asarray(tokens_N, dtype=np.int64)
    context_N = np.zeros(len(word_N), dtype=np.int64)
    lengths: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []
    contexts = [1]
    gram_N = context_N
    for _ in range(order):
        grams_G, first_G, longer_N = np.unique(
            context_N * vocabulary + word_N, return_index=True, return_inverse=True
        )
        if lengths:  # each different longer gram has one more word before the shorter one
            counts.append(np.bincount(gram_N[first_G], minlength=len(lengths[-1])))
        lengths.append(grams_G)
        contexts.append(len(grams_G) + 1)  # and the beginning, which ends no gram
        gram_N = longer_N
        context_N = np.concatenate([[len(grams_G)], gram_N[:-1]])
    counts.append(np.bincount(gram_N, minlength=len(lengths[-1])))
    return KneserNey(
        vocabulary,
        tuple(
            _smoothed(grams_G, count_G, size, vocabulary)
            for grams_G, count_G, size in zip(lengths, counts, contexts, strict=False)
        ),
    )


def _smoothed(
    grams_G: NDArray[np.int64], count_G: NDArray[np.int64], contexts: int, vocabulary: int
) -> Order:
    """An order from its counts, real ones or of continuations."""
    discounts = _discounts(count_G)
    discount_G = np.array([0.0, *discounts])[np.minimum(count_G, 3)]
    context_G = grams_G // vocabulary
    total_C = np.bincount(context_G, weights=count_G, minlength=contexts)
    taken_C = np.bincount(context_G, weights=discount_G, minlength=contexts)
    backoff_C = np.divide(taken_C, total_C, out=np.ones(contexts), where=total_C > 0)
    share_G = (count_G - discount_G) / total_C[context_G]
    return Order(grams_G, share_G, np.append(backoff_C, 1.0), discounts)


def _discounts(count_G: NDArray[np.int64]) -> tuple[float, float, float]:
    """D1, D2 and D3 of an order, from how many of its grams have the counts 1 to 4."""
    n1, n2, n3, n4 = np.bincount(np.minimum(count_G, 5), minlength=6)[1:5].tolist()
    if not (n1 and n2 and n3 and n4):
        return _FALLBACK
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    fair = all(0 <= discount <= count for count, discount in enumerate(found, start=1))
    return found if fair else _FALLBACK


def _find(
    grams_G: NDArray[np.int64],
    context_N: NDArray[np.int64],
    word_N: NDArray[np.int64],
    vocabulary: int,
) -> NDArray[np.int64]:
    """The number of each gram, or -1 where it, or its context, never occurred."""
    wanted_N = context_N * vocabulary + word_N
    place_N = np.minimum(np.searchsorted(grams_G, wanted_N), len(grams_G) - 1)
    known_N = (context_N != _UNKNOWN) & (grams_G[place_N] == wanted_N)
    return np.where(known_N, place_N, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What counting alone reaches on the tokens of a run."""

    tokens: int
    """Different training tokens that were counted."""
    judged: int
    """Held-out tokens predicted."""
    bits_per_byte: float


def baseline(run: RunSpec, tokens: int, judged: int | None = None) -> Comparison:
    """The 5-gram model over the first `tokens` that the run's loader gives, each document at most
    once: a second time would spoil the counts of counts. Judged on the first `judged` held-out
    tokens, all of them if None, in bits per byte. Raises `UsageError` as `prepare` does, TW229
    where nothing is held out."""
    prepared = prepare(run.data, run.model.vocab)
    if not prepared.held_out_bytes:
        hint = "set data.held_out to a share such as 0.05"
        raise UsageError(
            [Problem("TW229", "data.held_out", "no text is held out to judge by", hint)]
        )
    taken_N = _taken(run, prepared.training, tokens)
    model = fit(taken_N, prepared.tokenizer.vocabulary)
    targets_N = prepared.held_out_tokens.ids_N[:judged]
    bits = model.bits(np.concatenate([[prepared.tokenizer.end], targets_N]))
    bytes_ = int(prepared.tokenizer.token_bytes[targets_N].sum())
    return Comparison(len(taken_N), len(targets_N), bits / bytes_)


def _taken(run: RunSpec, training: Tokens, tokens: int) -> Ids:
    """The ids that the run's loader gives first; all of them, where they are as many or more.
    Sequences that were neighbours in the text are neighbours again."""
    if tokens >= len(training):
        return np.asarray(training.ids_N)
    loader, pieces = Loader(training, run.train.sequence, 1, run.data.seed), []
    for part in (run.train, *run.stages):
        loader = loader.with_sequences(part.sequence, 1)
        planned = part.steps * part.micro_batch * part.accumulate
        loader.taken = min(planned, -(-tokens // part.sequence))
        pieces.append(loader.consumed())
        tokens -= loader.taken * part.sequence
        if tokens <= 0:
            break
    return np.concatenate(pieces)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the baseline and, of a run's folder, what the run reached; the exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(options: argparse.Namespace) -> int:
    run = load_run(options.preset, options.set)
    if options.run is None:
        lines = [_told(baseline(run, options.tokens or _planned(run)))]
    else:
        lines = _against(run, Path(options.run))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def _against(run: RunSpec, folder: Path) -> list[str]:
    """The baseline on the tokens of a run's last evaluation, and that evaluation."""
    reached, tokens = _reached(folder)
    found = baseline(run, tokens, reached["tokens"])
    bits = reached["bits_per_byte"]
    share = f"{bits / found.bits_per_byte:.3f} of the baseline"
    return [_told(found), f"{folder}, step {reached['step']}: {bits:.4f} bits per byte, {share}"]


def _told(found: Comparison) -> str:
    bits = f"{found.bits_per_byte:.4f} bits per byte of {found.judged:,} held-out tokens"
    return f"5-gram Kneser-Ney over {found.tokens:,} tokens: {bits}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.studies.ngram",
        description="What counting 5-grams reaches on the tokens that a run trains on.",
    )
    parser.add_argument("--preset", required=True, help="the run's configuration: preset or file")
    parser.add_argument("--set", metavar="A.B=VALUE", action="append", default=[])
    parser.add_argument("--tokens", type=_positive, help="training tokens [default: all]")
    parser.add_argument("--run", metavar="FOLDER", help="compare with the last evaluation there")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"`{text}` is no number of tokens")
    return int(text)


def _planned(run: RunSpec) -> int:
    """Tokens that the run will have trained on."""
    return sum(
        part.steps * part.sequence * part.micro_batch * part.accumulate
        for part in (run.train, *run.stages)
    )


def _reached(folder: Path) -> tuple[dict[str, Any], int]:
    """The last evaluation of a run, and the tokens that it had trained on by then."""
    lines = read_lines(folder / NAME)
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    if not evaluations:
        hint = "give the folder that `reference.train` wrote (`train.output`)"
        wrong = f"`{folder / NAME}` has no evaluation"
        raise UsageError([Problem("TW229", "--run", wrong, hint)])
    last = evaluations[-1]
    step = next(line for line in lines if line["kind"] == "step" and line["step"] == last["step"])
    return last, step["tokens"]


if __name__ == "__main__":
    sys.exit(main())
