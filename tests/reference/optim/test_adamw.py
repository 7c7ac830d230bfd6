"""AdamW against torch's own."""

import torch
from torch.nn import Parameter

from reference.optim.muonclip import MuonClip
from reference.optim.spec import AdamwSpec, OptimizerSpec
from tests.reference.optim.weights import give_gradients, parameters

SHAPES = {
    "embedding.weight": (50, 16),
    "layers.0.attention.q_down.weight": (20, 30),
    "final_norm.gain": (16,),
    "head.weight": (50, 16),
}


def test_twenty_steps_of_all_parameters_have_the_bits_of_torch():
    ours = parameters(SHAPES)
    theirs = [Parameter(param.detach().clone()) for param in ours.values()]
    mine = MuonClip(ours.items(), OptimizerSpec(kind="adamw", lr=0.01))
    torchs = torch.optim.AdamW(
        theirs, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    for step in range(20):
        give_gradients(ours, step)
        for one, other in zip(ours.values(), theirs, strict=True):
            assert one.grad is not None
            other.grad = one.grad.clone()
        mine.step()
        torchs.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.values(), theirs, strict=True))
    assert mine.state[ours["head.weight"]]["step"].item() == 20


def test_its_group_has_a_learning_rate_of_its_own():
    moved = {}
    for scale in (1.0, 3.0):
        named = parameters({"final_norm.gain": (16,)})
        (param,) = named.values()
        before = param.detach().clone()
        spec = OptimizerSpec(lr=0.01, weight_decay=0.0, adamw=AdamwSpec(lr_scale=scale))
        optimizer = MuonClip(named.items(), spec)
        give_gradients(named, 0)
        optimizer.step()
        moved[scale] = param.detach() - before
    assert torch.allclose(moved[3.0], 3 * moved[1.0], rtol=1e-4)
