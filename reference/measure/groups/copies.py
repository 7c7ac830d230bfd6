"""Copies between host and device: pinned memory over PCIe each way where there is a GPU, from
memory to memory where the device is the host.

The second stands for offload on a CPU run: the twin asks for a PCIe link, and what moves there is a
copy that reads and writes the same memory.
"""

from __future__ import annotations

import torch

from reference.measure.case import Case, Setting, Skip, of_reach, timed
from reference.measure.clock import Call

BYTE = "uint8"


def cases(setting: Setting) -> list[Case | Skip]:
    """Sizes in steps of eight, each way; bytes are those of the payload."""
    exponents = (16, 19) if setting.quick else (12, 15, 18, 21, 24, 27)
    sizes = [2**exponent for exponent in exponents]
    if not setting.cuda:
        found = [_case("host_copy", size, _within) for size in sizes]
        return [
            *of_reach(found, "copies", setting),
            Skip("copies", "pinned copies to and from a GPU", "no GPU; memory copies instead"),
        ]
    down = [_case("device_to_host", size, _down) for size in sizes]
    return of_reach(
        [_case("host_to_device", size, _up) for size in sizes] + down, "copies", setting
    )


def _case(op: str, size: int, make) -> Case:  # noqa: ANN001
    run = timed(lambda device: make(device, size), size)
    return Case(op, {"bytes": size}, BYTE, 0.0, float(size), 1, run)


def _within(device: torch.device, size: int) -> Call:
    source, target = (_bytes(size, device) for _ in range(2))
    return lambda: target.copy_(source)


def _up(device: torch.device, size: int) -> Call:
    source, target = _bytes(size).pin_memory(), _bytes(size, device)
    return lambda: target.copy_(source, non_blocking=True)


def _down(device: torch.device, size: int) -> Call:
    source, target = _bytes(size, device), _bytes(size).pin_memory()
    return lambda: target.copy_(source, non_blocking=True)


def _bytes(size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.randint(256, (size,), dtype=torch.uint8, device=device)
