"""The breakdown sums to the step, to the nanosecond, whatever the roles look like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twin.reports.breakdown import CAUSES, bottleneck, exposed_communication_ns, in_seconds, mean


@st.composite
def rows_of_one_step(draw: st.DrawFn) -> list[dict[str, int]]:
    """Rows of up to 20 roles over a random choice of causes, all of one sum."""
    step = draw(st.integers(1, 10**12))
    causes = draw(st.lists(st.sampled_from(CAUSES), min_size=1, unique=True))
    rows: list[dict[str, int]] = []
    for _ in range(draw(st.integers(1, 20))):
        cuts = sorted(draw(st.integers(0, step)) for _ in causes[1:])
        edges = zip([0, *cuts], [*cuts, step], strict=True)
        rows.append(dict(zip(causes, (b - a for a, b in edges), strict=True)))
    return rows


@given(rows_of_one_step())
def test_the_mean_sums_to_the_step_exactly(rows: list[dict[str, int]]) -> None:
    assert sum(mean(rows).values()) == sum(rows[0].values())


@given(rows_of_one_step())
def test_every_cause_is_within_a_nanosecond_of_its_mean(rows: list[dict[str, int]]) -> None:
    for cause, value in mean(rows).items():
        assert abs(value - sum(row.get(cause, 0) for row in rows) / len(rows)) < 1


@given(rows_of_one_step())
def test_the_mean_of_equal_roles_is_the_role(rows: list[dict[str, int]]) -> None:
    assert mean([rows[0]] * len(rows)) == dict.fromkeys(CAUSES, 0) | rows[0]


def test_left_over_nanoseconds_go_to_the_largest_remainders() -> None:
    """Means 10/3, 4/3 and 1/3 of 5: floors 3, 1, 0; one nanosecond is left, all remainders tie,
    compute is first."""
    rows = [
        {"compute": 4, "bubble": 1, "other": 0},
        {"compute": 3, "bubble": 2, "other": 0},
        {"compute": 3, "bubble": 1, "other": 1},
    ]
    row = mean(rows)
    assert (row["compute"], row["bubble"], row["other"]) == (4, 1, 0)
    assert list(row) == list(CAUSES)


def test_offload_is_no_communication_between_gpus() -> None:
    row = mean([{"exposed_tensor": 1, "exposed_pipeline": 2, "exposed_offload": 4, "bubble": 8}])
    assert exposed_communication_ns(row) == 3


def test_the_bottleneck_is_the_largest_share_beside_compute() -> None:
    assert bottleneck(mean([{"compute": 90, "bubble": 4, "optimizer": 6}])) == "optimizer"
    assert bottleneck(mean([{"compute": 90}])) == "compute"


def test_seconds_are_nanoseconds_over_a_billion() -> None:
    assert in_seconds({"compute": 1_500_000_000})["compute"] == 1.5
