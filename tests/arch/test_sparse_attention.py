"""Sparse attention of DeepSeek-V3.2 beside the same block in PyTorch.

Shapes: S tokens, H heads, K chosen tokens; widths as in the fields of `LatentAttention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.arch.models import TINY_SPARSE, catalog
from tests.arch.torch_mixers import flop_of, torch_parameters
from twin.arch.count import flop_per_token, matrix_weights, parameters
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers, parameters_of

MODEL = TINY_SPARSE
CHOSEN = 4
SEQUENCE = 16


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Sparse(nn.Module):
    """Latent attention whose every token reads the latents of a few chosen by an indexer; each
    token by itself, so that no product is larger than it has to be."""

    def __init__(self) -> None:
        super().__init__()
        self.q_a, self.q_norm, self.q_b = linear(48, 24), nn.RMSNorm(24), linear(24, 4 * 24)
        self.kv_a, self.kv_norm = linear(48, 16 + 8), nn.RMSNorm(16)
        self.keys = nn.Parameter(torch.randn(4, 16, 16))
        self.values = nn.Parameter(torch.randn(4, 16, 12))
        self.out = linear(4 * 12, 48)
        self.index_q, self.index_k, self.index_norm = linear(24, 16), linear(48, 8), nn.LayerNorm(8)
        self.index_weights = linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        thin = self.q_norm(self.q_a(x))
        q = self.q_b(thin).view(-1, 4, 24).transpose(0, 1)
        latent, rope = self.kv_a(x).split([16, 8], -1)
        read = torch.cat([self.kv_norm(latent), rope], -1)
        queries = torch.cat([q[..., :16] @ self.keys, q[..., 16:]], -1)
        index_q, index_k = self.index_q(thin).view(-1, 2, 8), self.index_norm(self.index_k(x))
        weights = self.index_weights(x)
        found: list[Tensor] = []
        for at in range(x.shape[0]):
            scores = torch.relu(index_q[at] @ index_k[: at + 1].T)
            best = (weights[at, :, None] * scores).sum(0).topk(min(CHOSEN, at + 1)).indices
            chosen = read[best]
            shares = torch.softmax(queries[:, at] @ chosen.T, -1)
            found.append(shares @ chosen[:, :16])
        return self.out((torch.stack(found, 1) @ self.values).transpose(0, 1).flatten(1))


def attention(shape: Shape) -> dict[str, Op]:
    names = ("q_", "kv_", "index_", "absorb_", "attention_", "mla_")
    items = layers(MODEL, shape)[1].items
    return {one.name: one for one in items if isinstance(one, Op) and one.name.startswith(names)}


def test_parameters_are_those_of_the_module() -> None:
    table = parameters_of(MODEL, "dense")
    own = sum(row.elements for row in table if row.part == "attention")
    assert own == torch_parameters(Sparse())


def test_flop_are_those_that_pytorch_counts_less_half_of_the_diagonal() -> None:
    """As everywhere in causal attention, a token is half a key of itself: of scores over all
    tokens, and of the first tokens, which have no more than they choose."""
    counted = flop_of(lambda: Sparse()(torch.randn(SEQUENCE, 48)))
    scores = 2 * 2 * 8 * SEQUENCE / 2
    read = 2 * 4 * (24 + 16) * CHOSEN / 2
    found = sum(op.forward.flop for op in attention(Shape(1, SEQUENCE)).values())
    assert found == counted - scores - read


def test_a_long_sequence_costs_no_more_per_token_but_for_the_scores() -> None:
    """What grows is 64 heads x 128 for each token before."""
    model = catalog("deepseek-v3.2")
    longer = flop_per_token(model, 131_072) - flop_per_token(model, 65_536)
    scores = 3 * 61 * 64 * 128 * 65_536
    chosen = 3 * 61 * 128 * (576 + 512) * 2048**2 * (1 / 65_536 - 1 / 131_072)
    assert abs(longer - scores - chosen) < 1e-6 * longer


def test_deepseek_v3_2_trains_as_its_weights_scores_and_chosen_tokens_say() -> None:
    model = catalog("deepseek-v3.2")
    weights = float(matrix_weights(model)) + model.vocab * model.hidden
    keys = 2 * 2048 - 2048**2 / 4096
    mixing = 61 * (64 * 128 * 4096 + 128 * (576 + 512) * keys)
    assert flop_per_token(model, 4096) == 6 * weights + 3 * mixing


def test_the_indexer_is_what_deepseek_v3_2_has_more_than_v3() -> None:
    """685,396,921,376 are published for DeepSeek-V3.2-Exp, 684,531,386,000 for DeepSeek-R1, whose
    files have an fp32 scale for each 128 x 128 weights beside: of an indexer 768 and 56."""
    one, other = (parameters(catalog(name)) for name in ("deepseek-v3.2", "deepseek-v3"))
    more = one.total + one.multi_token_prediction - other.total - other.multi_token_prediction
    assert more + 62 * (768 + 56) == 685_396_921_376 - 684_531_386_000


def test_nothing_but_weights_of_the_indexer_has_a_gradient_through_it() -> None:
    found = attention(Shape(1, SEQUENCE))
    for name in ("index_q", "index_k", "index_weights"):
        assert found[name].backward.kernels == 0
        assert found[name].weight.flop == found[name].forward.flop


def test_products_with_parts_of_up_projections_have_both_gradients_at_once() -> None:
    """So that nothing as wide as a latent for each head waits for a late weight gradient."""
    found = attention(Shape(1, SEQUENCE))
    for name in ("absorb_query", "absorb_value"):
        assert found[name].backward.flop == 2 * found[name].forward.flop
        assert (found[name].weight.kernels, found[name].late) == (0, 0)
