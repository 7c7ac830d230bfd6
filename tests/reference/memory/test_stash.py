"""How the mechanism behaves: who runs again, when, how often, and when memory is free again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from reference.memory.saved_tensor import Again, Frame
from reference.memory.stash import Stash, layer, mark, op, persistent, recomputing
from tests.reference.memory.small import EXACT, forward, model, tokens
from twin.spec.memory import MemorySpec

NORMS = MemorySpec(recompute=("norms",))
CORE = MemorySpec(recompute=("attention_core",))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Memory comes back by counting references, not whenever the collector runs."""
    gc.disable()
    yield
    gc.enable()


class Counted:
    """A function that knows how often it ran, and in which of its runs a backward was under way."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.again = fn, list[bool]()

    def __call__(self, *inputs: Tensor) -> Any:
        self.again.append(recomputing())
        return self.fn(*inputs)


def test_without_a_stash_calls_are_plain_calls(x: Tensor):
    doubled = Counted(lambda one: 2 * one)
    assert torch.equal(op("norms", doubled, x), 2 * x)
    assert torch.equal(layer(0, doubled, x), 2 * x)
    assert mark("swiglu_input", x) is x
    assert doubled.again == [False, False]


def test_a_policy_that_does_nothing_sets_no_hooks(x: Tensor):
    with Stash(MemorySpec(offload=("optimizer",))) as stash:
        y = op("norms", torch.exp, x)
    # torch refuses a second pair of hooks on a saved tensor.
    node: Any = y.grad_fn
    node._raw_saved_result.register_hooks(Tensor.detach, Tensor.detach)
    assert stash.kept == {}


def test_an_op_runs_again_once_whoever_reads_it(x: Tensor):
    exponential = Counted(torch.exp)
    with Stash(NORMS):
        y = op("norms", exponential, x)
        loss = (y.sin() + y.square() + y.exp()).sum()
    assert exponential.again == [False]
    loss.backward()
    assert exponential.again == [False, True]


def test_outputs_of_one_op_share_one_run(x: Tensor):
    pair = Counted(lambda one: (one.sin(), one.cos()))
    with Stash(MemorySpec(recompute=("mla_up",))):
        first, second = op("mla_up", pair, x)
        loss = (first * second).sum()
    loss.backward()
    assert pair.again == [False, True]


def test_an_op_that_nobody_needs_does_not_run_again(x: Tensor):
    added = Counted(lambda one: one + 1)
    with Stash(MemorySpec(recompute=("moe_down",))):
        loss = op("moe_down", added, x).sum()
    loss.backward()
    assert added.again == [False]


def test_the_output_of_the_attention_core_stays(x: Tensor):
    """Its other outputs, and what it keeps inside, do not."""
    core = Counted(lambda one: (one.exp(), one.sin()))
    with Stash(CORE, measure=True) as stash:
        out, statistics = op("attention_core", core, x * 1)
        loss = (out.square() + statistics.square()).sum()
    assert sum(stash.kept.values()) == x.nbytes * 2  # the op's input, and its first output
    loss.backward()
    assert core.again == [False, True]


@pytest.mark.usefixtures("without_collector")
def test_what_an_op_reads_is_free_when_it_ran_again(x: Tensor):
    with Stash(MemorySpec(recompute=("mla_up",))):
        twice = x * 2
        alive = StorageWeakRef(twice.untyped_storage())
        first, second = op("mla_up", lambda one: (one.exp(), one.tanh()), twice)
        loss = (first.sin() + second.cos()).sum()
    del twice
    seen: list[bool] = []
    second.register_hook(lambda _: seen.append(alive.expired()))
    assert not alive.expired()
    loss.backward()
    assert seen == [True]


def test_what_runs_again_reads_what_runs_again(x: Tensor):
    first, second = Counted(torch.exp), Counted(torch.sin)
    with Stash(MemorySpec(recompute=("norms", "swiglu"))) as stash:
        loss = op("swiglu", second, op("norms", first, x)).square().sum()
    assert sum(stash.kept.values()) == x.nbytes
    (found,) = torch.autograd.grad(loss, x)
    assert (first.again, second.again) == ([False, True], [False, True])
    assert torch.equal(found, torch.autograd.grad(x.exp().sin().square().sum(), x)[0])


def test_a_layer_under_full_keeps_its_input_alone(x: Tensor):
    block = Counted(lambda one: op("norms", torch.exp, one).sin().square())
    with Stash(MemorySpec(recompute=("full", "norms")), measure=True) as stash:
        loss = layer(0, block, x * 1).sum()
    assert stash.kept["activations"] == x.nbytes
    loss.backward()
    assert block.again == [False, True]


def test_one_storage_that_many_save_counts_once(x: Tensor):
    with Stash(MemorySpec(), measure=True) as stash:
        y = x * 1
        readers = [y.sin(), y.t().sin(), y[2:].square(), y.view(-1).cos()]
    assert sum(stash.kept.values()) == y.nbytes
    assert all(one.requires_grad for one in readers)


def test_parameters_and_tables_are_not_counted():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    table = persistent(torch.ones(4, 4))
    with Stash(MemorySpec(offload=("activations",)), measure=True) as stash:
        loss = layer(0, _gram, weight, table).sum()
    assert stash.kept["activations"] == stash.kept["host"] == 0
    loss.backward()
    assert weight.grad is not None


def _gram(weight: Tensor, table: Tensor) -> Tensor:
    return weight @ weight.t() * table


def test_a_stash_inside_a_stash_has_its_own_forward(x: Tensor):
    with Stash(NORMS, measure=True) as outer:
        a = op("norms", torch.exp, x).sin().sum()
        with Stash(MemorySpec(), measure=True) as inner:
            b = op("norms", torch.exp, x).sin().sum()
        c = op("norms", torch.exp, x).sin().sum()
    assert sum(outer.kept.values()) == x.nbytes
    assert sum(inner.kept.values()) == x.nbytes
    (a + b + c).backward()


@pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT)
def test_a_backward_under_another_forwards_stash_is_none_of_its_business(policy: MemorySpec):
    pico = model()
    alone = forward(pico, tokens(pico), policy, measure=True)[1].kept
    first, _ = forward(pico, tokens(pico), policy)
    with Stash(policy, measure=True) as stash:
        second = pico.loss(tokens(pico), tokens(pico))
        first.backward()
    assert stash.kept == alone
    second.backward()


def test_a_stash_is_for_one_forward():
    stash = Stash(NORMS)
    with stash:
        pass
    with pytest.raises(RuntimeError, match="one forward"), stash:
        pass


def test_after_an_error_nothing_is_active(x: Tensor):
    with pytest.raises(ZeroDivisionError), Stash(EXACT["all"]):
        layer(0, lambda one: op("norms", lambda: 1 / 0) or one, x)
    exponential = Counted(torch.exp)
    op("norms", exponential, x).sin().sum().backward()
    assert exponential.again == [False]


def test_gradients_of_what_does_not_want_them_are_not_made(x: Tensor):
    frozen = torch.ones(8, 16)
    with Stash(NORMS):
        loss = op("norms", torch.mul, x, frozen).exp().sum()
    loss.backward()
    assert frozen.grad is None


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT)
def test_after_the_backward_nothing_is_left(policy: MemorySpec, monkeypatch: pytest.MonkeyPatch):
    seen: list[StorageWeakRef] = []
    hold = Stash._hold

    def noted(self: Stash, tensor: Tensor, *more: str) -> object:
        seen.append(StorageWeakRef(tensor.untyped_storage()))
        return hold(self, tensor, *more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Stash, "_hold", noted)
    pico = model()
    loss, stash = forward(pico, tokens(pico), policy, measure=True)
    loss.backward()
    del loss
    assert len(seen) > 50
    assert [one for one in seen if not one.expired()] == []
    assert stash.ledger


@pytest.mark.usefixtures("without_collector")
def test_what_was_made_again_is_free_when_its_last_reader_is_done(
    monkeypatch: pytest.MonkeyPatch,
):
    """At no time is more alive of what ran again than one layer has."""
    made: list[tuple[StorageWeakRef, int]] = []
    alive: list[int] = []
    run = Frame.run

    def counted(self: Frame) -> None:
        wanted = [held for one in self._wanted.values() if (held := one())]
        run(self)
        for held in wanted:
            assert isinstance(held.form, Again)
            storage = held.form.made
            assert storage is not None
            made.append((StorageWeakRef(storage), storage.nbytes()))
        alive.append(sum(size for one, size in made if not one.expired()))

    monkeypatch.setattr(Frame, "run", counted)
    pico = model()
    loss, _ = forward(pico, tokens(pico), EXACT["full"])
    loss.backward()
    assert len(alive) == 3
    whole = sum(size for _, size in made)
    assert max(alive) < 0.5 * whole
    assert all(one.expired() for one, _ in made)
