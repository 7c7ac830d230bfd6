"""Execution traces of Chakra that carry times are read like a profiler's. Written here by hand from
the schema's numbers (mlcommons/chakra, et_def.proto)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence.live.test_event_files import part, varint
from twin.errors import UsageError
from twin.evidence.traces import chakra
from twin.evidence.traces.accounted import accounted
from twin.evidence.traces.answer import read_rank

COMPUTE, COLLECTIVE = 4, 7


def attribute(name: str, number: int, value: int | str) -> bytes:
    return part(10, part(1, name) + part(number, value))


def node(
    name: str, kind: int, start: int, length: int, *about: bytes, on_host: bool = False
) -> bytes:
    times = (part(6, start) if start else b"") + part(7, length)
    own = part(1, 7) + part(2, name) + part(3, kind) + times
    return own + attribute("is_cpu_op", 27, int(on_host)) + b"".join(about)


def trace(path: Path, *nodes: bytes) -> Path:
    messages = (part(1, "1.0.0"), *nodes)
    path.write_bytes(b"".join(varint(len(one)) + one for one in messages))
    return path


def group(kind: int, name: str, purpose: str) -> tuple[bytes, ...]:
    return (
        attribute("comm_type", 9, kind),
        attribute("pg_name", 29, name),
        attribute("pg_desc", 29, purpose),
        attribute("stream", 9, 20),
    )


NODES = (
    node("aten::mm", COMPUTE, 90, 20, on_host=True),
    node("ampere_bf16_s16816gemm", COMPUTE, 100, 50, attribute("stream", 9, 7)),
    node("c10d::all_to_all", COLLECTIVE, 140, 40, *group(6, "3", "EXPERT_MODEL_PARALLEL_GROUP")),
    node("flash_fwd_kernel", COMPUTE, 200, 100, attribute("duration_ns", 9, 100_250)),
    node("c10d::reduce", COLLECTIVE, 310, 10, *group(7, "4", "DATA_PARALLEL_GROUP")),
)


@pytest.mark.parametrize("block", [1 << 23, 1, 7])
def test_operations_with_times_become_causes(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chakra, "BLOCK", block)
    path = trace(tmp_path / "step.3.et", *NODES)
    (rank,) = read_rank(path)
    assert (rank.rank, rank.torn, len(rank)) == (3, False, 4)
    found = accounted(rank)
    assert {cause: ns for cause, ns in found.row.items() if ns} == {
        "compute": 150_250,
        "exposed_expert": 30_000,
        "exposed_data": 10_000,
        "other": 29_750,
    }


def test_a_torn_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = trace(tmp_path / "step.3.et", *NODES)
    path.write_bytes(path.read_bytes()[:-5])
    (rank,) = read_rank(path)
    assert (rank.torn, len(rank)) == (True, 3)


def test_what_the_converter_of_pytorch_writes_is_recognised(tmp_path: Path) -> None:
    """Its first message has no version, and attributes instead."""
    told = part(2, part(1, "schema") + part(29, "1.1.1-chakra.0.0.4")) * 9
    data = varint(len(told)) + told + varint(len(NODES[1])) + NODES[1]
    (tmp_path / "rank").write_bytes(data)
    assert [len(one) for one in read_rank(tmp_path / "rank")] == [1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no operation of a GPU has a start"),
        (b"\xff" * 40, "no lengths"),
        (b'{"traceEvents": []}', "no operation of a GPU has a start"),
    ],
)
def test_what_carries_no_times_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.et"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=says):
        chakra.read_chakra(path)
    planned = trace(tmp_path / "planned.0.et", node("gemm", COMPUTE, 0, 50))
    with pytest.raises(UsageError, match="has to be played first"):
        read_rank(planned)


@pytest.mark.parametrize("field", [3, 6, 7])
@pytest.mark.parametrize("value", ["all", 1 << 63, "9" * 400])
def test_a_damaged_number_counts_as_none(tmp_path: Path, field: int, value: int | str) -> None:
    """Behind the right one of a kernel: its kind, its start, its duration."""
    damaged = node("gemm", COMPUTE, 300, 50) + part(field, value)
    (found,) = read_rank(trace(tmp_path / "step.3.et", damaged, *NODES))
    whole = 3 if field == 3 else 2
    assert len(found.start) == 2 + whole
