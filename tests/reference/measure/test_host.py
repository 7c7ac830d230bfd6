"""The host of the reference: labels of calls, functions whose times do not overlap, and items."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import active_children
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import twin
from reference.config import load_run
from reference.kernels import attention_blocks
from reference.measure.company import company
from reference.measure.host.counting import KIND_OF, KINDS
from reference.measure.host.functions import Layers, narrow_run
from reference.measure.host.items import in_place
from reference.measure.host.labels import label, local_name
from reference.measure.points import EXCHANGE, MESSAGE, read_points
from reference.model.transformer import Transformer
from reference.trainer.settings import settings
from twin.hardware.host_costs import HostCosts
from twin.loading import load
from twin.loading.files import shipped_folder
from twin.planning.types import Plan

PRODUCTS = set(KINDS["product"].split())
OWN_PRODUCTS = {"linear": 1, "router": 1, "part_block": 2, "whole_block": 2, "two_blocks": 4}
"""Products forward of functions that have any: scores and values of each block of attention."""


class _Watched(TorchDispatchMode):
    """The first call of torch under each label, and how many calls are products."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.names = names
        self.products = 0
        self.labels: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame: FrameType = sys._getframe(1)
        self.labels.add(label(frame, self.names))
        self.products += func.overloadpacket.__name__ in PRODUCTS
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def narrow() -> Any:
    """A narrow model, set up as a run's."""
    run = narrow_run()
    with settings(run.train):
        yield Layers(run)


def _names(model: nn.Module) -> dict[int, str]:
    return {id(module): local_name(name) for name, module in model.named_modules()}


def test_a_name_in_a_layer_leaves_out_the_layer() -> None:
    names = ["layers.3.attention.q_down", "layers.3", "head", ""]
    assert [local_name(name) for name in names] == ["attention.q_down", "layers.3", "head", ""]


def test_a_call_outside_of_the_reference_belongs_to_the_step() -> None:
    assert label(sys._getframe(), {}) == "step"


def test_every_kind_of_call_has_calls_of_its_own() -> None:
    assert len(KIND_OF) == sum(len(names.split()) for names in KINDS.values())


def test_every_operation_of_a_forward_has_its_label(narrow: Layers) -> None:
    words = torch.randint(0, 512, (1, 16))
    with _Watched(_names(narrow.model)) as watched:
        narrow.model.loss(words, words)
    assert watched.labels == {
        *("embedding_lookup", "attention_norm", "q_down", "q_norm", "q_up", "kv_down", "kv_norm"),
        *("kv_up", "mla_rope", "attention_flash", "attention_out", "ffn_norm", "ffn_up"),
        *("ffn_swiglu", "ffn_down", "router", "router_scores", "dispatch_permute", "experts_up"),
        *("experts_swiglu", "experts_down", "combine_unpermute", "shared_up", "shared_swiglu"),
        *("shared_down", "ffn_residual", "final_norm", "head", "loss_max"),
    }


def test_no_function_holds_the_products_of_another(narrow: Layers) -> None:
    """What has an item of its own is a stub elsewhere: no time is counted twice."""
    for name, timed in (narrow.functions() | narrow.blocks()).items():
        with _Watched({}) as watched:
            timed.call()
        assert watched.products == OWN_PRODUCTS.get(name, 0), name


def test_every_function_has_gradients_to_time(narrow: Layers) -> None:
    for name, timed in (narrow.functions() | narrow.blocks()).items():
        out = timed.call()
        outs = out if isinstance(out, tuple) else (out,)
        assert any(one.grad_fn is not None for one in outs), name


def _plan(layers: int, tokens: int) -> Plan:
    words = [f"model.layers={layers}", f"train.sequence={tokens}tok"]
    return twin.plan(load(shipped_folder() / "reference" / "bare-host-64-experts.yaml", words))


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_a_step_updates_every_parameter_of_the_reference_once(layers: int) -> None:
    plan = _plan(layers, 64)
    software = plan.scenario.software
    assert software is not None
    assert software.host is not None
    words = [f"model.layers={layers}", "model.moe.experts=64"]
    model = Transformer(load_run("nano", words).model, device="meta")
    costs = HostCosts(plan.scenario.calibration, software.host)
    seconds = costs.step([layer for chunk in plan.chunks for layer in chunk.layers])
    each = software.host.items["parameter"]
    assert seconds == pytest.approx(len(list(model.parameters())) * each)


@pytest.mark.parametrize("tokens", [16, 64, 96, 640])
def test_items_times_counts_are_the_host_of_a_step(tokens: int) -> None:
    """Four micro-batches of one sequence, 64 experts, blocks as the kernel's. Of
    the embedding the host leaves out half a backward, that of its input."""
    plan = _plan(3, tokens)
    assert plan.scenario.software is not None
    host = plan.scenario.software.host
    assert host is not None
    heads = torch.zeros(1, tokens, 2, 32)
    blocks = len(list(attention_blocks._sizes(heads, heads).blocks()))
    turns = {"attention_flash": blocks, "experts_up": 64, "experts_down": 64}

    def seconds(counts: Mapping[str, float]) -> float:
        return sum(count * host.items[name] for name, count in counts.items())

    total = 4 * 2 * seconds(host.each_microbatch)
    for item in (item for chunk in plan.chunks for layer in chunk.layers for item in layer.items):
        own = host.operations[item.name]
        each = seconds(own.each_forward) + seconds(own.each_backward)
        passes = seconds(own.forward) + seconds(own.backward) + turns.get(item.name, 0) * each
        total += 4 * passes + seconds(own.update)
    trace = twin.simulate(twin.lower(plan))
    assert trace.breakdown_ns[0]["host"] / 1e9 == pytest.approx(total, rel=1e-3)


def test_functions_at_a_models_widths_are_timed_forward_and_backward() -> None:
    run = load_run("nano", ["model.layers=2", "train.threads=1", "train.precision=bf16"])
    with settings(run.train):
        found = in_place(Layers(run, 2, 32), rounds=2, warm=1)
    assert {f"{name}{way}" for name in ("norm", "attention") for way in ("", "_backward")} < {
        *found
    }
    assert all(seconds > 0 for seconds in found.values())


def test_other_cores_work_only_as_long_as_they_are_asked_to() -> None:
    cores = os.sched_getaffinity(0)
    with company():
        assert len(os.sched_getaffinity(0)) == 1
        assert len(active_children()) == len(cores) - 1
    assert os.sched_getaffinity(0) == cores
    assert not active_children()


def test_both_sides_of_a_message_are_timed(tmp_path: Path) -> None:
    words = ["reference.cluster", "--loopback", "--", "reference.measure.messages", "--output"]
    subprocess.run([sys.executable, "-m", *words, str(tmp_path)], check=True, capture_output=True)
    *messages, exchange = read_points(tmp_path)
    assert [point.shape["bytes"] for point in messages] == [1 << 16, 1 << 18]
    assert all((point.op, point.shape["ranks"]) == (MESSAGE, 2) for point in messages)
    assert all(abs(point.timing.median) < 0.1 for point in messages)
    assert exchange.op == EXCHANGE
    assert 0 < exchange.timing.median < 0.1
