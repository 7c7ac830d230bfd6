"""Muon against torch's own and against algorithm 1 written out."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch.nn import Parameter

from reference.optim import blocks, muon
from reference.optim.blocks import matrices
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from tests.reference.optim.weights import give_gradients, parameters

SHAPES = {
    "layers.0.attention.q_down.weight": (64, 128),
    "layers.1.attention.q_down.weight": (64, 128),
    "layers.0.attention.q_up.weight": (192, 64),
    "layers.0.attention.out.weight": (96, 96),
    "layers.0.ffn.router.weight": (24, 100),
    "layers.0.ffn.up.weight": (2 * 70, 33),
    "layers.0.ffn.experts.up": (6, 2 * 48, 64),
    "layers.0.ffn.experts.down": (6, 64, 48),
}


def apart(named: dict[str, Parameter]) -> list[Parameter]:
    """A copy of every matrix, as torch.optim.Muon wants them."""
    found: list[Parameter] = []
    for name, param in named.items():
        stack = matrices(name, param.detach())
        assert stack is not None
        found += [Parameter(matrix.clone()) for matrix in stack]
    return found


def gradients_apart(named: dict[str, Parameter]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for name, param in named.items():
        assert param.grad is not None
        stack = matrices(name, param.grad)
        assert stack is not None
        found += list(stack)
    return found


def run_beside_torch(
    spec: OptimizerSpec, steps: int = 20
) -> tuple[list[Parameter], list[Parameter]]:
    ours = parameters(SHAPES)
    theirs = apart(ours)
    mine = MuonClip(ours.items(), spec)
    torchs = torch.optim.Muon(
        theirs, lr=spec.lr, nesterov=spec.nesterov, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(steps):
        give_gradients(ours, step)
        for param, gradient in zip(theirs, gradients_apart(ours), strict=True):
            param.grad = gradient.clone()
        mine.step()
        torchs.step()
    return apart(ours), theirs


@pytest.mark.parametrize("limit", [1 << 19, 1 << 13])
@pytest.mark.parametrize("nesterov", [False, True])
def test_twenty_steps_with_an_averaged_buffer_have_the_bits_of_torch(nesterov, limit, monkeypatch):
    # Torch multiplies in bf16 on any CPU.
    monkeypatch.setattr(muon, "cpu_bf16", lambda: "as torch")
    monkeypatch.setattr(muon, "SMALL", 0)
    # The smaller limit cuts shared blocks apart and the experts' stack into several pieces.
    monkeypatch.setitem(blocks.SHARED_WEIGHTS, "cpu", limit)
    spec = OptimizerSpec(lr=0.02, nesterov=nesterov, momentum_buffer="average")
    ours, theirs = run_beside_torch(spec)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("nesterov", [False, True])
def test_twenty_steps_with_the_summed_buffer_stay_beside_torch(nesterov):
    spec = OptimizerSpec(lr=1e-3, nesterov=nesterov)
    ours, theirs = run_beside_torch(spec)
    gaps = [(one - other).abs().max() for one, other in zip(ours, theirs, strict=True)]
    assert max(gaps) < 1e-4
    assert max(gaps) > 0  # the buffers differ by 1 / (1 - momentum), and so do roundings


def exact_polar(matrix: torch.Tensor) -> torch.Tensor:
    """The quintic on singular values in float64: Newton-Schulz without its rounding."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


@pytest.mark.parametrize("nesterov", [False, True])
def test_three_steps_are_algorithm_1_up_to_bf16(nesterov):
    lr, decay, mu = 0.01, 0.1, 0.95
    named = parameters({"layers.0.attention.q_down.weight": (40, 72)})
    (param,) = named.values()
    weight, momentum = param.detach().double(), torch.zeros(40, 72, dtype=torch.float64)
    optimizer = MuonClip(named.items(), OptimizerSpec(lr=lr, nesterov=nesterov))
    for step in range(3):
        give_gradients(named, step)
        assert param.grad is not None
        gradient = param.grad.double()
        optimizer.step()
        momentum = mu * momentum + gradient
        direction = gradient + mu * momentum if nesterov else momentum
        update = exact_polar(direction) * sqrt(72) * 0.2
        weight = weight - lr * (update + decay * weight)
    state = optimizer.state[param]
    assert torch.allclose(state["momentum"].double(), momentum, rtol=0, atol=1e-5)
    # Three updates of RMS 0.002, each a few bf16 roundings off.
    assert (param.double() - weight).abs().max() < 3 * 0.002 * 0.1


def test_weight_decay_takes_the_learning_rate_as_it_is():
    named = parameters({"layers.0.attention.q_down.weight": (20, 500)})
    (param,) = named.values()
    before = param.detach().clone()
    optimizer = MuonClip(named.items(), OptimizerSpec(lr=0.5, weight_decay=0.1))
    param.grad = torch.zeros_like(param)
    optimizer.step()
    assert torch.equal(param.detach(), before * (1 - 0.5 * 0.1))


def test_a_step_has_the_same_size_for_every_gradient_scale_and_shape():
    named = parameters(
        {
            f"layers.{n}.attention.out.weight": s
            for n, s in enumerate([(32, 128), (128, 32), (64, 64)])
        }
    )
    before = {name: param.detach().clone() for name, param in named.items()}
    optimizer = MuonClip(named.items(), OptimizerSpec(lr=1.0, weight_decay=0.0))
    give_gradients(named, 0)
    for scale, param in zip((1e-6, 1.0, 1e6), named.values(), strict=True):
        assert param.grad is not None
        param.grad.mul_(scale)
    optimizer.step()
    for name, param in named.items():
        rms = (param.detach() - before[name]).square().mean().sqrt()
        assert rms == pytest.approx(0.2, rel=0.25)
