"""What a GPU would use before its time, found without one: hand-checked cases, races planted into
the real code, and the real code without them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from reference import streams
from reference.memory import host, optimizer_states
from reference.memory.host import Parcel
from reference.memory.optimizer_states import OptimizerStates
from reference.optim.blocks import MASTER, ParameterBlock, States
from reference.parallel.groups import Moving, Sums, all_gather_parts
from reference.parallel.messages import Handover, Messages
from reference.weight_sync import sources
from reference.weight_sync.layout import Buffers, Unit, WeightBucket
from reference.weight_sync.needs import Target
from reference.weight_sync.pipeline import SENDS, BucketSender
from reference.weight_sync.ranks import Colocated
from reference.weight_sync.sources import HostCopies
from tests.reference.memory.small import KIMI_K2, PICO, model, step, tokens
from tests.reference.memory.test_optimizer_states import POLICIES, trained
from tests.reference.ordering import Paper, on_paper
from tests.reference.parallel.ranks import groups_of, run_ranks
from tests.reference.parallel.test_runtime import one_rank
from twin.spec.memory import MemorySpec

CPU = torch.device("cpu")


@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_waits_for_what_another_makes(waits: bool) -> None:
    with on_paper() as paper:
        x, other = torch.zeros(4), paper.new(CPU)
        other.wait_stream(paper.current(CPU))
        with paper.on(other):
            x.add_(1)
            done = other.record_event()
        if waits:
            paper.current(CPU).wait_event(done)
        x.mul_(2)
        other.synchronize()
    assert len(paper.found) == (not waits)
    assert waits or "aten::mul_ writes it on the main stream" in paper.found[0]
    assert waits or "until aten::add_ writes it on stream 1" in paper.found[0]


@pytest.mark.parametrize("early", [True, False])
def test_an_event_stands_where_it_was_recorded(early: bool) -> None:
    with on_paper() as paper:
        x, other = torch.zeros(4), paper.new(CPU)
        done = paper.current(CPU).record_event()
        x.add_(1)
        other.wait_event(done if early else paper.current(CPU).record_event())
        with paper.on(other):
            x.clone()
        other.synchronize()
    assert len(paper.found) == early


@pytest.mark.parametrize(
    "look", [lambda x: x.tolist(), lambda x: x.numpy(), lambda x: x[0].item()], ids=range(3)
)
@pytest.mark.parametrize("waits", [True, False])
def test_the_host_waits_for_a_copy(waits: bool, look: Callable[[Tensor], Any]) -> None:
    with on_paper() as paper:
        x = torch.ones(4)
        there = paper.host(x.shape, x.dtype, "cpu")
        paper.copy(there, x)
        if waits:
            paper.current(CPU).synchronize()
        look(there)
    assert len(paper.found) == (not waits)


def test_parts_of_one_storage_are_used_at_once() -> None:
    with on_paper() as paper:
        x, other = torch.zeros(8), paper.new(CPU)
        other.wait_stream(paper.current(CPU))
        x[:4].add_(1)
        with paper.on(other):
            x[4:].add_(1)
            assert paper.found == []
            x[3:].add_(1)
    assert len(paper.found) == 1


@pytest.mark.parametrize("told", ["keep", "stream", "host", "nobody"])
def test_memory_is_used_again_behind_all_that_use_it(told: str) -> None:
    with on_paper() as paper:
        x, other = torch.zeros(4), paper.new(CPU)
        other.wait_stream(paper.current(CPU))
        with paper.on(other):
            x.sum()
        if told == "keep":
            paper.keep(x, other)
        elif told == "stream":
            paper.current(CPU).wait_stream(other)
        elif told == "host":
            other.synchronize()
        del x
    assert len(paper.found) == (told == "nobody")
    assert told != "nobody" or "is used again too early" in paper.found[0]


@pytest.mark.parametrize("waits", [True, False])
def test_new_memory_may_still_be_in_use_where_it_was_made(waits: bool) -> None:
    with on_paper() as paper:
        x, other = torch.empty(4), paper.new(CPU)
        if waits:
            other.wait_stream(paper.current(CPU))
        with paper.on(other):
            x.fill_(1)
        other.synchronize()
    assert len(paper.found) == (not waits)


@pytest.mark.parametrize("asks", [True, False])
def test_a_future_tells_what_its_thread_has_waited_for(asks: bool) -> None:
    def work() -> None:
        other = paper.new(CPU)
        other.wait_event(made)
        with paper.on(other):
            x.add_(1)
        other.synchronize()

    with on_paper() as paper, ThreadPoolExecutor(1) as pool:
        x = torch.zeros(4)
        made = paper.current(CPU).record_event()
        future = pool.submit(work)
        if asks:
            future.result()
        while not future.done():
            pass
        x.mul_(2)
    assert len(paper.found) == (not asks)


# Below: the product's code.


def layers() -> None:
    """Two steps of a model whose activations wait in host memory, in part in FP8."""
    pico = model()
    for _ in range(2):
        step(pico, tokens(pico), KIMI_K2)


def update() -> None:
    """Three steps of an optimizer whose states are on the host, which then reads them."""
    _, optimizer = trained(OptimizerStates(POLICIES["optimizer on device"]), torch.bfloat16)
    for block in optimizer.blocks:
        optimizer.states.kept(block)[MASTER].add_(1)


def half_an_update() -> None:
    """The host changes states that are on their way up."""
    _, optimizer = trained(OptimizerStates(POLICIES["optimizer on device"]), torch.bfloat16)
    states, (first, second, third, *_) = optimizer.states, optimizer.blocks
    states.store(first, states.load(first))
    states.load(second)  # brings the third along
    states.kept(third)[MASTER].fill_(7)
    states.load(third)[MASTER].sum()


class Looking:
    """A wire that looks at what it sends."""

    lost: frozenset[int] = frozenset()

    def send(self, data: Tensor) -> None:
        streams.of(data.device).from_device(data).sum()

    def meet(self) -> None:
        """The only owner is here."""


def weights() -> None:
    """Weights to host memory, from there in buckets to a wire, and into an engine of the
    process."""
    unit, size = Unit("w", "w", None, (64,), torch.float32, ()), 64
    copies, wire = HostCopies([unit]), Looking()
    for version in range(2):
        copies.gather({"w": torch.ones(64) * version}, version)
        with copies.reading("w", version) as held:
            held.sum()
        buckets = [WeightBucket(0, turn, turn * size, size, ()) for turn in range(4)]
        given: Any = wire
        space = Buffers(size, 3), CPU
        SENDS["three"](BucketSender(0, buckets, copies, given, space))
    pico = model()
    colocated = Colocated(PICO, torch.float32)
    for version in range(2):
        colocated.keep([pico], version)
        served = {name: torch.zeros_like(one) for name, one in pico.state_dict().items()}
        colocated.update(Target(served))


def stages(rank: int) -> None:
    """A step of two stages."""
    one_rank(rank, 2, PICO.model_copy(update={"vocab": 64}), {"pipeline": 2}, MemorySpec())


def experts(rank: int) -> None:
    """A step of two ranks that share experts."""
    one_rank(rank, 2, PICO.model_copy(update={"vocab": 64}), {"expert": 2}, MemorySpec())


def gradients(rank: int) -> None:
    """Sums under which something else is computed; and parts that are put together in place."""
    group = groups_of("data", [[0, 1]])
    for whole in (True, False):
        sums = Sums(group, [torch.ones(8) + rank], "gradients", 0, whole=whole)
        torch.ones(8).add_(1)
        sums.wait()[0].mul_(2)
    x = torch.ones(8)
    all_gather_parts(group, [x], "weights")
    assert x.sum() == 8


Plant = Callable[[pytest.MonkeyPatch, Paper], None]


def never(paper: Paper) -> Any:
    """An event that orders nothing."""
    return paper.new(CPU).record_event()


def taken_early(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    def take(made: Handover) -> Tensor:
        paper.keep(made.tensor, paper.current(CPU))
        return made.tensor

    patch.setattr(Handover, "take", take)


def recorded_elsewhere(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    event = never(paper)
    patch.setattr(Handover, "of", lambda tensor: Handover(tensor, event))


def sent_early(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    sent = Messages._sent

    def early(self: Messages, key: Any, stage: int, made: Handover) -> None:
        sent(self, key, stage, Handover(made.tensor, never(paper)))

    patch.setattr(Messages, "_sent", early)


def not_kept(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    patch.setattr(paper, "keep", lambda *_: None)


def without_waiting(waits: type[Moving | Sums]) -> Plant:
    plain: Any = waits.wait

    def plant(patch: pytest.MonkeyPatch, paper: Paper) -> None:
        waited = paper.waited

        def early(self: Any) -> Any:
            paper.waited = lambda work: None  # noqa: ARG005
            try:
                return plain(self)
            finally:
                paper.waited = waited

        patch.setattr(waits, "wait", early)

    return plant


def recorded_on_the_main_stream(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    patch.setattr(Handover, "of", lambda tensor: Handover(tensor, paper._main.record_event()))


RANKS: dict[str, tuple[Callable[[int], None], Plant, str]] = {
    "what comes is taken before its event": (stages, taken_early, "c10d::recv_ writes"),
    "the event stands before what it is for": (stages, recorded_elsewhere, "c10d::recv_ writes"),
    "the event is of another stream": (stages, recorded_on_the_main_stream, "c10d::recv_ writes"),
    "a message leaves before it is made": (stages, sent_early, "c10d::send reads"),
    "memory of a message is freed while it is read": (stages, not_kept, "used again too early"),
    "rows are read before they are there": (experts, without_waiting(Moving), "alltoall_base_ wr"),
    "gradients are used before they are summed": (gradients, without_waiting(Sums), "allreduce_"),
}


@pytest.fixture(scope="module")
def of_ranks() -> dict[str, list[str]]:
    """What is found on two ranks, by plant and, without any, by what runs."""
    first, second = run_ranks(2, on_rank)
    return {name: [*one, *second[name]] for name, one in first.items()}


def on_rank(rank: int, ranks: int) -> dict[str, list[str]]:
    del ranks
    found: dict[str, list[str]] = {}
    for name, (run, plant, _) in RANKS.items():
        with pytest.MonkeyPatch.context() as patch, on_paper() as paper:
            plant(patch, paper)
            run(rank)
        found[name] = paper.found
    for run in (stages, experts, gradients):
        with on_paper() as paper:
            run(rank)
        found[run.__name__] = paper.found
    with on_paper("gloo") as paper:
        gradients(rank)
    found["gradients by messages"] = paper.found
    return found


@pytest.mark.parametrize("name", RANKS)
def test_a_race_between_ranks_is_found(name: str, of_ranks: dict[str, list[str]]) -> None:
    assert any(RANKS[name][2] in one for one in of_ranks[name]), of_ranks[name]


def test_ranks_use_nothing_before_its_time(of_ranks: dict[str, list[str]]) -> None:
    assert {name: found for name, found in of_ranks.items() if name not in RANKS and found} == {}


def beside_without_waiting(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    del paper

    @contextmanager
    def beside(device: torch.device, way: host.Way):
        stream = host._stream(streams.of(device), device, way)
        with streams.of(device).on(stream):
            yield stream

    patch.setattr(host, "beside", beside)
    patch.setattr(optimizer_states, "beside", beside)


def never_moved(verb: str) -> Plant:
    plain = getattr(Parcel, verb)

    def plant(patch: pytest.MonkeyPatch, paper: Paper) -> None:
        del paper

        def call(self: Parcel, *args: Any) -> None:
            plain(self, *args)
            self.moved = None

        patch.setattr(Parcel, verb, call)

    return plant


def sent_is_forgotten(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    del paper
    fetch = host.fetch

    def early(parcels: Any) -> None:
        parcels = list(parcels)
        for one in parcels:
            one.moved = one.moved if not one.on_host else None
        fetch(parcels)

    for module in (host, optimizer_states):
        patch.setattr(module, "fetch", early)
    patch.setattr("reference.memory.saved_tensor.fetch", early)


def room_on_the_copys_stream(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    def fetch(parcels: Any) -> None:
        away = [one for one in parcels if one.on_host]
        if away:
            stream = host._stream(paper, CPU, "back")
            for one in away:
                stream.wait_event(one.moved)
            with host.beside(CPU, "back"):
                for one in away:
                    one.come(torch.empty_like(one.value, device=CPU), stream)

    patch.setattr("reference.memory.saved_tensor.fetch", fetch)


def kept_at_once(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    del paper
    patch.setattr(OptimizerStates, "kept", States.kept)


def copy_on_its_way_is_forgotten(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    """As it was until 2026-11-29: `load` had taken the event of the copy down with it."""
    del paper

    def kept(self: OptimizerStates, block: ParameterBlock) -> dict[str, Tensor]:
        if self._coming is not None and self._coming[0] is block:
            self._coming = None
        going = self._going.pop(block.name, None)
        if going is not None:
            going.synchronize()
        return States.kept(self, block)

    patch.setattr(OptimizerStates, "kept", kept)


def moved_is_forgotten(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    del paper
    move = BucketSender.move

    def early(self: BucketSender, bucket: WeightBucket) -> None:
        before = self._free
        move(self, bucket)
        self._free = before

    patch.setattr(BucketSender, "move", early)


def buffers_used_at_once(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    init = BucketSender.__init__

    def early(self: BucketSender, *args: Any) -> None:
        init(self, *args)
        self._free = never(paper)

    patch.setattr(BucketSender, "__init__", early)


def host_does_not_wait(patch: pytest.MonkeyPatch, paper: Paper) -> None:
    del paper
    at_once = SimpleNamespace(of=streams.of, current=streams.HostStreams().current)
    patch.setattr(sources, "streams", at_once)


PLANTS: dict[str, tuple[Callable[[], None], Plant, str]] = {
    "a copy out begins before the layer is done": (layers, beside_without_waiting, "aten::copy_"),
    "memory is freed under its copy out": (layers, not_kept, "used again too early"),
    "a backward reads before the copy is back": (layers, never_moved("come"), "aten::copy_ writes"),
    "a copy comes back before it is out": (layers, sent_is_forgotten, "on stream 2"),
    "memory comes from the copies' stream": (layers, room_on_the_copys_stream, "too early"),
    "states go down before they are updated": (update, beside_without_waiting, "aten::copy_"),
    "states are freed while they go down": (update, not_kept, "used again too early"),
    "states come up before they are down": (update, sent_is_forgotten, "aten::copy_ reads"),
    "states are read while they go down": (update, kept_at_once, "on the host"),
    "states are written while they go up": (
        half_an_update,
        copy_on_its_way_is_forgotten,
        "on the host",
    ),
    "a bucket is copied over one that still moves": (weights, moved_is_forgotten, "aten::copy_"),
    "a buffer is filled before it is free": (weights, buffers_used_at_once, "had the memory"),
    "host copies are read before they are there": (
        weights,
        host_does_not_wait,
        "weight_sync/sources.py",
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_race_in_one_process_is_found(name: str) -> None:
    run, planted, said = PLANTS[name]
    with pytest.MonkeyPatch.context() as patch, on_paper() as paper:
        planted(patch, paper)
        run()
    assert any(said in one for one in paper.found), paper.found


@pytest.mark.parametrize("run", [layers, update, half_an_update, weights])
def test_nothing_is_used_before_its_time(run: Callable[[], None]) -> None:
    with on_paper() as paper:
        run()
    assert paper.found == []
    assert paper.uses > 50
