"""Which two rows are a pair, and who is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evidence.validate.made import answer, step
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.pairs import RowPair, choices, named, pairs
from twin.evidence.validate.suite import PublishedRow


def told(name: str, measured: float, predicted: float, **changes: Any) -> RowResult:
    return answer(name, measured=measured, predicted=predicted, **changes)


def of(*members: tuple[PublishedRow, RowResult]) -> tuple[RowPair, ...]:
    return pairs([row for row, _ in members], [own for _, own in members])


PLAIN = step("plain")
SELECTIVE = step("selective", parallelism={"tp": 8, "recompute": "selective"})


def test_one_choice_makes_a_pair_and_the_faster_one_is_named() -> None:
    (pair,) = of((PLAIN, told("plain", 2.0, 2.2)), (SELECTIVE, told("selective", 1.5, 1.9)))
    assert (pair.faster.id, pair.slower.id) == ("selective", "plain")
    assert (pair.choice, pair.values) == ("recompute", ("selective", "full"))
    assert pair.measured == pytest.approx(0.25)
    assert pair.named


@pytest.mark.parametrize("predicted", [2.2, 2.3])
def test_a_tie_is_as_wrong_as_the_other_one(predicted: float) -> None:
    slow, fast = told("plain", 2.0, 2.2), told("selective", 1.5, predicted)
    (pair,) = of((PLAIN, slow), (SELECTIVE, fast))
    assert not pair.named
    assert named([pair]) == 0.0


def test_what_was_measured_within_three_percent_is_no_pair() -> None:
    near = told("selective", 1.95, 1.0)
    assert of((PLAIN, told("plain", 2.0, 2.0)), (SELECTIVE, near)) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"parallelism": {"tp": 4, "recompute": "selective"}},
        {"gbs": 8},
        {"seq": 4096},
        {"model": "gpt-175b"},
        {"system": {"gpu": "A100-80GB", "gpus": 16}},
        {"system": {"gpu": "A100-80GB", "gpus": 8, "network": "another one"}},
        {"source": {"title": "another paper"}},
        {"workload": "fine-tuning", "precision": "FP8"},
    ],
    ids=["two choices", "batch", "sequence", "model", "GPUs", "network", "source", "workload"],
)
def test_whatever_else_differs_leaves_no_pair(change: dict[str, Any]) -> None:
    other = step("other", **change)
    assert of((PLAIN, told("plain", 2.0, 2.0)), (other, told("other", 1.0, 1.0))) == ()


def test_what_follows_is_no_choice_and_off_is_the_same_as_absent() -> None:
    one = step("one", parallelism={"tp": 8, "dp": 1, "pp": 1, "moe_a2a_overlap": False, "ga": 4})
    other = step("other", parallelism={"tp": 8, "dp": 2, "fsdp": 0, "async_tp": None})
    assert choices(one) == choices(other) == {"tp": "8", "mbs": "4", "precision": "BF16"}


def test_on_is_a_choice_although_it_equals_one() -> None:
    found = choices(step("on", parallelism={"tp": 8, "async_tp": True}))
    assert found["async_tp"] == "on"


def test_sources_have_several_words_for_recomputation() -> None:
    words = ("recompute", "activation", "activation_checkpointing", "policy")
    rows = [step("a", parallelism={word: "full"}) for word in words]
    full = {choices(row)["recompute"] for row in rows}
    assert full == {"full"}


def test_a_pair_with_a_fitted_row_does_not_judge() -> None:
    fitted = told("plain", 2.0, 2.2, use="fit")
    (pair,) = of((PLAIN, fitted), (SELECTIVE, told("selective", 1.5, 1.9)))
    assert pair.use == "fit"


def test_rows_without_both_times_are_in_no_pair() -> None:
    unknown = answer("selective", None)
    assert of((PLAIN, told("plain", 2.0, 2.2)), (SELECTIVE, unknown)) == ()


def test_of_no_pairs_no_share_is_named() -> None:
    assert named(()) is None
