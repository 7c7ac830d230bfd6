"""Chakra's execution traces, read by a reader of our own that knows the wire format and the numbers
of the official schema (mlcommons/chakra, schema/protobuf/et_def.proto at 21585d8): graphs without
circles, messages with both ends, groups that their members name, and bytes that were reckoned by
hand."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from tests.command import Command
from twin.answers import ask
from twin.interop.export.base import stamp
from twin.interop.export.chakra import files, framed, messages
from twin.loading import load

SCENARIO = """
schema: 1
name: two stages, two tensor ranks, four experts' ranks
model: qwen3-30b-a3b
cluster: {node: h100-8gpu, nodes: 2, fabric: rail-fat-tree-400g}
parallel:
  {tensor: 2, sequence_parallel: true, pipeline: 2, virtual: 2, expert: 4,
   schedule: interleaved_1f1b}
memory: {recompute: [full], offload: [activations]}
train: {tokens: 1T, sequence: 4096tok, global_batch: 16seq, optimizer: adamw}
"""
EIGHT = ("model.layers=8",)
# Of the official schema: enum NodeType, enum CollectiveCommType.
LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(2, 8)
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7
ATTRIBUTES = {7: "int32", 9: "int64", 13: "uint64", 27: "bool", 29: "string"}
"""Fields of AttributeProto's oneof that the export writes."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message: varints, and bytes behind their length."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        assert tag & 7 in (0, 2), "only varints and lengths are written"
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        yield tag >> 3, value


def attribute(data: bytes) -> tuple[str, Any]:
    found = dict(fields(data))
    name: str = found.pop(1).decode()
    found = found or {9: 0}
    ((number, value),) = found.items()
    return name, value.decode() if ATTRIBUTES[number] == "string" else value


def node(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"id": 0, "deps": [], "duration": 0}
    for number, value in fields(data):
        if number == 5:  # packed
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                found["deps"].append(one)
        elif number == 10:
            name, held = attribute(value)
            found[name] = held
        else:
            names = {1: "id", 2: "name", 3: "type", 7: "duration"}
            found[names[number]] = value.decode() if number == 2 else value
    return found


def trace(data: bytes) -> tuple[bytes, list[dict[str, Any]]]:
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        parts.append(data[at : at + length])
        at += length
    return parts[0], [node(one) for one in parts[1:]]


@cache
def packed(text: str = SCENARIO) -> tuple[dict[int, list[dict[str, Any]]], dict[str, list[int]]]:
    folder = Path(__file__).parent / "__pycache__"
    folder.mkdir(exist_ok=True)
    file = folder / "chakra.yaml"
    file.write_text(text)
    run = ask(load(file, EIGHT), cache=False)
    sink = BytesIO()
    content = files(run, stamp(run, "chakra"))[""]
    assert callable(content)
    content(sink)
    with zipfile.ZipFile(sink) as found:
        groups = json.loads(found.read("comm_groups.json"))
        names = [name for name in found.namelist() if name.endswith(".et")]
        traces = {int(name.split(".")[1]): trace(found.read(name))[1] for name in names}
    return traces, groups


def test_every_rank_has_a_trace_that_a_player_can_finish() -> None:
    traces, _ = packed()
    assert sorted(traces) == list(range(16))
    for nodes in traces.values():
        ids = [one["id"] for one in nodes]
        assert len(set(ids)) == len(ids)
        graph = nx.DiGraph([(before, one["id"]) for one in nodes for before in one["deps"]])
        assert set(graph) <= set(ids)
        assert nx.is_directed_acyclic_graph(graph)


def test_all_ranks_together_have_no_circle() -> None:
    """Messages order ranks of different stages: their ends are edges, too."""
    traces, _ = packed()
    graph = nx.DiGraph()
    ends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for rank, nodes in traces.items():
        for one in nodes:
            graph.add_edges_from(((rank, before), (rank, one["id"])) for before in one["deps"])
            if one["type"] in (SEND, RECEIVE):
                key = (one["comm_src"], one["comm_dst"], one.get("comm_tag", 0))
                place = 0 if one["type"] == SEND else 1
                ends.setdefault(key, []).insert(place, (rank, one["id"]))
    assert all(len(both) == 2 for both in ends.values())
    graph.add_edges_from((both[0], both[1]) for both in ends.values())
    assert nx.is_directed_acyclic_graph(graph)


def test_messages_have_two_ends_and_the_bytes_of_their_activations() -> None:
    traces, _ = packed()
    sent = {
        (one["comm_src"], one["comm_dst"], one.get("comm_tag", 0)): one["comm_size"]
        for rank, nodes in traces.items()
        for one in nodes
        if one["type"] == SEND and one["comm_src"] == rank
    }
    received = {
        (one["comm_src"], one["comm_dst"], one.get("comm_tag", 0)): one["comm_size"]
        for rank, nodes in traces.items()
        for one in nodes
        if one["type"] == RECEIVE and one["comm_dst"] == rank
    }
    assert sent == received
    # 16 sequences over 4 data ranks: 4 micro-batches, forward and back, between 4 chunks on 8 pairs
    # of ranks.
    assert len(sent) == 4 * 2 * 3 * 8
    # A sequence of 4,096 tokens of 2,048 numbers in bf16, of which each tensor rank has a half.
    assert set(sent.values()) == {4096 * 2048 * 2 // 2}


def test_collectives_name_groups_of_which_they_are_members_and_have_their_bytes() -> None:
    traces, groups = packed()
    counted: Counter[tuple[str, int, int, int]] = Counter()
    for rank, nodes in traces.items():
        for one in nodes:
            if one["type"] == COLLECTIVE:
                members = groups[one["pg_name"]]
                assert rank in members
                key = (one["name"], one.get("comm_type", 0), one["comm_size"], len(members))
                counted[key] += rank == 0
    whole = 4096 * 2048 * 2  # activations of a sequence in bf16
    assert counted["attention_gather", ALL_GATHER, whole, 2] > 0
    assert counted["attention_reduce", REDUCE_SCATTER, whole, 2] > 0
    # Half a sequence on each rank, eight experts for a token: what four ranks exchange.
    assert counted["dispatch", ALL_TO_ALL, whole // 2 * 8, 4] > 0
    assert counted["gradient_norm", ALL_REDUCE, 4, 16] == 1
    every = {kind for _, kind, _, _ in counted}
    assert every == {ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER}


def test_ranks_of_a_group_run_the_same_collectives_in_the_same_order() -> None:
    traces, groups = packed()
    for name, members in groups.items():
        rows = [
            [(one["name"], one["comm_size"]) for one in traces[rank] if one.get("pg_name") == name]
            for rank in members
        ]
        if name != "0":
            assert all(first == second for first, second in pairwise(rows))


def test_durations_are_those_of_the_step_alone() -> None:
    """Kernels of a rank come to what its compute stream works; contention comes from the player."""
    traces, _ = packed()
    run = ask(load(Path(__file__).parent / "__pycache__" / "chakra.yaml", EIGHT), cache=False)
    for rank, role in ((0, 0), (15, 1)):
        busy = sum(
            one.get("duration_ns", 0)
            for one in traces[rank]
            if one["type"] == COMPUTE
            and not one.get("is_cpu_op")
            and one["name"] != "garbage_collection"  # in which the stream waits for the host
        )
        own = run.trace.breakdown_ns[role]
        assert busy == own["compute"] + own["optimizer"]
        for one in traces[rank]:
            assert one["duration"] == round(one.get("duration_ns", 0) / 1000)


def test_copies_have_bytes_and_go_both_ways() -> None:
    traces, _ = packed()
    copies = [one for one in traces[0] if one["type"] in (LOAD, STORE)]
    assert {one["type"] for one in copies} == {LOAD, STORE}
    assert all(one["tensor_size"] > 0 for one in copies)


def test_a_long_message_has_a_long_length() -> None:
    made = messages()["GlobalMetadata"](version="x" * 300)
    length, at = varint(framed(made), 0)
    assert (length, at) == (303, 2)


def test_too_many_operations_are_refused(
    twin_command: Command, small_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.interop.export.chakra._MOST", 1000)
    done = twin_command("export", small_file, "--format", "chakra", "-o", "q.zip")
    assert done.code == 2
    assert "TW338" in done.err


def test_the_same_scenario_gives_the_same_bytes() -> None:
    run = ask(load(Path(__file__).parent / "__pycache__" / "chakra.yaml", EIGHT), cache=False)
    both = []
    for _ in range(2):
        sink = BytesIO()
        content = files(run, stamp(run, "chakra"))[""]
        assert callable(content)
        content(sink)
        both.append(sink.getvalue())
    assert both[0] == both[1]
