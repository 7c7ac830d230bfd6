"""Sections read quantities, refuse loose values, and write themselves back exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from twin.errors import FieldError, Origin, Problem, ScenarioError, UsageError, render
from twin.scenario import ParallelSpec, Scenario, TrainSpec
from twin.spec.axis import unions
from twin.spec.base import Spec
from twin.spec.cluster import MOST_GPUS, ClusterSpec, FabricSpec, GpuSpec, LinkSpec, NodeSpec
from twin.spec.model import ModelSpec

LINK: dict[str, Any] = {"bandwidth": "400Gbps", "efficiency": 0.9, "latency": "2us"}
TRAIN: dict[str, Any] = {
    "tokens": "1M",
    "sequence": "128tok",
    "global_batch": "16seq",
    "optimizer": "adamw",
}


def test_a_section_holds_si_numbers() -> None:
    assert LinkSpec.model_validate(LINK).bandwidth == 50e9


@given(st.floats(1e5, 1e18), st.floats(0.001, 1), st.floats(0, 1))
def test_what_json_mode_writes_reads_back_to_the_same(
    bandwidth: float, efficiency: float, latency: float
) -> None:
    link = LinkSpec.model_construct(bandwidth=bandwidth, efficiency=efficiency, latency=latency)
    assert LinkSpec.model_validate(link.model_dump(mode="json")) == link


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": 50e9},
        {"bandwidth": "0B/s"},
        {"efficiency": "0.9"},
        {"efficiency": 0},
        {"efficiency": 1.01},
        {"efficiency": float("nan")},
        {"efficiency": True},
        {"latency": "-1us"},
        {"speed": 1},
    ],
)
def test_loose_values_and_unknown_keys_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LinkSpec.model_validate({**LINK, **change})


FABRIC: dict[str, Any] = {
    "name": "f",
    "kind": "rail_fat_tree",
    "nodes_per_leaf": 1,
    "spines": 1,
    "efficiency": 1,
    "hop_latency": "0s",
}
MODEL: dict[str, Any] = {
    "name": "m",
    "layers": 1,
    "hidden": 1,
    "vocab": 1,
    "attention": {"kind": "gqa", "heads": 1, "kv_heads": 1, "head_dim": 1},
    "ffn": {"kind": "gelu", "width": 1},
}


@pytest.mark.parametrize(
    ("section", "good", "field", "inside", "outside"),
    [
        (LinkSpec, LINK, "bandwidth", "100kB/s", "99kB/s"),
        (LinkSpec, LINK, "bandwidth", "1EB/s", "1.001EB/s"),
        (LinkSpec, LINK, "latency", "1s", "1.001s"),
        (LinkSpec, LINK, "efficiency", 0.001, 0.0009),
        (FabricSpec, FABRIC, "oversubscription", 1000, float("inf")),
        (FabricSpec, FABRIC, "oversubscription", 1.5, True),
        (FabricSpec, FABRIC, "oversubscription", 1.5, "1.5"),
        (FabricSpec, FABRIC, "spines", 10**9, 10**9 + 1),
        (ModelSpec, MODEL, "layers", 2_000, 2_001),
        (ModelSpec, MODEL, "hidden", 1_000_000, 1_000_001),
        (ModelSpec, MODEL, "mtp_layers", 100, 101),
        (TrainSpec, TRAIN, "tokens", "1000000T", "1000001T"),
        (TrainSpec, TRAIN, "sequence", "100Mtok", "200Mtok"),
        (TrainSpec, TRAIN, "global_batch", "1Mseq", "1e20seq"),
        (ParallelSpec, {"schedule": "gpipe"}, "zero", 1, True),
        (ParallelSpec, {"schedule": "gpipe"}, "zero", 0, 0.0),
    ],
)
def test_a_number_beyond_anything_built_is_refused(
    section: type[Spec], good: dict[str, Any], field: str, inside: object, outside: object
) -> None:
    section.model_validate({**good, field: inside})
    with pytest.raises(ValidationError):
        section.model_validate({**good, field: outside})


def test_a_cluster_has_no_more_gpus_than_ranks_can_be_told_apart() -> None:
    node = NodeSpec.model_construct(gpus=8)
    good = {"node": node, "fabric": FABRIC, "nodes": MOST_GPUS // 8}
    assert ClusterSpec.model_validate(good).gpus == MOST_GPUS
    with pytest.raises(ValidationError, match="125,001 nodes x 8 GPUs are more than 1,000,000"):
        ClusterSpec.model_validate({**good, "nodes": MOST_GPUS // 8 + 1})


def test_fields_whose_settings_depend_on_their_kind_are_known() -> None:
    assert set(unions(Scenario)) == {
        ("parallel", "schedule"),
        ("train", "optimizer"),
        ("train", "routing"),
        ("model", "attention"),
        ("data", "model", "attention"),
        ("rl", "rollout", "model", "attention"),
        ("model", "mixer"),
        ("data", "model", "mixer"),
        ("rl", "rollout", "model", "mixer"),
        ("rl", "rollout", "prompt"),
        ("rl", "rollout", "written"),
        ("rl", "rollout", "turns"),
    }


@pytest.mark.parametrize("value", ["4", 4.5, True, 0, -1, None])
def test_a_count_is_a_whole_number_of_at_least_one(value: object) -> None:
    with pytest.raises(ValidationError):
        ParallelSpec.model_validate({"schedule": "gpipe", "pipeline": value})


def test_sections_are_frozen() -> None:
    with pytest.raises(ValidationError):
        LinkSpec.model_validate(LINK).efficiency = 0.5  # type: ignore[misc]


def test_an_absent_rate_stays_absent() -> None:
    gpu = {
        "name": "g",
        "memory": "10GiB",
        "memory_bandwidth": "1TB/s",
        "bf16_dense": "1TFLOP/s",
        "sms": 1,
        "calibration": "c",
    }
    read = GpuSpec.model_validate(gpu)
    assert read.fp8_dense is None
    assert read.model_dump(mode="json")["fp8_dense"] is None


@pytest.mark.parametrize(("batch", "sequences"), [("16seq", 16), ("2048tok", 16), ("1Mseq", 10**6)])
def test_a_batch_is_in_tokens_or_in_sequences(batch: str, sequences: int) -> None:
    train = TrainSpec.model_validate({**TRAIN, "global_batch": batch})
    assert train.global_batch_sequences == sequences
    assert train.global_batch == sequences * 128


@pytest.mark.parametrize(
    ("batch", "code"), [("2049tok", "TW017"), (2048, "TW012"), ("67M", "TW012"), (None, "TW012")]
)
def test_a_batch_without_unit_or_with_a_split_sequence_is_refused(batch: Any, code: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainSpec.model_validate({**TRAIN, "global_batch": batch})
    (entry,) = caught.value.errors()
    cause = entry["ctx"]["error"]  # type: ignore[typeddict-item]
    assert isinstance(cause, FieldError)
    assert cause.code == code


def test_a_wrong_sequence_length_is_one_error_not_two() -> None:
    with pytest.raises(ValidationError) as caught:
        TrainSpec.model_validate({**TRAIN, "sequence": 128})
    assert [entry["loc"] for entry in caught.value.errors()] == [("sequence",)]


def test_the_caret_stands_under_the_guilty_part_and_arrivals_are_named() -> None:
    child = Origin("child.yaml", 1, 10, "extends: base.yaml", 9)
    place = Origin("base.yaml", 3, 4, "\ta: 1x", 2, via=child)
    problem = Problem("TW014", "a", "expected a whole number", "write 1", place)
    assert render([problem]) == (
        "base.yaml:3:4: TW014 expected a whole number\n"
        "  |  a: 1x\n"
        "  |    ^^\n"
        "  hint: write 1\n"
        "  from: child.yaml:1:10 extends base.yaml"
    )


def test_a_problem_without_a_place_names_its_field() -> None:
    assert render([Problem("TW101", "parallel.expert", "20 does not divide 384")]) == (
        "parallel.expert: TW101 20 does not divide 384"
    )


def test_what_is_quoted_is_printable_and_short() -> None:
    told = Problem("TW014", "a", "got `\ud800\x1b" + "9" * 5000 + "`, a text", "write \n" * 5000)
    assert told.message.startswith("got `??999")
    assert told.message.endswith("999`, a text")
    assert max(len(told.message), len(told.hint)) < 300
    assert render([told]).count("\n") == 1
    assert told.as_dict()["message"] == told.message


def test_errors_know_their_exit_code() -> None:
    problem = Problem("TW001", "", "no")
    assert (UsageError([problem]).exit_code, ScenarioError([problem]).exit_code) == (2, 3)
    assert str(ScenarioError([problem, problem])) == "TW001 no\n\nTW001 no"
