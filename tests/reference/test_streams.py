"""What a GPU is asked for: torch's own streams, pinned memory, copies that do not wait."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import pytest
import torch

from reference import streams

GPU = torch.device("cuda", 3)


def test_a_gpu_is_asked_for_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, empty, kind = MagicMock(), MagicMock(), streams.of(GPU)
    tensor: Any = MagicMock(shape=(2,), dtype=torch.uint8)
    monkeypatch.setattr(torch, "cuda", cuda)
    assert kind.new(GPU) is cuda.Stream.return_value
    assert streams.current(GPU) is cuda.current_stream.return_value
    assert cuda.mock_calls == [call.Stream(GPU), call.current_stream(GPU)]
    assert kind.on(cuda.other) is cuda.stream.return_value
    kind.keep(tensor, cuda.other)
    kind.copy(tensor, cuda.x)
    assert kind.from_device(tensor) is tensor.cpu.return_value
    assert tensor.mock_calls == [
        call.record_stream(cuda.other),
        call.copy_(cuda.x, non_blocking=True),
        call.cpu(),
    ]
    monkeypatch.setattr(torch, "empty", empty)
    assert kind.for_device(tensor) is empty.return_value
    assert empty.mock_calls == [call((2,), dtype=torch.uint8, device="cpu", pin_memory=True)]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_where_the_host_waits_anyhow_a_stream_is_always_done(device: str) -> None:
    place, x = torch.device(device), torch.ones(2, device=device)
    kind = streams.of(place)
    stream = kind.new(place)
    assert stream is streams.current(place)
    assert stream.record_event() is stream
    assert isinstance(kind.on(stream), nullcontext)
    assert kind.from_device(x) is x
    assert kind.for_device(x) is x
    assert not kind.host(x.shape, x.dtype, device).is_pinned()


_CUDA = r"torch\.cuda\.(\w*[Ss]tream|Event|synchronize|\w*[Gg]raph)\b"
_OWN = _CUDA + "|record_stream|pin_memory|non_blocking"
_MAY = {"streams.py", "parallel/timeline.py"}
"""The layer; and the clock, whose events order nothing."""


def test_nobody_else_speaks_to_streams() -> None:
    """What measures kernels does, since it is about them."""
    root = Path(streams.__file__).parent
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    found = {
        name
        for name, path in files.items()
        if not name.startswith("measure/") and re.search(_OWN, path.read_text(encoding="utf-8"))
    }
    assert found == _MAY
