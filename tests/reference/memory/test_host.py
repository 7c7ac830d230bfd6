"""When a layer's activations leave and come back, and that nothing is lost on the way."""

from __future__ import annotations

import pytest
import torch

from reference.memory.host import Parcel, fetch, send
from reference.memory.saved_tensor import Unit
from reference.memory.stash import Stash, layer
from tests.reference.memory.small import KIMI_K2, forward, model, tokens
from twin.spec.memory import MemorySpec

OFFLOAD = MemorySpec(offload=("activations",))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str
)
def test_a_parcel_comes_back_as_it_went(dtype: torch.dtype):
    tensor = torch.arange(6).view(2, 3).to(dtype)
    parcel = Parcel(tensor)
    send([parcel])
    assert parcel.on_host
    assert parcel.value is not tensor
    send([parcel])  # it is there already
    assert torch.equal(parcel.tensor(), tensor)
    assert not parcel.on_host
    fetch([parcel])  # it is here already
    assert torch.equal(parcel.tensor(), tensor)


@pytest.mark.parametrize("policy", [OFFLOAD, KIMI_K2], ids=["offload", "kimi k2"])
def test_layers_leave_behind_their_forward_and_come_back_one_ahead(
    policy: MemorySpec, monkeypatch: pytest.MonkeyPatch
):
    """The forward after the next waits until a layer is out (`twin.planning.offload`)."""
    order: list[str] = []

    def noted(verb: str):
        plain = getattr(Unit, verb)

        def call(self: Unit) -> None:
            if verb != "fetch" or any(one.on_host for one in self._parcels()):
                order.append(f"{verb} {self.layer}")
            plain(self)

        monkeypatch.setattr(Unit, verb, call)

    for verb in ("send", "wait", "fetch"):
        noted(verb)
    pico = model()
    loss, _ = forward(pico, tokens(pico), policy)
    assert order == ["send 0", "send 1", "wait 0", "send 2"]
    order.clear()
    loss.backward()
    # The head's backward fetches the last layer, each layer's the one before it.
    assert order == ["fetch 2", "fetch 1", "fetch 0"]


def test_a_layer_is_fetched_when_the_backward_of_the_one_behind_it_begins():
    """Seen from the gradient that passes between two layers."""
    x = torch.ones(4, requires_grad=True)
    with Stash(OFFLOAD) as stash:
        between = [layer(0, torch.sin, x)]
        for index in (1, 2, 3):
            between.append(layer(index, torch.sin, between[-1]))
        loss = between[-1].square().sum()
    units = stash._units[1:]
    there: dict[int, list[bool]] = {}

    def look(index: int):
        def seen(_: torch.Tensor) -> None:
            there[index] = [one.on_host for unit in units for one in unit._parcels()]

        between[index].register_hook(seen)

    for index in range(4):
        look(index)
    loss.backward()
    # What is behind the last layer has brought that with it.
    assert there[3] == [True, True, True, False]
    # The gradient of layer 2's output: layer 3 is done and gone, and has brought 2 with it.
    assert there[2] == [True, True, False]
    assert there[1] == [True, False]
    assert there[0] == [False]


def test_all_of_a_layer_comes_at_once():
    x = torch.ones(4, requires_grad=True)
    inside: list[torch.Tensor] = []

    def three(x: torch.Tensor) -> torch.Tensor:
        inside.extend([x.sin()])
        inside.append(inside[-1].sin())
        return inside[-1].sin()

    with Stash(OFFLOAD) as stash:
        loss = layer(0, three, x).sum()
    unit = stash._units[1]
    assert [one.on_host for one in unit._parcels()] == [True, True, True]
    seen: list[list[bool]] = []
    inside[-1].register_hook(lambda _: seen.append([one.on_host for one in unit._parcels()]))
    inside.clear()
    loss.backward()
    assert seen == [[False, False]]
