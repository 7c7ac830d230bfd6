"""The optimizer around its two algorithms: masters, gradients, states, what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from reference.optim.blocks import ParameterBlock, States
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from tests.reference.optim.weights import give_gradients, parameters
from twin.errors import ScenarioError, UsageError
from twin.optimizers.orthogonal import MATRIX_STATE_BYTES, OTHER_STATE_BYTES

SHAPES = {
    "embedding.weight": (40, 24),
    "layers.0.attention_norm.gain": (24,),
    "layers.0.attention.q_down.weight": (20, 24),
    "layers.1.attention.q_down.weight": (20, 24),
    "layers.0.ffn.experts.up": (4, 40, 24),
    "layers.0.ffn.experts.down": (4, 24, 20),
}
BUFFERS: list[Literal["sum", "average"]] = ["sum", "average"]


def steps(optimizer: MuonClip, named: Mapping[str, Parameter], first: int, last: int) -> None:
    for step in range(first, last):
        give_gradients(named, step)
        optimizer.step()


def test_a_bf16_model_follows_its_fp32_masters():
    rounded, exact = parameters(SHAPES, torch.bfloat16), parameters(SHAPES)
    with torch.no_grad():
        for name, param in exact.items():
            param.copy_(rounded[name])
    optimizers = [MuonClip(named.items(), OptimizerSpec(lr=0.01)) for named in (rounded, exact)]
    for named, optimizer in zip((rounded, exact), optimizers, strict=True):
        steps(optimizer, named, 0, 5)
    for name, param in rounded.items():
        master = optimizers[0].state[param]["master"]
        assert master.dtype == torch.float32
        assert torch.equal(master, exact[name])
        assert torch.equal(param, master.bfloat16())


def test_updates_below_bf16_resolution_add_up_in_the_masters():
    named = {"layers.0.attention.out.weight": Parameter(torch.ones(24, 24).bfloat16())}
    (param,) = named.values()
    optimizer = MuonClip(named.items(), OptimizerSpec(lr=1e-4, weight_decay=1.0))
    for _ in range(100):
        param.grad = torch.zeros(24, 24)
        optimizer.step()
    assert torch.all(param < 0.995)
    assert torch.allclose(param.float(), torch.tensor(0.99), atol=0.004)


def test_gradients_of_micro_batches_are_summed_in_fp32():
    named = parameters({"layers.0.attention.out.weight": (24, 24)}, torch.bfloat16)
    (param,) = named.values()
    MuonClip(named.items(), OptimizerSpec())
    total = torch.zeros(24, 24)
    for batch in range(8):
        x = torch.randn(3, 24, generator=torch.Generator().manual_seed(batch)).bfloat16()
        (x @ param).sum().backward()
        other = Parameter(param.detach().clone())
        (x @ other).sum().backward()
        assert other.grad is not None
        total += other.grad.float()
    assert param.grad is not None
    assert param.grad.dtype == torch.float32
    assert torch.equal(param.grad, total)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("buffer", BUFFERS)
def test_states_that_were_saved_go_on_with_the_same_bits(dtype, buffer, tmp_path):
    spec = OptimizerSpec(lr=0.01, momentum_buffer=buffer)
    whole = parameters(SHAPES, dtype)
    optimizer = MuonClip(whole.items(), spec)
    steps(optimizer, whole, 0, 4)
    weights = {name: param.detach().clone() for name, param in whole.items()}
    torch.save(optimizer.state_dict(), tmp_path / "states")
    steps(optimizer, whole, 4, 8)

    resumed = {name: Parameter(weight) for name, weight in weights.items()}
    other = MuonClip(resumed.items(), spec)
    other.load_state_dict(torch.load(tmp_path / "states"))
    steps(other, resumed, 4, 8)
    for name, param in whole.items():
        assert torch.equal(param, resumed[name])
        mine, theirs = optimizer.state[param], other.state[resumed[name]]
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_states_can_be_put_back_parameter_by_parameter():
    first, second = parameters(SHAPES, torch.bfloat16), parameters(SHAPES, torch.bfloat16)
    one, two = MuonClip(first.items(), OptimizerSpec()), MuonClip(second.items(), OptimizerSpec())
    steps(one, first, 0, 3)
    with torch.no_grad():
        for name, param in first.items():
            for key, value in one.state[param].items():
                two.state[second[name]][key] = value.clone()
            second[name].copy_(param)
    steps(one, first, 3, 5)
    steps(two, second, 3, 5)
    assert all(torch.equal(param, second[name]) for name, param in first.items())


def test_masters_decide_over_the_parameters_that_were_there_before_loading():
    saved, here = parameters(SHAPES, torch.bfloat16), parameters(SHAPES, torch.bfloat16)
    one = MuonClip(saved.items(), OptimizerSpec(lr=0.1))
    steps(one, saved, 0, 2)
    MuonClip(here.items(), OptimizerSpec()).load_state_dict(one.state_dict())
    assert all(torch.equal(param, saved[name]) for name, param in here.items())


class Elsewhere(States):
    """States that a step must ask for and give back, or its changes are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def load(self, block: ParameterBlock) -> dict[str, Tensor]:
        self.asked.append(block.name)
        return {name: tensor.clone() for name, tensor in super().load(block).items()}


def test_states_may_wait_elsewhere_and_are_asked_for_in_one_order():
    near, far = parameters(SHAPES, torch.bfloat16), parameters(SHAPES, torch.bfloat16)
    states = Elsewhere()
    one = MuonClip(near.items(), OptimizerSpec())
    two = MuonClip(far.items(), OptimizerSpec(), states)
    for optimizer, named in ((one, near), (two, far)):
        steps(optimizer, named, 0, 3)
        query = named["layers.0.attention.q_down.weight"]
        optimizer.multiply(query, torch.full((20, 1), 0.5))
        steps(optimizer, named, 3, 4)
    assert all(torch.equal(param, far[name]) for name, param in near.items())
    order = [block.name for block in two.blocks]
    assert states.asked[: len(order)] == order
    assert states.asked[len(order) : 2 * len(order)] == order


def test_state_bytes_are_the_simulators():
    named = parameters(SHAPES, torch.bfloat16)
    optimizer = MuonClip(named.items(), OptimizerSpec())
    held = {name: sum(t.nbytes for t in optimizer.state[p].values()) for name, p in named.items()}
    gain, expert = named["layers.0.attention_norm.gain"], named["layers.0.ffn.experts.up"]
    assert held["layers.0.ffn.experts.up"] == MATRIX_STATE_BYTES * expert.numel()
    assert held["layers.0.attention_norm.gain"] == OTHER_STATE_BYTES * gain.numel() + 4  # a count


def test_experts_share_no_block_with_other_weights():
    named = parameters({"layers.0.ffn.experts.down": (4, 8, 6), "layers.0.ffn.down.weight": (8, 6)})
    blocks = MuonClip(named.items(), OptimizerSpec()).blocks
    assert [block.expert for block in blocks] == [True, False]


def test_parameters_that_want_no_gradient_are_left_alone():
    named = parameters(SHAPES)
    named["embedding.weight"].requires_grad_(False)
    before = named["embedding.weight"].detach().clone()
    optimizer = MuonClip(named.items(), OptimizerSpec())
    steps(optimizer, {n: p for n, p in named.items() if p.requires_grad}, 0, 1)
    assert torch.equal(named["embedding.weight"], before)


def test_a_missing_gradient_and_nothing_to_move_are_told():
    named = parameters(SHAPES)
    optimizer = MuonClip(named.items(), OptimizerSpec())
    give_gradients(named, 0)
    named["embedding.weight"].grad = None
    before = {name: param.detach().clone() for name, param in named.items()}
    with pytest.raises(UsageError, match=r"TW211.*`embedding.weight`"):
        optimizer.step()
    assert all(torch.equal(param, before[name]) for name, param in named.items())
    with pytest.raises(UsageError, match="TW210"):
        MuonClip([], OptimizerSpec())


def test_states_of_another_buffer_kind_or_model_are_refused():
    named = parameters(SHAPES)
    optimizer = MuonClip(named.items(), OptimizerSpec())
    average = MuonClip(named.items(), OptimizerSpec(momentum_buffer="average"))
    with pytest.raises(ScenarioError, match=r"TW212.*`momentum_buffer: average`, not `sum`"):
        optimizer.load_state_dict(average.state_dict())
    fewer = MuonClip(list(named.items())[1:], OptimizerSpec())
    with pytest.raises(ScenarioError, match=r"TW213.*absent"):
        optimizer.load_state_dict(fewer.state_dict())


def test_the_learning_rate_is_that_of_the_next_step():
    named = parameters({"layers.0.attention.out.weight": (24, 24)})
    (param,) = named.values()
    optimizer = MuonClip(named.items(), OptimizerSpec(lr=0.1, weight_decay=1.0))
    optimizer.lr = 0.25
    before = param.detach().clone()
    param.grad = torch.zeros_like(param)
    optimizer.step()
    assert torch.equal(param.detach(), before * 0.75)
    optimizer.zero_grad()
    assert param.grad is None
