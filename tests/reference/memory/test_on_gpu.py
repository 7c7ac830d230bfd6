"""The same on a CUDA device, where copies really leave and run beside the work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reference.memory.optimizer_states import OptimizerStates
from reference.memory.stash import Stash
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from tests.reference.memory.small import EXACT, KIMI_K2, assert_same_bits, spec, step, tokens
from twin.spec.memory import MemorySpec

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """cuDNN's attention adds gradients in any order: the trainer's setting takes another kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def tiny() -> Transformer:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    made = Transformer(spec("kimi-k2-tiny"), dtype=torch.bfloat16, device="cuda")
    initialize(made, 0)
    return made


@pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT)
def test_a_policy_changes_no_bit_of_loss_and_gradients(policy: MemorySpec, tiny: Transformer):
    batch = tokens(tiny, 2, 512)
    expected = step(tiny, batch, MemorySpec())
    for _ in range(3):  # memory that is reused too early shows in later rounds
        found = step(tiny, batch, policy)
        assert torch.equal(found.loss, expected.loss)
        assert_same_bits(found.gradients, expected.gradients)


def test_the_devices_peak_falls_with_what_is_kept(tiny: Transformer):
    peaks: dict[str, int] = {}
    for name, policy in {"nothing": MemorySpec(), "kimi k2": KIMI_K2}.items():
        tiny.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
        with Stash(policy):
            hidden = tiny.hidden(tokens(tiny, 8, 1024))
        hidden.sum().backward()
        peaks[name] = torch.cuda.max_memory_allocated()
    assert 0 < peaks["kimi k2"] < peaks["nothing"] - 100 * MIB


@pytest.mark.parametrize("place", ["device", "host"])
def test_steps_are_the_same_with_states_on_the_host(place: str):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    policy = MemorySpec.model_validate({"offload": ("optimizer",), "optimizer_update": place})
    weights = []
    for states in (None, OptimizerStates(policy)):
        made = Transformer(spec("kimi-k2-nano"), dtype=torch.bfloat16, device="cuda")
        initialize(made, 0)
        optimizer = MuonClip(made.named_parameters(), OptimizerSpec(), states)
        torch.manual_seed(0)
        for _ in range(5):
            for parameter in made.parameters():
                parameter.grad = torch.randn(parameter.shape, device="cuda")
            optimizer.step()
        weights.append(dict(made.named_parameters()))
    if place == "device":
        assert_same_bits(weights[1], weights[0])
    else:  # the host rounds in another order
        for name, one in weights[0].items():
            torch.testing.assert_close(weights[1][name], one, rtol=2**-7, atol=1e-6)
