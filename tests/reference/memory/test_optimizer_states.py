"""Optimizer states in host memory: the same steps, bit by bit, and where they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference.memory.optimizer_states import Bytes, OptimizerStates, standing
from reference.model import Transformer
from reference.optim.blocks import MASTER, ParameterBlock, States
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from tests.reference.memory.small import model
from twin.spec.memory import MemorySpec

POLICIES = {
    f"{which} on {place}": MemorySpec.model_validate(
        {"offload": [which], "optimizer_update": place}
    )
    for which in ("optimizer", "optimizer_dense", "optimizer_expert")
    for place in ("device", "host")
}


def trained(
    states: States | None, dtype: torch.dtype, kind: str = "muonclip", steps: int = 3
) -> tuple[Transformer, MuonClip]:
    """The model after some steps along random gradients."""
    made = model(dtype=dtype)
    settings = OptimizerSpec.model_validate({"kind": kind, "lr": 0.01})
    optimizer = MuonClip(made.named_parameters(), settings, states)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for parameter in made.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return made, optimizer


def values(made: Transformer, optimizer: MuonClip) -> dict[str, Tensor]:
    """Weights and states by name."""
    found = dict(made.named_parameters())
    for name, states in optimizer.state_dict()["state"].items():
        found |= {f"{name}/{key}": one for key, one in states.items()}
    return {name: one.detach().clone() for name, one in found.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["muonclip", "adamw"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_steps_are_the_same_wherever_states_rest(policy: MemorySpec, kind: str, dtype: torch.dtype):
    expected = values(*trained(None, dtype, kind))
    found = values(*trained(OptimizerStates(policy), dtype, kind))
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


def test_bytes_are_counted_where_they_are():
    """Muon: 4 bytes a weight and 4 for the master; AdamW: 8 and 4."""
    made, optimizer = trained(
        OptimizerStates(POLICIES["optimizer_expert on device"]), torch.bfloat16
    )
    sizes = {name: one.numel() for name, one in made.named_parameters()}
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    tables = sum(
        size
        for name, size in sizes.items()
        if name.startswith(("embedding", "head")) or name.endswith("gain")
    )
    every = sum(sizes.values())
    buffers = sum(one.nbytes for one in made.buffers())
    assert standing(made, optimizer) == {
        "parameters": Bytes(2 * every + buffers),
        "gradients": Bytes(4 * every),
        "optimizer_dense": Bytes(8 * (every - experts) + 4 * tables, 0),
        "optimizer_expert": Bytes(0, 8 * experts),
    }


def test_only_the_named_kind_goes_to_the_host():
    made, optimizer = trained(OptimizerStates(POLICIES["optimizer on device"]), torch.float32)
    found = standing(made, optimizer)
    assert (found["optimizer_dense"].device, found["optimizer_expert"].device) == (0, 0)
    made, optimizer = trained(OptimizerStates(POLICIES["optimizer_dense on host"]), torch.float32)
    found = standing(made, optimizer)
    assert found["optimizer_dense"].device == found["optimizer_expert"].host == 0
    assert found["optimizer_dense"].host > 0


def test_a_block_comes_up_while_the_one_before_is_updated(monkeypatch: pytest.MonkeyPatch):
    """From the second on; never more than two are there at once, with one on its way down."""
    states = OptimizerStates(POLICIES["optimizer on device"])
    order: list[str] = []
    bring, store = OptimizerStates._bring, OptimizerStates.store

    def brought(self: OptimizerStates, block: ParameterBlock):
        order.append(f"up {names[block.name]}")
        return bring(self, block)

    def stored(self: OptimizerStates, block: ParameterBlock, tensors: dict[str, Tensor]) -> None:
        order.append(f"down {names[block.name]}")
        store(self, block, tensors)

    made = model()
    optimizer = MuonClip(made.named_parameters(), OptimizerSpec(), states)
    names = {block.name: number for number, block in enumerate(optimizer.blocks)}
    monkeypatch.setattr(OptimizerStates, "_bring", brought)
    monkeypatch.setattr(OptimizerStates, "store", stored)
    for parameter in made.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    last = len(names) - 1
    assert last > 3
    expected = ["up 0", "down 0", "up 1"]
    for number in range(1, last):
        expected += [f"up {number + 1}", f"down {number}"]
    assert order == [*expected, f"down {last}"]


def test_the_host_updates_only_weights_that_have_a_master(monkeypatch: pytest.MonkeyPatch):
    brought: list[str] = []
    bring = OptimizerStates._bring

    def noted(self: OptimizerStates, block: ParameterBlock):
        brought.append(block.name)
        return bring(self, block)

    monkeypatch.setattr(OptimizerStates, "_bring", noted)
    trained(OptimizerStates(POLICIES["optimizer on host"]), torch.bfloat16, steps=1)
    assert brought == []
    _, optimizer = trained(OptimizerStates(POLICIES["optimizer on host"]), torch.float32, steps=1)
    assert len(brought) == len(optimizer.blocks)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_checkpoint_of_one_policy_goes_on_under_another(policy: MemorySpec):
    _, source = trained(None, torch.bfloat16, steps=2)
    made, optimizer = trained(OptimizerStates(policy), torch.bfloat16, steps=1)
    optimizer.load_state_dict(source.state_dict())
    found, expected = optimizer.state_dict()["state"], source.state_dict()["state"]
    for name, states in expected.items():
        assert all(torch.equal(found[name][key], one) for key, one in states.items())
    for name, parameter in made.named_parameters():
        assert torch.equal(parameter, expected[name][MASTER].to(torch.bfloat16))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_clipping_between_steps_reaches_states_on_the_host(policy: MemorySpec):
    made, optimizer = trained(OptimizerStates(policy), torch.bfloat16, steps=1)
    weight = made.get_parameter("layers.1.ffn.experts.up")
    before = optimizer.state[weight][MASTER].clone()
    optimizer.multiply(weight, torch.tensor(0.5))
    assert torch.equal(optimizer.state[weight][MASTER], before * 0.5)
    assert torch.equal(weight, (before * 0.5).to(torch.bfloat16))


def test_what_is_written_where_states_rest_holds_for_a_block_on_its_way_up():
    _, optimizer = trained(OptimizerStates(POLICIES["optimizer on device"]), torch.bfloat16)
    states, (first, second, third, *_) = optimizer.states, optimizer.blocks
    states.store(first, states.load(first))
    states.load(second)  # brings the third along
    states.kept(third)[MASTER].fill_(7)
    assert torch.equal(states.load(third)[MASTER], torch.full((third.weights,), 7.0))


def test_blocks_may_be_loaded_in_any_order():
    _, optimizer = trained(OptimizerStates(POLICIES["optimizer on device"]), torch.bfloat16)
    states, (first, second, third, fourth, *_) = optimizer.states, optimizer.blocks
    states.store(first, states.load(first))
    states.load(second)  # brings the third along
    for block in (fourth, first, third):
        assert torch.equal(states.load(block)[MASTER], states.kept(block)[MASTER])
