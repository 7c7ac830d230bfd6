"""MinHash against exact Jaccard similarity on small sets."""

from __future__ import annotations

import random
import time
from math import sqrt

import numpy as np
import pytest

from reference.data.pipeline import first_of_each
from reference.data.spec import NearSpec
from reference.data.stage import Dropped, Record
from reference.text.near import (
    Bands,
    bands_of,
    near_copies,
    shingles,
    signature,
    similarity,
)


def record(name: str, text: str) -> Record:
    return Record(name, "s", "web", text)


def pair(chance: random.Random, words: int, changed: int) -> tuple[str, str]:
    """A text of different words, and a copy with some of them changed."""
    ours = [f"w{chance.randrange(10**9)}" for _ in range(words)]
    theirs = list(ours)
    for at in chance.sample(range(words), changed):
        theirs[at] = f"v{chance.randrange(10**9)}"
    return " ".join(ours), " ".join(theirs)


def exact(one: str, other: str, words: int) -> float:
    """The Jaccard similarity of the sets of word runs, from their definition."""

    def runs(text: str) -> set[tuple[str, ...]]:
        parts = text.split()
        return {tuple(parts[at : at + words]) for at in range(len(parts) - words + 1)}

    ours, theirs = runs(one), runs(other)
    return len(ours & theirs) / len(ours | theirs)


def test_the_estimate_is_unbiased_with_the_spread_of_the_theory() -> None:
    """Error over sqrt(J (1 - J) / P): mean 0, variance 1, within the error of 200 pairs."""
    chance, errors = random.Random(3), list[float]()
    for _ in range(200):
        one, other = pair(chance, 120, chance.randint(1, 30))
        truth = exact(one, other, 3)
        signs = [signature(shingles(text, 3), 128) for text in (one, other)]
        errors.append((similarity(*signs) - truth) / sqrt(truth * (1 - truth) / 128))
    assert abs(np.mean(errors)) < 4 / sqrt(200)
    assert 0.7 < np.var(errors) < 1.4


def test_pairs_far_from_the_threshold_fall_on_the_side_of_their_exact_similarity() -> None:
    chance, spec = random.Random(4), NearSpec(threshold=0.7, shingle=2)
    sides = {True: 0, False: 0}
    for number in range(150):
        one, other = pair(chance, 100, chance.choice([0, 1, 2, 3, 20, 30, 40]))
        truth = exact(one, other, 2)
        if abs(truth - 0.7) < 4 * 0.5 / sqrt(128):
            continue
        copies = list(near_copies([("a", one), ("b", other)], spec))
        assert (copies[1] is not None) == (truth > 0.7), (number, truth)
        sides[truth > 0.7] += 1
    assert min(sides.values()) > 20


def test_bands_catch_a_pair_at_the_threshold_with_99_percent() -> None:
    cut = bands_of(128, 0.8)
    assert cut == Bands(21, 6)
    assert cut.probability(0.8) == pytest.approx(1 - (1 - 0.8**6) ** 21)
    assert Bands(18, 7).probability(0.8) < 0.99


def test_a_document_that_resembles_a_dropped_one_alone_is_kept() -> None:
    """Greedy: b is like a, c is like b, c is not like a."""
    words = [f"w{at}" for at in range(130)]
    texts = [" ".join(words[start : start + 100]) for start in (0, 10, 20)]
    spec = NearSpec(threshold=0.75, shingle=1)
    assert exact(texts[0], texts[1], 1) > 0.8
    assert exact(texts[0], texts[2], 1) < 0.7
    copies = list(near_copies([(str(at), text) for at, text in enumerate(texts)], spec))
    assert [copy is None for copy in copies] == [True, False, True]
    assert str(copies[1]).startswith("of 0 (0.")


def test_shingles_ignore_case_and_marks_and_short_texts_have_one() -> None:
    assert np.array_equal(shingles("One, two THREE", 2), shingles("one two three!", 2))
    assert len(shingles("one two three", 2)) == 2
    assert len(shingles("one two", 5)) == 1
    assert len(shingles("?!", 5)) == 0
    assert not np.array_equal(shingles("one two", 2), shingles("two one", 2))


def test_exact_copies_after_normalisation_go_and_the_first_stays() -> None:
    texts = ["Caf\u00e9  is\nopen", "cafe\u0301 IS open ", "cafe is open"]
    found = list(first_of_each(record(str(at), text) for at, text in enumerate(texts)))
    assert [isinstance(one, Dropped) for one in found] == [False, True, False]


@pytest.mark.benchmark
def test_a_thousand_documents_of_500_words_take_below_10_s() -> None:
    chance = random.Random(5)
    texts = [(str(at), pair(chance, 500, 0)[0]) for at in range(1000)]
    start = time.process_time()
    assert list(near_copies(texts, NearSpec())) == [None] * 1000
    taken = time.process_time() - start
    print(f"1,000 documents of 500 words: {taken:.2f} s of CPU")
    assert taken < 10
