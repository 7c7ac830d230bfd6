"""Forward and backward beside Hugging Face's default (SDPA attention, grouped experts): the same
shapes, weights counted equal, one thread, both timed in turns. Ratios above 1: ours is faster."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest
import torch

from reference.convert.config import config_of
from reference.model import Transformer
from reference.model.transformer import initialize
from tests.reference.model.peers import transformers
from twin.loading import load_part

pytestmark = pytest.mark.benchmark


def _ratio(ours: Callable[[], None], theirs: Callable[[], None], repeats: int = 9) -> float:
    """How many times longer theirs takes, of the shortest of the repeats."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for run, found in zip((ours, theirs), seconds, strict=True):
            start = perf_counter()
            run()
            found.append(perf_counter() - start)
    return min(seconds[1]) / min(seconds[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "sequences", "tokens", "bar"),
    [("nano", 8, 256, 1.3), ("nano", 8, 512, 1.6), ("tiny", 4, 512, 1.3), ("tiny", 1, 1024, 1.5)],
)
def test_a_step_is_not_slower_than_the_peer_s(
    name: str, sequences: int, tokens: int, bar: float, dtype: torch.dtype
) -> None:
    library = transformers()
    spec = load_part("models", f"kimi-k2-{name}").spec
    own = Transformer(spec, dtype=dtype)
    initialize(own, 0)
    peer = library.DeepseekV3ForCausalLM(library.DeepseekV3Config(**config_of(spec, {})))
    peer = peer.to(dtype)
    assert sum(p.numel() for p in own.parameters()) == sum(p.numel() for p in peer.parameters())
    x = torch.randint(0, spec.vocab, (sequences, tokens))

    def ours() -> None:
        own.loss(x[:, :-1], x[:, 1:]).backward()
        own.zero_grad()

    def theirs() -> None:
        peer(x, labels=x, use_cache=False).loss.backward()
        peer.zero_grad()

    ratio = _ratio(ours, theirs)
    print(f"{name} {sequences} x {tokens} {dtype}: {ratio:.2f} times the peer's speed")
    assert ratio >= bar
