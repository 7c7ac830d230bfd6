"""The same models written again as plain PyTorch modules, to count what they hold, do and keep.

Shapes: B sequences, S positions, T = B x S tokens, D hidden, E experts, K experts per token.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from twin.spec.model import DenseFfn, GroupedAttention, LatentAttention, ModelSpec, Moe


class Transformer(nn.Module):
    """Embedding, layers, final norm, head."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocab, model.hidden)
        self.positions = (
            nn.Embedding(model.learned_positions, model.hidden) if model.learned_positions else None
        )
        self.first_norm = make_norm(model) if model.embedding_norm else nn.Identity()
        experts = set(range(model.layers)) if model.moe else set()
        if model.moe:
            experts -= set(range(model.moe.first_dense_layers))
            experts &= set(range(model.moe.every - 1, model.layers, model.moe.every))
        self.layers = nn.ModuleList(Layer(model, i not in experts) for i in range(model.layers))
        self.norm = make_norm(model)
        self.ahead = nn.ModuleList(Prediction(model) for _ in range(model.mtp_layers))
        self.head = nn.Linear(model.hidden, model.vocab, bias=False)
        if model.tied_embeddings:
            self.head.weight = self.tokens.weight

    def forward(self, ids_BS: Tensor) -> Tensor:
        x_BSD = self.tokens(ids_BS)
        if self.positions is not None:
            x_BSD = x_BSD + self.positions.weight[: ids_BS.shape[1]]
        x_BSD = self.first_norm(x_BSD)
        for layer in self.layers:
            x_BSD = layer(x_BSD)
        logits = self.head(self.norm(x_BSD))
        for module in self.ahead:
            assert isinstance(module, Prediction)
            x_BSD = module(x_BSD, self.tokens(ids_BS.roll(-1, 1)))
            logits = logits + self.head(module.norm(x_BSD))
        return logits


class Prediction(nn.Module):
    """A multi-token-prediction module (DeepSeek-V3, section 2.2); the model's head and table are
    given."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.ahead_norm, self.before_norm, self.norm = (make_norm(model) for _ in range(3))
        self.projection = linear(2 * model.hidden, model.hidden)
        self.layer = Layer(model, dense=model.moe is None)

    def forward(self, x_BSD: Tensor, ahead_BSD: Tensor) -> Tensor:
        return self.layer(self.joined(x_BSD, ahead_BSD))

    def joined(self, x_BSD: Tensor, ahead_BSD: Tensor) -> Tensor:
        both = torch.cat([self.before_norm(x_BSD), self.ahead_norm(ahead_BSD)], -1)
        return self.projection(both)


class Layer(nn.Module):
    """x + attention(norm(x)), then x + ffn(norm(x)), with native dropout, whose mask is 1 byte."""

    def __init__(self, model: ModelSpec, dense: bool) -> None:
        super().__init__()
        latent = isinstance(model.attention, LatentAttention)
        self.attention_norm, self.ffn_norm = make_norm(model), make_norm(model)
        self.attention = Latent(model) if latent else Grouped(model)
        self.ffn = Dense(model.ffn, model.hidden) if dense else Experts(model)
        self.drop = model.dropout
        self.attention_behind, self.ffn_behind = (
            make_norm(model) if model.norms_behind else nn.Identity() for _ in range(2)
        )

    def forward(self, x_BSD: Tensor) -> Tensor:
        mixed = self.attention_behind(self.attention(self.attention_norm(x_BSD)))
        x_BSD = x_BSD + dropped(mixed, self.drop)
        return x_BSD + dropped(self.ffn_behind(self.ffn(self.ffn_norm(x_BSD))), self.drop)


class Grouped(nn.Module):
    """Multi-head attention with one GEMM for queries, keys and values, unfused."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        spec = model.attention
        assert isinstance(spec, GroupedAttention)
        self.spec, self.drop = spec, model.dropout
        width = (spec.heads * (1 + spec.gated) + 2 * spec.kv_heads) * spec.head_dim
        self.qkv = nn.Linear(model.hidden, width, bias=spec.bias or spec.qkv_bias)
        self.out = nn.Linear(spec.heads * spec.head_dim, model.hidden, bias=spec.bias)
        self.q_norm, self.k_norm = (
            nn.RMSNorm(spec.head_dim) if spec.qk_norm else nn.Identity() for _ in range(2)
        )
        if spec.sinks:
            self.sinks = nn.Parameter(torch.empty(spec.heads))

    def forward(self, x_BSD: Tensor) -> Tensor:
        spec = self.spec
        counts = (spec.heads * spec.gated, spec.heads, spec.kv_heads, spec.kv_heads)
        gate, q, k, v = self.qkv(x_BSD).split([n * spec.head_dim for n in counts], dim=-1)
        group = spec.heads // spec.kv_heads
        q = split_heads(q, spec.heads)
        k, v = (split_heads(y, spec.kv_heads) for y in (k, v))
        q, k = self.q_norm(q), self.k_norm(k)
        if group > 1:
            k, v = (y.repeat_interleave(group, 0) for y in (k, v))
        made = join_heads(attend(q, k, v, self.drop), x_BSD.shape[0])
        return self.out(made * torch.sigmoid(gate) if spec.gated else made)


class Latent(nn.Module):
    """Multi-head latent attention, training form; rotation does no GEMM and is left out."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        spec = model.attention
        assert isinstance(spec, LatentAttention)
        self.spec, self.drop = spec, model.dropout
        qk = spec.qk_nope_head_dim + spec.qk_rope_head_dim
        rank = spec.q_lora_rank
        assert rank is not None
        self.q_a, self.q_a_norm = linear(model.hidden, rank), nn.RMSNorm(rank)
        self.q_b = linear(rank, spec.heads * qk)
        self.kv_a = linear(model.hidden, spec.kv_lora_rank + spec.qk_rope_head_dim)
        self.kv_a_norm = nn.RMSNorm(spec.kv_lora_rank)
        self.kv_b = linear(
            spec.kv_lora_rank, spec.heads * (spec.qk_nope_head_dim + spec.v_head_dim)
        )
        self.out = linear(spec.heads * spec.v_head_dim, model.hidden)

    def forward(self, x_BSD: Tensor) -> Tensor:
        spec = self.spec
        q = split_heads(self.q_b(self.q_a_norm(self.q_a(x_BSD))), spec.heads)
        latent, rope = self.kv_a(x_BSD).split([spec.kv_lora_rank, spec.qk_rope_head_dim], -1)
        kv = split_heads(self.kv_b(self.kv_a_norm(latent)), spec.heads)
        nope, v = kv.split([spec.qk_nope_head_dim, spec.v_head_dim], -1)
        rope = rope.repeat_interleave(spec.heads, 0)
        k = torch.cat([nope, rope], -1)
        return self.out(join_heads(attend(q, k, v, self.drop), x_BSD.shape[0]))


class Dense(nn.Module):
    """SwiGLU with gate and up in one GEMM, or GeLU."""

    def __init__(self, spec: DenseFfn, hidden: int) -> None:
        super().__init__()
        self.kind = spec.kind
        wide = spec.width * (2 if spec.kind == "swiglu" else 1)
        self.up = nn.Linear(hidden, wide, bias=spec.bias)
        self.down = nn.Linear(spec.width, hidden, bias=spec.bias)

    def forward(self, x: Tensor) -> Tensor:
        made = self.up(x)
        if self.kind == "swiglu":
            return self.down(SwiGlu.apply(made))
        gelu = self.kind == "gelu"
        return self.down(functional.gelu(made) if gelu else functional.relu(made).square())


class Experts(nn.Module):
    """Router, shared expert, and routed experts under balanced routing: token t goes to experts
    t x K ... t x K + K - 1, modulo E."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        spec = model.moe
        assert isinstance(spec, Moe)
        self.spec = spec
        self.router = nn.Linear(model.hidden, spec.experts, bias=spec.bias)
        if spec.correction_bias:
            self.register_buffer("bias", torch.zeros(spec.experts))
        width = spec.shared_width or spec.width * spec.shared_experts
        self.shared = Dense(DenseFfn(kind="swiglu", width=width), model.hidden) if width else None
        self.gate = linear(model.hidden, 1) if spec.shared_gate else None
        if spec.bias:
            self.up_bias = nn.Parameter(torch.empty(spec.experts, 1, 2 * spec.width))
            self.down_bias = nn.Parameter(torch.empty(spec.experts, 1, model.hidden))
        self.up = nn.Parameter(torch.empty(spec.experts, model.hidden, 2 * spec.width))
        self.down = nn.Parameter(torch.empty(spec.experts, spec.width, model.hidden))

    def forward(self, x_BSD: Tensor) -> Tensor:
        x_TD = x_BSD.flatten(0, 1)
        scores_TE = torch.sigmoid(self.router(x_TD))
        weights_TK = scores_TE[:, : self.spec.top_k]
        result = self.routed(x_TD, weights_TK)
        if self.shared is not None:
            beside = self.shared(x_TD)
            share = 1.0 if self.gate is None else torch.sigmoid(self.gate(x_TD))
            result = result + share * beside
        return result.view_as(x_BSD)

    def routed(self, x_TD: Tensor, weights_TK: Tensor) -> Tensor:
        """The weights enter with the activation, so that `down`'s output is not kept."""
        tokens, hidden = x_TD.shape
        copies = torch.arange(tokens, device=x_TD.device).repeat_interleave(self.spec.top_k)
        rows = x_TD.index_select(0, copies).view(-1, self.spec.experts, hidden).transpose(0, 1)
        made = torch.bmm(rows.contiguous(), self.up)
        chosen = weights_TK.flatten().view(-1, self.spec.experts).transpose(0, 1)
        result = torch.bmm(WeightedSwiGlu.apply(made, chosen), self.down)
        return result.transpose(0, 1).reshape(tokens, -1, hidden).sum(1)


class SwiGlu(torch.autograd.Function):
    """The fused kernel: keeps its input only. As below, its gradients have shapes, not values."""

    @staticmethod
    def forward(ctx, made: Tensor) -> Tensor:
        ctx.save_for_backward(made)
        gate, up = made.chunk(2, -1)
        return functional.silu(gate) * up

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (made,) = ctx.saved_tensors
        return torch.zeros_like(made) + gradient.sum()


class WeightedSwiGlu(torch.autograd.Function):
    """The fused kernel with a weight per row: keeps its inputs only. Counted, never trained: its
    gradients have the right shapes, not the right values."""

    @staticmethod
    def forward(ctx, made: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(made, weights)
        gate, up = made.chunk(2, -1)
        return functional.silu(gate) * up * weights.unsqueeze(-1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        made, weights = ctx.saved_tensors
        return torch.zeros_like(made) + gradient.sum(), weights * gradient.sum(-1)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def make_norm(model: ModelSpec) -> nn.Module:
    make = nn.RMSNorm if model.norm == "rmsnorm" else nn.LayerNorm
    return make(model.hidden)


def dropped(x: Tensor, drop: bool) -> Tensor:
    return torch.native_dropout(x, 0.1, True)[0] if drop else x


def split_heads(x_BSW: Tensor, heads: int) -> Tensor:
    """[B, S, H x W] to [B x H, S, W]."""
    batch, sequence, width = x_BSW.shape
    x_BHSW = x_BSW.view(batch, sequence, heads, width // heads).transpose(1, 2)
    return x_BHSW.reshape(batch * heads, sequence, width // heads)


def join_heads(x: Tensor, batch: int) -> Tensor:
    """[B x H, S, W] back to [B, S, H x W]."""
    heads, sequence, width = x.shape[0] // batch, x.shape[1], x.shape[2]
    return x.view(batch, heads, sequence, width).transpose(1, 2).reshape(batch, sequence, -1)


def attend(q: Tensor, k: Tensor, v: Tensor, drop: bool) -> Tensor:
    """The whole score matrix; the mask does no GEMM and keeps nothing more than the softmax."""
    shares = torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1)
    return torch.bmm(dropped(shares, drop), v)
