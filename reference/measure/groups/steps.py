"""Whole training steps of the reference model: forward, backward and MuonClip on one micro-batch.

The model is the device's preset: small on a GPU, nano and tiny on a CPU. FLOP are the model's
(`reference.trainer.flop`), so that their rate over the peak is MFU.
"""

from __future__ import annotations

import torch

from reference.measure import clock
from reference.measure.case import BF16, TYPES, Case, Setting, Skip
from reference.measure.point import Timing
from reference.model.transformer import Transformer, initialize
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from reference.trainer.flop import flop_per_token
from twin.loading import load_part
from twin.spec.model import ModelSpec


def cases(setting: Setting) -> list[Case | Skip]:
    """(preset, sequences, tokens): what each device is meant for."""
    shapes = [("kimi-k2-nano", 1, 64)] if setting.quick else _CPU
    if setting.cuda and not setting.quick:
        shapes = _CUDA
    return [
        step(name, load_part("models", name).spec, dtype, sequences, tokens)
        for name, sequences, tokens in shapes
        for dtype in ((BF16,) if setting.cuda or setting.quick else setting.dtypes)
    ]


_CPU = [("kimi-k2-nano", 4, 256), ("kimi-k2-tiny", 1, 1024)]
_CUDA = [("kimi-k2-small", 1, 4096), ("kimi-k2-small", 4, 4096)]


def step(model: str, spec: ModelSpec, dtype: str, sequences: int, tokens: int) -> Case:
    """One step of a model."""

    def run(setting: Setting) -> Timing:
        return clock.measure(
            [prepare(spec, TYPES[dtype], sequences, tokens, setting.device)],
            setting.device,
            setting.effort,
            with_host=True,
        )

    counted = Transformer(spec, device="meta")
    flop = sequences * tokens * flop_per_token(counted, tokens)
    shape = {"sequences": sequences, "tokens": tokens}
    return Case(f"step:{model}", shape, dtype, flop, 0.0, 0, run)


def prepare(
    spec: ModelSpec, dtype: torch.dtype, sequences: int, tokens: int, device: torch.device
) -> clock.Call:
    """A call that makes one step on one random micro-batch."""
    model = Transformer(spec, device=device, dtype=dtype)
    if device.type != "meta":
        initialize(model, 0)
    optimizer = MuonClip(model.named_parameters(), OptimizerSpec())
    batch = torch.randint(spec.vocab, (sequences, tokens + 1), device=device)
    inputs_BT, targets_BT = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()

    def call() -> None:
        model.loss(inputs_BT, targets_BT).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return call
