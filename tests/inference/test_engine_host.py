"""The host of an engine: sums by hand, and laws of frameworks that schedule ahead or apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.inference.engines import made
from twin.arch.ops import Exchange, Op
from twin.arch.stack import kinds
from twin.inference.engine import Engine, Pass
from twin.inference.host import hosted, kernels_of, sequence_seconds
from twin.inference.kv_capacity import room
from twin.inference.seconds import decode_items, decode_pass, exchanged
from twin.loading import load_part
from twin.spec.serving import ServingSpec


def served(model: str = "llama3-8b", software: str = "vllm-v1", **changes: Any) -> Engine:
    """An engine of the model under a framework, some of whose numbers are changed."""
    own = load_part("serving", software).spec
    keys = ("node", "gpus", "tensor", "experts", "eager")
    sizes = {key: changes.pop(key) for key in keys if key in changes}
    more = {"gpus": 1, "two_batches": False, **sizes}
    changed = {**own.model_dump(mode="json"), **changes}
    return made(model, **more, software=ServingSpec.model_validate(changed))


DEVICE = Pass({"memory": 0.010})
NUMBERS: dict[str, Any] = {
    "each_pass": "1ms",
    "sequence": "10us",
    "each_output": "20us",
    "launch": "10us",
}


@pytest.mark.parametrize(
    ("changes", "sequences", "expected"),
    [
        ({}, 100, 0.010 + 0.001 + 100 * 3e-5),
        ({"apart": True}, 100, 0.010 + 0.001 + 100 * 1e-5),
        ({"apart": True}, 1000, 0.020 + 0.001),
        ({"apart": True, "each_output": "100us"}, 1000, 0.100),
        ({"ahead": True}, 100, 0.010),
        ({"ahead": True}, 1000, 0.001 + 0.030),
        ({"graphs": 50}, 100, 0.020 + 0.001 + 100 * 3e-5),
    ],
)
def test_a_pass_and_its_host_by_hand(
    changes: dict[str, Any], sequences: int, expected: float
) -> None:
    """10 ms of 2,000 kernels: in line, apart, ahead, and launched one by one in 20 ms."""
    engine = served(**{**NUMBERS, "graphs": 4096, **changes})
    found = hosted(engine, DEVICE, sequences, 2000.0, sequences)
    assert found.seconds == pytest.approx(expected)
    assert found.causes["host"] == pytest.approx(expected - 0.010)


@pytest.mark.parametrize("software", ["vllm-v1", "vllm-v1-server", "vllm-v0", "sglang"])
def test_a_framework_never_makes_a_pass_faster(software: str) -> None:
    for batch in (1, 64, 512):
        bare = decode_pass(made("llama3-8b", gpus=1, two_batches=False), batch, 1000.0)
        assert decode_pass(served(software=software), batch, 1000.0).seconds > bare.seconds


def test_a_slower_cpu_takes_as_many_times_longer() -> None:
    engine = served()
    host = engine.cluster.node.host.model_copy(update={"slowness": 2.0})
    node = engine.cluster.node.model_copy(update={"host": host})
    cluster = engine.cluster.model_copy(update={"node": node})
    slow = Engine(engine.spec, engine.model, cluster, engine.calibration)
    assert sequence_seconds(slow) == pytest.approx(2 * sequence_seconds(engine))
    assert decode_pass(slow, 64, 500.0).causes["host"] == pytest.approx(
        2 * decode_pass(engine, 64, 500.0).causes["host"]
    )


def test_sampling_reads_every_logit() -> None:
    head = decode_items(served(sampling_bytes=40.0), 64, 500.0)["head"]
    (sampling,) = (item for item in head if item.name == "sampling")
    assert isinstance(sampling, Op)
    assert sampling.forward.bytes == 40.0 * 64 * 128_256


def cut(tensor: int) -> Engine:
    """DeepSeek-V3 with each expert over so many GPUs."""
    return served("deepseek-v3-no-mtp", gpus=tensor, tensor=tensor, experts="cut")


def test_experts_that_are_cut_weigh_and_compute_as_much_in_all() -> None:
    """Of one layer of experts: FLOP and bytes of 8 GPUs are those of one, but for attention."""
    one, eight = cut(1), cut(8)
    for name in ("experts_up", "experts_down", "shared_up", "shared_down"):
        single, part = (
            next(i for i in decode_items(e, 64, 500.0)["moe"] if i.name == name)
            for e in (one, eight)
        )
        assert isinstance(single, Op)
        assert isinstance(part, Op)
        assert 8 * part.forward.flop == single.forward.flop
    sums = [i for i in decode_items(eight, 64, 500.0)["moe"] if isinstance(i, Exchange)]
    assert [(i.group, i.forward) for i in sums if i.forward] == [("tensor", "all_reduce")] * 2
    assert room(one).weights / 8 == pytest.approx(room(eight).weights, rel=0.05)


def test_single_operations_of_latent_attention_are_launched_without_graphs_alone() -> None:
    """Fourteen kernels more in each of DeepSeek-V3's 61 layers."""
    sizes: dict[str, Any] = {"gpus": 32, "tensor": 32, "experts": "cut"}

    def kernels(**changes: Any) -> float:
        engine = served("deepseek-v3", **sizes, **changes)
        counts = Counter(kinds(engine.model))
        return kernels_of(decode_items(engine, 8, 100.0), counts)

    none = kernels(eager=True, latent_kernels=0)
    assert kernels(eager=True, latent_kernels=14) - none == 14 * 61
    assert kernels(latent_kernels=14) == none


def test_every_pass_goes_to_each_further_node_and_back() -> None:
    sizes: dict[str, Any] = {"experts": "cut", "sequence": "0s"}
    for gpus, further in ((8, 0), (16, 1), (32, 3)):
        near, far = (
            served("deepseek-v3", gpus=gpus, tensor=gpus, each_node=each, **sizes)
            for each in ("0s", "4ms")
        )
        longer = decode_pass(far, 8, 500.0).seconds - decode_pass(near, 8, 500.0).seconds
        assert longer == pytest.approx(further * 4e-3)


MEASURED: dict[int, dict[int, float]] = {
    2: {8: 4.4, 64: 4.8, 256: 6.3, 1024: 12.5, 2048: 20.3},
    4: {8: 4.9, 64: 5.8, 256: 11.4, 1024: 18.6, 2048: 30.5},
    8: {8: 5.2, 64: 7.7, 256: 15.6, 1024: 20.9, 2048: 34.5},
}
"""Microseconds of vLLM 0.14's all-reduce in graphs on H100, by GPUs and KiB (aiconfigurator)."""


def test_the_all_reduce_of_a_framework_is_the_measured_one() -> None:
    errors: list[float] = []
    for gpus, times in MEASURED.items():
        engine = served(node="h100-8gpu", gpus=gpus, tensor=gpus)
        for size, took in times.items():
            item = Exchange("sum", "tensor", 1024.0 * size, "all_reduce", None)
            errors.append(abs(1e6 * exchanged(engine, item, "decode") / took - 1))
    assert sum(errors) / len(errors) < 0.09
    assert max(errors) < 0.25


def test_an_all_reduce_is_never_slower_than_the_librarys() -> None:
    for size in (1e3, 1e6, 1e9):
        item = Exchange("sum", "tensor", size, "all_reduce", None)
        own, library = (served(gpus=8, tensor=8, reduce_start=s) for s in ("4.5us", "0s"))
        assert exchanged(own, item, "decode") <= exchanged(library, item, "decode")
        far = [served(gpus=16, tensor=16, reduce_start=s) for s in ("4.5us", "0s")]
        assert len({exchanged(one, item, "decode") for one in far}) == 1


def test_kernels_of_a_step_are_counted_with_collectives() -> None:
    op = decode_items(served(), 8, 100.0)
    alone = sum(i.forward.kernels for i in op["dense"] if isinstance(i, Op))
    assert kernels_of({"dense": op["dense"]}, {"dense": 3}) == 3 * alone


def test_software_of_engines_has_finite_numbers_with_sources() -> None:
    for name in ("vllm-v0", "vllm-v1", "vllm-v1-server", "vllm-ahead", "sglang"):
        part = load_part("serving", name)
        assert isinstance(part.spec, ServingSpec)
        assert part.spec.name == name
