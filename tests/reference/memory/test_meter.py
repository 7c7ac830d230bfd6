"""The meter's sums."""

import torch

from reference.memory.optimizer_states import Bytes, unique_bytes
from tests.reference.memory.ledgers import by_layer, by_name
from tests.reference.memory.small import EXACT, KIMI_K2, forward, model, tokens
from twin.spec.memory import MemorySpec


def test_views_of_one_storage_count_once():
    x = torch.ones(4, 4)
    assert unique_bytes([x, x.t(), x[1:], torch.ones(2)]) == 64 + 8


def test_a_layer_is_the_sum_of_its_names():
    """Rows of two copies a token that experts read, in bf16 and in FP8."""
    pico = model(dtype=torch.bfloat16)
    rows = tokens(pico).numel() * 2
    for policy, each in ((MemorySpec(), 2 * 48), (KIMI_K2, 48 + 4)):
        loss, stash = forward(pico, tokens(pico), policy, measure=True)
        names = by_name(stash.ledger, 1)
        whole = by_layer(stash.ledger)[1]
        assert sum(one.device for one in names.values()) == whole.device
        assert sum(one.host for one in names.values()) == whole.host
        read = names["moe_up_input"]
        assert read == (Bytes(0, rows * each) if policy is KIMI_K2 else Bytes(rows * each))
        assert sum(stash.kept.values()) == sum(
            one.device + one.host for one in by_layer(stash.ledger).values()
        )
        loss.backward()


def test_the_logits_never_leave():
    pico = model()
    _, stash = forward(pico, tokens(pico), EXACT["offload"], measure=True)
    logits = tokens(pico).numel() * pico.spec.vocab * 4
    assert by_layer(stash.ledger)[None].device >= logits
    assert by_layer(stash.ledger)[None].host == 0
