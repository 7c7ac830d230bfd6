"""Rows of memory against the formulas of their papers."""

from __future__ import annotations

import pytest

from tests.evidence.validate.rows import shipped
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.memory import answers
from twin.evidence.validate.suite import PublishedRow

SIZES = {"22b": (6144, 64), "175b": (12288, 96), "530b": (20480, 128), "1t": (25600, 160)}


def by_part(name: str) -> dict[str, RowResult]:
    return {one.id.partition("[")[2].rstrip("]"): one for one in answers(shipped(name))}


@pytest.mark.parametrize("size", SIZES)
def test_figure_1_of_korthikanti_is_met(size: str) -> None:
    found = by_part(f"korthikanti22-fig1-memory-{size}")
    assert set(found) == {
        "params_optimizer_GiB",
        "activations_none_GiB",
        "activations_seqsel_GiB",
    }
    assert abs(found["params_optimizer_GiB"].error or 1.0) < 0.002
    assert max(abs(one.error or 1.0) for one in found.values()) < 0.03
    assert {one.metric for one in found.values()} == {"peak_device_bytes"}


@pytest.mark.parametrize("size", SIZES)
def test_figure_7_of_korthikanti_is_its_equations(size: str) -> None:
    """Of s b h (10 + 24/t + 5 a s/(h t)): table 2 with t = 8 and s = 2,048."""
    hidden, heads = SIZES[size]
    scores = 5 * heads * 2048 / hidden / 8
    whole = 10 + 24 / 8 + scores
    expected = {
        "sp": 34 / 8 + scores,
        "selective": 10 + 24 / 8,
        "sp_selective": 34 / 8,
        "full": 2,
    }
    found = by_part(f"korthikanti22-fig7-actpct-{size}")
    for part, kept in expected.items():
        assert found[part].predicted == pytest.approx(kept / whole, rel=1e-3), part
        assert abs(found[part].error or 1.0) < 0.015, part
    assert set(found) == set(expected)


def test_kimi_k2_is_six_terabytes_a_group_and_thirty_gigabytes_a_gpu() -> None:
    found = by_part("kimi-k2-report-memory")
    assert found["model_parallel_group_TB"].predicted == pytest.approx(6.158e12, rel=1e-3)
    assert found["states_per_gpu_GB"].measured == 30e9
    assert abs(found["states_per_gpu_GB"].error or 1.0) < 0.06


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"metrics": {"elephants": 3}}, "no part of the ledger"),
        ({"system": {"gpu": "Gaudi 3", "gpus": 64}}, "Gaudi 3"),
        ({"metrics": {"all_GB": 3}, "parallelism": {"note": "see paper"}}, "the layout"),
        ({"model": "nobody-3b"}, "nobody"),
        ({"parallelism": {"tp": 8, "pp": 7, "vp": 1}}, ""),
    ],
)
def test_what_the_ledger_does_not_have_is_refused(changes: dict[str, object], word: str) -> None:
    base = shipped("korthikanti22-fig1-memory-175b")
    (one,) = answers(PublishedRow({**base.fields, **changes}, base.models))
    assert one.status == "not_expressible"
    assert word in one.reason
    assert one.reason
