"""What ranks do to each other, over gloo on this machine; and the numbers that follow."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from reference.measure.beside import fit_beside
from reference.measure.points import MeasuredPoint, read_points
from reference.measure.ranks import SMS, World, cases, copies_per_token, exchange, measure
from reference.measure.ranks import main as ranks_main
from tests.reference.measure.machines import CORE, exactly
from tests.reference.parallel.ranks import run_ranks

CPU = torch.device("cpu")


def deep_ep() -> ModuleType:
    """DeepEP's interface, as its own tests call it."""

    class Buffer:
        sms = 0

        def __init__(self, group: Any, nvl_bytes: int, rdma_bytes: int) -> None:
            assert group is not None
            assert (nvl_bytes, rdma_bytes) == (int(1e9), 0)

        @staticmethod
        def set_num_sms(count: int) -> None:
            Buffer.sms = count

        def get_dispatch_layout(self, index: torch.Tensor, experts: int) -> tuple[Any, ...]:
            assert int(index.max()) < experts
            return (*["layout"] * 4, None)

        def dispatch(self, x: Any, handle: Any = None, **given: Any) -> tuple[Any, ...]:
            assert Buffer.sms in SMS
            assert (handle is None) == ("num_tokens_per_expert" in given)
            return x, None, None, None, "handle", None

        def combine(self, x: Any, handle: Any) -> tuple[Any, ...]:
            assert handle == "handle"
            return x, None, None

    module = ModuleType("deep_ep")
    module.__dict__["Buffer"] = Buffer
    module.__spec__ = type(sys.__spec__)("deep_ep", None)
    return module


def of_rank(rank: int, count: int, folder: str, stops: int | None, most: int | None = None) -> int:
    """Measures, on a machine where DeepEP is installed; stops before so many cases."""
    sys.modules["deep_ep"] = deep_ep()
    world, made = World(rank, count, 1, CPU, 2, quick=True), 0

    def run(case: Any) -> Any:
        def stopping(world: World) -> Any:
            nonlocal made
            if stops is not None and made >= stops:
                raise RuntimeError("the machine goes away")
            made += 1
            return case.run(world)

        return replace(case, run=stopping)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "reference.measure.ranks.cases", lambda world: map(run, islice(cases(world), most))
        )
        return measure(world, Path(folder), CORE)


def test_two_ranks_measure_all_cases_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the machine goes away"):
        run_ranks(2, of_rank, str(tmp_path), 5)
    assert len(read_points(tmp_path)) == 5
    counts = run_ranks(2, of_rank, str(tmp_path), None)
    points = read_points(tmp_path)
    assert [*counts] == [len(points) - 5] * 2
    ops = {point.op for point in points}
    assert {"all_reduce", "message", "exchange", "exchange_uneven", "exchange_wait"} <= ops
    assert {"product_beside_exchange_and_copies", "exchange_beside_product"} <= ops
    assert {"deepep_dispatch", "deepep_combine"} <= ops
    assert all(0 < point.timing.median < 5 for point in points)
    assert {"expert_contention", "expert_wait", "expert_sms", "expert_sm_rate"} == {
        key for key, *_ in fit_beside(points, 132)
    }


def test_a_case_that_ends_the_process_twice_is_left_out(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the machine goes away"):
            run_ranks(2, of_rank, str(tmp_path), 0)
    assert run_ranks(2, of_rank, str(tmp_path), None, 4) == [3, 3]
    assert "all_reduce" not in {point.op for point in read_points(tmp_path)}


def sent(rank: int, count: int, even: bool) -> tuple[int, int]:
    """Values that a rank sends and receives."""
    world = World(rank, count, 1, CPU, 1, quick=True)
    found: list[int] = []

    def watched(target: Any, source: Any, *_: Any, **__: Any) -> None:
        found.extend((source.numel(), target.numel()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.distributed.all_to_all_single", watched)
        exchange(world, 24_000, even=even)()
    return found[0], found[1]


def test_uneven_ranks_send_the_same_bytes_and_the_first_receives_most() -> None:
    even, uneven = ([sent(rank, 3, even) for rank in range(3)] for even in (True, False))
    assert even == [(12_000, 12_000)] * 3
    assert {out for out, _ in uneven} == {12_000}
    received = [into for _, into in uneven]
    assert received == sorted(received, reverse=True)
    assert received[0] > 1.5 * 12_000
    assert sum(received) == 36_000


def test_a_token_reaches_at_most_as_many_ranks_as_there_are() -> None:
    assert copies_per_token(1) == 1
    assert copies_per_token(8) == pytest.approx(8 * (1 - (1 - 1 / 8) ** 8), rel=0.02)
    assert 7 < copies_per_token(256) <= 8


def point(op: str, seconds: float, size: float = 0.0, **shape: int) -> MeasuredPoint:
    shape = {"nodes": 1, **shape}
    return MeasuredPoint("ranks", op, shape, "bf16", 0.0, size, 1, exactly(seconds))


def test_the_five_numbers_are_found_again_in_what_they_make() -> None:
    sms, contention = 132, 0.07
    slowed = {c: 1e-3 / ((1 - contention) * (1 - c / sms)) for c in (2, 8, 16)}
    points = [
        point("product_alone", 1e-3),
        *(point("product_beside_all_reduce", slowed[c], ctas=c) for c in slowed),
        *(point("all_reduce_limited", t, ctas=c) for c, t in ((2, 9e-3), (8, 2.05e-3), (16, 2e-3))),
        point("exchange_alone", 3e-3),
        point("exchange_beside_product", 4e-3),
        point("exchange_wait", 3.2e-3),
        point("exchange_wait", 9.0, nodes=2),
        point("deepep_dispatch", 1e-3, 12 * 18e6, sms=12),
        point("deepep_dispatch", 0.7e-3, 12 * 18e6, sms=20),
        point("deepep_combine", 1e-3, 12 * 18e6, sms=12),
    ]
    found = {key: number.value for (key,), number in fit_beside(points, sms).items()}
    assert found == {
        "contention": pytest.approx(contention),
        "collective_sms": 8,
        "expert_contention": pytest.approx(0.25),
        "expert_wait": pytest.approx(0.2e-3),
        "expert_sm_rate": pytest.approx(18e9),
        "expert_sms": 20,
    }
    assert fit_beside([], sms) == {}


def test_what_no_launcher_started_is_told(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert ranks_main(["--output", str(tmp_path), "--device", "cpu"]) == 2
    assert "TW266" in capsys.readouterr().err
