"""Files of TensorBoard and of Weights & Biases are logs like any other. Written here by hand, from
the formats' descriptions; the writers' own files were read the same way."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from twin.evidence.live.event_files import READERS
from twin.evidence.live.follower import follow
from twin.evidence.live.trainer_log import Log
from twin.evidence.traces.wire_format import fields


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def part(number: int, value: float | str | bytes) -> bytes:
    """A field of a protocol buffer; a float takes four bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    text = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(text)) + text


def event(step: int, time: float, **scalars: float) -> bytes:
    values = b"".join(
        part(1, part(1, name.replace("_", "-")) + part(2, value)) for name, value in scalars.items()
    )
    clock = varint(1 << 3 | 1) + struct.pack("<d", time)
    return clock + part(2, step) + part(5, values)


def tensorboard(*events: bytes) -> bytes:
    version = varint(1 << 3 | 1) + struct.pack("<d", 1.0) + part(3, "brain.Event:2")
    return b"".join(
        struct.pack("<QI", len(one), 0) + one + struct.pack("<I", 0) for one in (version, *events)
    )


def history(step: int, **known: object) -> bytes:
    items = [part(1, part(2, k) + part(16, json.dumps(v))) for k, v in known.items()]
    return part(1, step) + part(2, b"".join(items) + part(2, part(1, step)))


def wandb(*records: bytes) -> bytes:
    """LevelDB's log: records in parts that cross no block of 32 KiB."""
    found = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for record in records:
        rest, first = record, True
        while first or rest:
            left = 32768 - len(found) % 32768
            if left < 7:
                found += bytes(left)
                continue
            fits, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            found += struct.pack("<IHB", 0, len(fits), kind) + fits
            first = False
    return found


WANDB = wandb(
    history(1, **{"perf/time_per_step": 2.5, "loss": 3, "_timestamp": 10.0}),
    history(2, table="x" * 100_000),
    history(3, **{"perf/time_per_step": 2.25, "_timestamp": 90.0}),
)
BOARD = tensorboard(
    *(event(n, 10.0 * n, lm_loss=1.0, iteration_time=2.0 + n / 4) for n in range(1, 4))
)


@pytest.mark.parametrize(
    ("name", "data", "steps"),
    [
        ("run-1.wandb", WANDB, [(1, 2.5), (3, 2.25)]),
        ("events.out.tfevents.1.host", BOARD, [(1, 2.25), (2, 2.5), (3, 2.75)]),
    ],
)
def test_steps_are_read_while_the_file_grows_by_any_piece(
    tmp_path: Path, name: str, data: bytes, steps: list[tuple[int, float]]
) -> None:
    path = tmp_path / name
    log = Log(path)
    for end in (*range(0, len(data), 977), len(data)):
        path.write_bytes(data[:end])
        log.look()
    assert [(one.step, one.seconds) for one in log.steps] == steps
    assert not log.cut


def test_without_a_step_time_it_is_the_time_between_two_steps(tmp_path: Path) -> None:
    data = tensorboard(*(event(5 * n, 12.5 * n, lm_loss=1.0, grad_norm=2.0) for n in range(1, 4)))
    (tmp_path / "log").write_bytes(data)
    log = Log(tmp_path / "log")
    assert log.look()
    assert [(one.step, one.seconds) for one in log.steps] == [(10, 2.5), (15, 2.5)]


def test_a_folder_s_files_are_read_in_turn_and_a_newer_one_goes_on(tmp_path: Path) -> None:
    def some(first: int, last: int) -> bytes:
        return tensorboard(*(event(n, n, iteration_time=1.0) for n in range(first, last)))

    folder = tmp_path / "runs" / "tb"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.100.host.1").write_bytes(some(1, 20))
    follower = follow(tmp_path / "runs")
    assert follower.look().step == 19
    (folder / "events.out.tfevents.200.host.1").write_bytes(some(18, 40))
    found = follower.look()
    assert (found.step, len(follower.log.steps)) == (39, 39)


@pytest.mark.parametrize("data", [b"\xff" * 5000, BOARD[:60] + b"\xff" * 500, WANDB[:900][::-1]])
def test_what_is_damaged_ends_the_log_and_nothing_else(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run-1.wandb").write_bytes(data)
    Log(tmp_path / "run-1.wandb").look()
    for reader in READERS.values():
        reader().cut(b":W&B" + data, 0)
    assert len(list(fields(data))) <= len(data)
