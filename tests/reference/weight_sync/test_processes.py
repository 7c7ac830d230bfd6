"""Updates between real processes over gloo, and what happens when one of them is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import get_args

import pytest
import torch

from reference.inference.engine import Engine
from reference.inference.request import EngineRequest
from reference.model import Transformer
from reference.weight_sync.controller import Controller, SyncJob, ask, forked, serve
from reference.weight_sync.layout import SyncSpec, WeightBucket, read_layout
from reference.weight_sync.pipeline import Stages, transfers
from reference.weight_sync.ranks import Receiver, Sender, engine_target
from tests.reference.inference import small as engines
from tests.reference.weight_sync.processes import (
    dying,
    holds,
    receiving,
    running,
    slowly,
    told,
    train,
)
from tests.reference.weight_sync.small import mesh
from twin.errors import UsageError


@pytest.mark.parametrize(
    ("trained", "served", "stages", "wire"),
    [
        ({"ranks": 2, "expert": 2}, "pipeline=2", "three", "direct"),
        ({"ranks": 2, "pipeline": 2}, "expert=2", "two", "collective"),
    ],
)
def test_processes_receive_what_was_sent_and_again_after_a_step(
    trained: dict, served: str, stages: str, wire: str
) -> None:
    with running(mesh(**trained), served, stages=stages, wire=wire) as job:
        for seed in (1, 2):
            train(job, seed)
            outcome = job.update()
            assert outcome.attempts == 1
            assert not outcome.lost
            assert not outcome.failed
            assert all(holds(job, number, seed) for number in range(2))
            assert not job.unequal()
            sent = sum(one.bytes for one in outcome.senders.values())
            assert sent == sum(one.bytes for one in job.buckets(job.buffers)) >= job.payload
            assert [one.bytes for one in outcome.receivers.values()] == job.kept


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["direct", "collective"])
@pytest.mark.parametrize("served", ["expert=2,pipeline=2", "replicas=3", "pipeline=4", "expert=4"])
@pytest.mark.parametrize(
    "trained",
    [
        {"ranks": 4, "pipeline": 2, "expert": 2},
        {"ranks": 3},
        {"ranks": 2, "pipeline": 2, "virtual": 2, "schedule": "interleaved_1f1b"},
    ],
)
def test_more_processes_receive_what_was_sent(trained: dict, served: str, wire: str) -> None:
    with running(mesh(**trained), served, wire=wire, patience="20s") as job:
        train(job, 3)
        outcome = job.update("three")
        assert not outcome.lost
        assert all(holds(job, number, 3) for number in range(len(job.receivers)))


@pytest.mark.parametrize("stages", get_args(Stages))
def test_a_half_is_filled_anew_only_when_it_is_reloaded(stages: Stages) -> None:
    with running(mesh(2), "", {0: slowly}, stages=stages) as job:
        train(job, 1)
        outcome = job.update()
        assert holds(job, 0, 1)
        sent = [one for report in outcome.senders.values() for one in report.spans]
        received = outcome.receivers[0].spans
        moving = transfers(sent, received)
        copies = [one for one in sent if one.stage == "host_copy"]
        reloads = [one for one in received if one.stage == "reload"]
        assert len(copies) == len(moving) == len(reloads) > 4
        if stages == "two":  # that three stages copy ahead is in test_stages
            arrived = {turn: max(one.end for one in moving if one.round == turn) for turn in (0, 1)}
            later = [one for one in copies if one.round in (1, 2)]
            assert all(one.start > arrived[one.round - 1] for one in later)


def test_without_a_copy_buffer_owners_copy_in_turn() -> None:
    with running(mesh(2), "expert=2", free_memory="4kB", stages="three") as job:
        assert job.buffers.count == 2
        train(job, 1)
        outcome = job.update()
        assert all(holds(job, number, 1) for number in range(2))
        spans = [one for report in outcome.senders.values() for one in report.spans]
        assert sum(one.stage == "host_copy" for one in spans) == len(job.buckets(job.buffers))


@pytest.mark.parametrize("wire", ["direct", "collective"])
def test_a_receiver_killed_within_an_update_is_noticed_and_recovers_alone(wire: str) -> None:
    with running(mesh(2), "expert=2", {1: dying(at=3)}, wire=wire) as job:
        train(job, 1)
        outcome = job.update()
        assert outcome.lost == (1,)
        assert outcome.attempts == (1 if wire == "direct" else 2)
        assert holds(job, 0, 1)
        assert [told(one, "free") for one in job.senders]  # nobody hangs

        recovered = job.recover(1, receiving())
        assert holds(job, 1, 1)
        report = recovered.receivers[1]
        assert {one.stage for one in report.spans} == {"fetch"}
        assert report.bytes == job.kept[1] < job.payload

        train(job, 2)
        again = job.update()
        assert not again.lost
        assert again.attempts == 1
        assert all(holds(job, number, 2) for number in range(2))


def test_a_reload_that_fails_is_told_and_holds_nobody_up() -> None:
    with running(mesh(), "replicas=2") as job:
        train(job, 1)
        told(job.receivers[0], "spoil")
        outcome = job.update()
        (problem,) = outcome.failed[0]
        assert problem.code == "TW624"
        assert not outcome.lost
        assert holds(job, 1, 1)
        job._teach(0)  # other tensors, as after a mistake was mended
        job.recover(0)
        assert holds(job, 0, 1)


def test_host_copies_of_another_version_are_not_read() -> None:
    with running(mesh(), "") as job:
        train(job, 1)
        (receiver,) = job.receivers
        owners = {unit.name: 0 for unit in job.units}
        asked = {receiver: ("recover", (job._addresses, owners, 9))}
        answer = ask(asked, 20)[receiver]
        assert isinstance(answer, UsageError)
        assert answer.problems[0].code == "TW625"


def test_without_a_sender_there_is_no_update() -> None:
    with running(mesh(2), "") as job:
        train(job, 1)
        process = job.senders[1].process
        assert process is not None
        process.kill()
        with pytest.raises(UsageError) as refused:
            job.update()
        assert refused.value.problems[0].code == "TW623"


@pytest.mark.parametrize("wire", ["direct", "collective"])
def test_a_sender_killed_within_an_update_ends_it_for_all(wire: str, tmp_path: Path) -> None:
    victim = tmp_path / "pid"

    def kill(bucket: WeightBucket) -> None:
        if bucket.round == 1:
            os.kill(int(victim.read_text()), signal.SIGKILL)

    with running(mesh(2), "replicas=2", {0: kill}, wire=wire) as job:
        train(job, 1)
        process = job.senders[1].process
        assert process is not None
        victim.write_text(str(process.pid))
        with pytest.raises(UsageError, match="sender 1 is gone"):
            job.update()
        assert [told(one, "whole") for one in job.receivers] == [None, None]


def test_buffers_that_do_not_hold_the_largest_tensor_are_refused() -> None:
    with running(mesh(), "", free_memory="1kB") as job:
        train(job, 1)
        with pytest.raises(UsageError) as refused:
            job.update()
        assert refused.value.problems[0].code == "TW622"


class Speaking(Receiver):
    """An engine in a process of its own."""

    def __init__(self) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        model = Transformer(engines.model().spec)
        model.load_state_dict(engines.model(0).state_dict())
        self.engine = Engine(model, engines.VOCABULARY, engines.EngineSpec())
        super().__init__(lambda _: engine_target(self.engine))

    def answer(self) -> list[int]:
        return answered(self.engine)


def answered(engine: Engine) -> list[int]:
    """What it draws greedily behind some blocks of the cache."""
    engine.add(EngineRequest(prompt=tuple(range(1, 50)), max_tokens=6))
    found: list[int] = []
    while not engine.idle:
        found += [one.told.token for one in engine.step() if one.told]
    return found


def test_an_engine_of_another_process_speaks_with_the_weights_it_was_sent() -> None:
    trainer = engines.model(1)
    sender = forked("sender 0", lambda pipe: serve(Sender(lambda: [trainer]), pipe))
    receiver = forked("receiver 0", lambda pipe: serve(Speaking(), pipe))
    spec = SyncSpec.model_validate({"bucket": "4kB"})
    job = SyncJob(trainer.spec, torch.float32, mesh(), read_layout(""), spec)
    controller = Controller(job, [sender], [receiver])
    try:
        before = told(receiver, "answer")
        controller.keep(version=5)
        controller.update()
        wanted = answered(Engine(trainer, engines.VOCABULARY, engines.EngineSpec()))
        assert told(receiver, "answer") == wanted != before
    finally:
        controller.end()
