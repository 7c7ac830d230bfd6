"""Weights in tokens, epochs with a cap, and an order that keeps every domain near its share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from reference.data.shards import Lengths, mix
from reference.data.spec import MixtureSpec
from twin.errors import UsageError

LENGTHS: Lengths = {
    "code": (np.arange(0, 50), np.full(50, 20)),
    "web": (np.arange(50, 150), np.full(100, 30)),
    "maths": (np.arange(150, 160), np.full(10, 10)),
}


def test_domains_have_their_shares_to_one_document() -> None:
    found = mix(LENGTHS, MixtureSpec(weights={"code": 1, "web": 3}, tokens=2000), 0)
    tokens = {portion.domain: portion.tokens for portion in found.portions}
    assert tokens["code"] == pytest.approx(500, abs=20)
    assert tokens["web"] == pytest.approx(1500, abs=30)
    assert found.capped_by == ""


def test_at_every_point_each_domain_is_within_a_document_of_its_share() -> None:
    found = mix(LENGTHS, MixtureSpec(weights={"code": 1, "web": 3}, tokens=2000), 0)
    code = web = 0
    for document in found.order_V.tolist():
        code, web = code + 20 * (document < 50), web + 30 * (document >= 50)
        assert abs(code / 500 - web / 1500) <= 20 / 500 + 1e-9


def test_a_domain_that_would_be_read_too_often_makes_the_whole_smaller() -> None:
    """100 tokens of maths at half the weight and twice at most: 400 in all."""
    weights = MixtureSpec(weights={"maths": 1, "web": 1}, tokens=5000, max_epochs=2)
    found = mix(LENGTHS, weights, 0)
    assert found.capped_by == "maths"
    assert [portion.target for portion in found.portions] == [200, 200]
    assert found.portions[0].epochs == 2.0
    counts = Counter(found.order_V.tolist())
    assert {counts[at] for at in range(150, 160)} == {2}


def test_every_epoch_reads_each_document_once_in_an_order_of_its_own() -> None:
    found = mix({"code": LENGTHS["code"]}, MixtureSpec(tokens=3000), 0).order_V
    epochs = found.reshape(3, 50)
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs.tolist())
    assert epochs[0].tolist() != epochs[1].tolist()
    again = mix({"code": LENGTHS["code"]}, MixtureSpec(tokens=3000), 0).order_V
    other = mix({"code": LENGTHS["code"]}, MixtureSpec(tokens=3000), 1).order_V
    assert np.array_equal(found, again)
    assert not np.array_equal(found, other)


def test_weights_without_text_are_refused() -> None:
    with pytest.raises(UsageError, match="TW472"):
        mix(LENGTHS, MixtureSpec(weights={"knowledge": 1}), 0)


def test_domains_are_read_as_often_as_epochs_say() -> None:
    """Each document of maths three times, of the web half, of code, which is not named, once."""
    found = mix(LENGTHS, MixtureSpec(epochs={"maths": 3.0, "web": 0.5}), 0)
    assert [(one.domain, one.epochs) for one in found.portions] == [
        ("code", 1.0),
        ("maths", 3.0),
        ("web", 0.5),
    ]
    counts = Counter(found.order_V.tolist())
    assert {counts[at] for at in range(150, 160)} == {3}
    assert {counts[at] for at in range(50)} == {1}
