"""The Kneser-Ney baseline against hand calculation, its laws, and a slow one by the book."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.config import load_run
from reference.studies.ngram import _discounts, baseline, fit, main
from reference.text.loader import Loader
from reference.text.prepare import prepare
from twin.errors import UsageError

BEGIN = -1
Gram = tuple[int, ...]


class ByTheBook:
    """Chen and Goodman's recursion in dictionaries and fractions, one word at a time."""

    def __init__(self, tokens: list[int], vocabulary: int, order: int) -> None:
        self.vocabulary, self.order = vocabulary, order
        padded = [BEGIN] * (order - 1) + tokens
        ends = range(order - 1, len(padded))
        seen = {
            length: [tuple(padded[end - length + 1 : end + 1]) for end in ends]
            for length in range(1, order + 1)
        }
        self.counts: dict[int, dict[Gram, int]] = {order: defaultdict(int)}
        for gram in seen[order]:
            self.counts[order][gram] += 1
        for length in range(1, order):
            before: dict[Gram, set[int]] = defaultdict(set)
            for gram in seen[length + 1]:
                before[gram[1:]].add(gram[0])
            self.counts[length] = {gram: len(words) for gram, words in before.items()}
        self.discounts = {
            length: (0, *map(Fraction, _discounts(np.array([*counts.values()]))))
            for length, counts in self.counts.items()
        }

    def probability(self, word: int, context: Gram) -> Fraction:
        context = context[-(self.order - 1) :] if self.order > 1 else ()
        length = len(context) + 1
        lower = self.probability(word, context[1:]) if context else Fraction(1, self.vocabulary)
        after = {
            gram[-1]: count for gram, count in self.counts[length].items() if gram[:-1] == context
        }
        if not after:
            return lower
        discounts = self.discounts[length]
        total = sum(after.values())
        left = sum((discounts[min(count, 3)] for count in after.values()), Fraction(0))
        own = after.get(word, 0)
        return (own - discounts[min(own, 3)] + left * lower) / total


def text(seed: int, count: int, words: int) -> np.ndarray:
    """Ids with frequencies like those of words, and habits: the next often follows the last."""
    chance = np.random.default_rng(seed)
    ids = np.minimum(chance.geometric(0.3, count) - 1, words - 1)
    habit = chance.random(count) < 0.6
    for place in range(1, count):
        if habit[place]:
            ids[place] = (ids[place - 1] * 3 + 1) % words
    return ids


def test_a_text_of_three_words_by_hand() -> None:
    """a b a, bigrams. Before a stand the beginning and b, before b stands a: the unigrams count 2
    and 1. No count is 3, so the discounts are 0.5 and 1.
    p(a) = (2 - 1) / 3 + (0.5 + 1) / 3 / 2 = 7/12, p(b) = (1 - 0.5) / 3 + 1/4 = 5/12;
    p(b | a) = (1 - 0.5) / 1 + 0.5 * 5/12 = 17/24, p(a | b) = 1/2 + 0.5 * 7/12 = 19/24."""
    model = fit(np.array([0, 1, 0]), vocabulary=2, order=2)
    assert model.probabilities(np.array([0, 1, 0])) == pytest.approx([17 / 24, 19 / 24])
    assert model.probabilities(np.array([0, 0])) == pytest.approx([7 / 24])
    assert model.bits(np.array([0, 1, 0])) == pytest.approx(-log2(17 / 24) - log2(19 / 24))


def test_discounts_by_hand() -> None:
    """n1..n4 = 10, 5, 3, 2: Y = 1/2, D1 = 1 - 5/10, D2 = 2 - 3 * 3/5 / 2, D3 = 3 - 4 * 2/3 / 2."""
    counts = np.repeat([1, 2, 3, 4, 9], [10, 5, 3, 2, 4])
    assert _discounts(counts) == pytest.approx((0.5, 1.1, 3 - 4 / 3))


@pytest.mark.parametrize("counts", [[1, 1, 2], [5, 6], [1, 2, 3, 3, 3, 3, 4]])
def test_discounts_that_counts_cannot_give_are_the_usual_ones(counts: list[int]) -> None:
    assert _discounts(np.array(counts)) == (0.5, 1.0, 1.5)


@pytest.mark.parametrize(("order", "words"), [(1, 7), (2, 7), (3, 12), (5, 7)])
def test_probabilities_are_those_by_the_book(order: int, words: int) -> None:
    training, judged = text(1, 400, words), text(2, 60, words)
    book = ByTheBook(training.tolist(), words + 2, order)
    found = fit(training, words + 2, order).probabilities(judged)
    expected = [
        float(book.probability(int(judged[end]), tuple(judged[:end].tolist())))
        for end in range(1, len(judged))
    ]
    assert found == pytest.approx(expected, rel=1e-12)


def test_discounts_of_a_longer_text_are_estimated_and_not_the_usual_ones() -> None:
    model = fit(text(1, 20_000, 60), 64)
    assert all(order.discounts != (0.5, 1.0, 1.5) for order in model.orders[1:])
    assert len(model.orders) == 5


def contexts(words: int) -> Iterator[Gram]:
    """Known ones and unknown ones, of lengths up to past the order."""
    for length in range(1, 3):
        yield from product(range(words), repeat=length)
    chance = np.random.default_rng(5)
    for _ in range(100):
        yield tuple(chance.integers(0, words, 6).tolist())


@pytest.mark.parametrize("order", [1, 3, 5])
def test_probabilities_of_all_words_sum_to_one_after_every_context(order: int) -> None:
    words = 9
    model = fit(text(3, 3000, words - 2), words, order)  # two words are never seen
    for context in contexts(words):
        rows = [model.probabilities(np.array([*context, word]))[-1] for word in range(words)]
        assert sum(rows) == pytest.approx(1, abs=1e-12)
        assert min(rows) > 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 5))
def test_any_text_gives_probabilities(tokens: list[int], order: int) -> None:
    model = fit(np.array(tokens), 4, order)
    rows = [model.probabilities(np.array([*tokens, word]))[-1] for word in range(4)]
    assert sum(rows) == pytest.approx(1)


def test_more_text_and_longer_grams_predict_a_text_with_habits_better() -> None:
    training, judged = text(1, 20_000, 30), text(2, 3000, 30)
    bits = [fit(training[:count], 30).bits(judged) for count in (500, 3000, 20_000)]
    assert bits == sorted(bits, reverse=True)
    assert fit(training, 30, 2).bits(judged) < 0.9 * fit(training, 30, 1).bits(judged)


def test_small_and_large_integers_count_alike() -> None:
    training = text(1, 2000, 30)
    assert fit(training.astype(np.uint16), 60_000).bits(training) == pytest.approx(
        fit(training, 60_000).bits(training)
    )


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Overrides under which nano reads forty small documents."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        ids = text(number, 300, 50)
        (folder / f"{number}.txt").write_text(" ".join(f"word{value}" for value in ids))
    data = {"data.source": folder, "data.cache": tmp_path / "cache", "data.held_out": 0.2}
    train = {"train.steps": 3, "train.sequence": 64, "train.micro_batch": 4}
    return [f"{key}={value}" for key, value in {**data, **train}.items()]


def test_the_baseline_counts_exactly_what_the_loader_gave(words: list[str]) -> None:
    run = load_run("nano", words)
    prepared = prepare(run.data, run.model.vocab)
    loader = Loader(prepared.training, 64, 4, run.data.seed)
    seen = np.concatenate([next(loader)[0].flatten() for _ in range(3)])
    consumed = loader.consumed()
    assert sorted(consumed.tolist()) == sorted(seen.tolist())
    found = baseline(run, 3 * 4 * 64)
    assert found.tokens == len(consumed) == 768
    model = fit(consumed, prepared.tokenizer.vocabulary)
    judged = np.concatenate([[prepared.tokenizer.end], prepared.held_out_tokens.ids_N])
    assert found.bits_per_byte == model.bits(judged) / prepared.held_out_bytes


def test_a_second_epoch_counts_no_document_twice(words: list[str]) -> None:
    run = load_run("nano", words)
    once = len(prepare(run.data, run.model.vocab).training)
    assert baseline(run, 10 * once) == baseline(run, once)
    assert baseline(run, once // 2).bits_per_byte > baseline(run, once).bits_per_byte


def test_the_command_prints_both_sides(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"kind": "step", "step": 3, "tokens": 768},
        {"kind": "evaluation", "step": 3, "tokens": 100, "bits_per_byte": 2.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    sets = [part for word in words for part in ("--set", word)]
    assert main(["--preset", "nano", *sets, "--run", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    alone = baseline(load_run("nano", words), 768, 100)
    assert f"over 768 tokens: {alone.bits_per_byte:.4f} bits per byte of 100 held-out" in out
    assert f"step 3: 2.5000 bits per byte, {2.5 / alone.bits_per_byte:.3f} of" in out
    assert main(["--preset", "nano", *sets]) == 0
    assert "over 768 tokens" in capsys.readouterr().out  # what the run plans: 3 x 4 x 64


def test_a_folder_without_an_evaluation_is_told(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [part for word in words for part in ("--set", word)]
    assert main(["--preset", "nano", *sets, "--run", str(tmp_path)]) == 2
    assert "TW229" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-5", "many"])
def test_a_count_of_tokens_that_is_none_is_told(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--preset", "nano", "--tokens", count]) == 2
    assert f"`{count}` is no number of tokens" in capsys.readouterr().err


def test_a_run_that_holds_nothing_out_has_no_baseline(words: list[str]) -> None:
    with pytest.raises(UsageError, match="TW229"):
        baseline(load_run("nano", [*words, "data.held_out=0.0"]), 100)
