"""The study of corrupted rewritings: what is planted is a corruption, and is counted once."""

from __future__ import annotations

import random

import pytest

from reference.studies.fidelity import KINDS, corpora, count, share, voyages

TEXT = (
    "In 1801 the captain Anders left Almira with 20 sailors, who were not tired. "
    "There Anders sold 7 tons to Gudrun before the snow, which was no surprise."
)
WANTED = {
    "unit changed": {TEXT.replace("sailors", "officers"), TEXT.replace("tons", "pounds")},
    "negation taken away": {TEXT.replace("not tired", "tired")},
    "names exchanged": {
        TEXT.replace("Anders", "?").replace("Gudrun", "Anders").replace("?", "Gudrun"),
        TEXT.replace("Anders", "?").replace("Almira", "Anders").replace("?", "Almira"),
        TEXT.replace("Almira", "?").replace("Gudrun", "Almira").replace("?", "Gudrun"),
    },
    "clause left out": {
        TEXT.replace(", who were not tired", ""),
        TEXT.replace(", which was no surprise", ""),
    },
    "sentence left out": {TEXT[:76].strip(), TEXT[76:].strip()},
}


@pytest.mark.parametrize("kind", WANTED)
def test_a_corruption_is_the_one_that_it_is_called(kind: str) -> None:
    made = {KINDS[kind](TEXT, "", random.Random(seed)) for seed in range(30)}
    assert made == WANTED[kind]


def test_every_kind_has_room_in_a_voyage_and_none_in_nothing() -> None:
    text, other = voyages(2, 0)
    for kind, corrupt in KINDS.items():
        assert corrupt(text, other, random.Random(0)) not in (None, text), kind
        assert corrupt("Nothing here.", "", random.Random(0)) is None, kind


def test_caught_and_planted_are_counted_and_numbers_are_caught() -> None:
    counts, refused = count(voyages(6, 3), seed=0)
    assert refused <= 6
    assert counts["number changed"].planted == counts["number changed"].caught == 6
    assert all(one.caught <= one.planted <= 6 for one in counts.values())


def test_shares_have_intervals_and_corpora_three_kinds() -> None:
    assert share(5, 10) == "0.500 (0.237 to 0.763)"
    assert share(0, 0) == "none"
    assert {name: len(texts) for name, texts in corpora(3).items()} == {
        "prose": 3,
        "voyages": 3,
        "sums": 3,
    }
