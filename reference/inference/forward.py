"""One forward pass over chunks of many sequences, through the modules of the model itself, with
attention on a paged cache.

All tokens of a step are one row, so that every matrix product and every expert runs once;
attention alone is done per group of chunks. Each chunk follows what the cache holds of its
sequence. The numbers are those of `Transformer.forward` up to the order of sums.

Latent attention runs absorbed (DeepSeek-V2, arXiv:2405.04434, section 2.1.2): the key's
up-projection goes into the query and the value's comes after, so that all heads read the cached
latents and no key or value is made. That holds for chunks of prompts, too: more multiplications
than whole keys would take where a chunk is long, and the same numbers.

Legend: N tokens of a step, D hidden, B chunks of a group, T tokens of each, S tokens seen, H heads,
G key-value heads, P width without position, R rotary width, Q query-key width, V value width, C
latent, W width of a cache row, or words in logits.

The memory of decoding: one table of rows per layer, and who holds which blocks of it.

A row is what attention needs of a token: the latent and the turned rotary key under MLA (512 + 64
numbers in Kimi K2), else its keys and values. Slot s of block b is row b x block_tokens + s.

A full block's key is the hash of its tokens and of the key of the block before it, so that equal
keys mean equal prefixes (the hash chain of vLLM's automatic prefix caching, docs.vllm.ai,
"Automatic Prefix Caching"). A block that nobody holds keeps its content until its memory is needed,
the least recently used first.

Legend: L layers, M slots, W width of a row, N tokens, B sequences, S tokens seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

import numpy as np
import torch
from torch import Tensor

from reference.model import Transformer
from reference.model.attention import Attention
from reference.model.gqa import GroupedQueryAttention
from reference.model.layers import RmsNorm
from reference.model.mla import MultiLatentAttention
from reference.model.rope import rotate, rotate_halves
from reference.model.transformer import TransformerBlock
from twin.spec.model import LatentAttention, ModelSpec


def row_width(spec: ModelSpec) -> int:
    """Numbers per token and layer."""
    attention = spec.attention
    if isinstance(attention, LatentAttention):
        return attention.kv_lora_rank + attention.qk_rope_head_dim
    return 2 * attention.kv_heads * attention.head_dim


class PagedCache:
    """Storage for `blocks` x `block_tokens` tokens, made once."""

    def __init__(self, spec: ModelSpec, blocks: int, block_tokens: int, like: Tensor) -> None:
        self.block_tokens = block_tokens
        self._rows_LMW = like.new_zeros(spec.layers, blocks * block_tokens, row_width(spec))

    @property
    def bytes(self) -> int:
        """Bytes of all blocks, used or not."""
        return self._rows_LMW.numel() * self._rows_LMW.element_size()

    def slots(self, blocks: list[int], start: int, stop: int) -> Tensor:
        """The rows of a sequence's tokens `start` up to `stop`."""
        positions = torch.arange(start, stop)
        table = torch.tensor(blocks)
        rows = table[positions // self.block_tokens] * self.block_tokens
        return rows + positions % self.block_tokens

    def write(self, layer: int, slots_N: Tensor, rows_NW: Tensor) -> None:
        """Put the rows of N tokens into their slots."""
        self._rows_LMW[layer].index_copy_(0, slots_N, rows_NW)

    def read(self, layer: int, slots_BS: Tensor) -> Tensor:
        """The rows in some slots, [B, S, W]."""
        return self._rows_LMW[layer][slots_BS]


def chain(before: bytes, tokens: Sequence[int]) -> bytes:
    """The key of a full block that follows the block with the key `before`, empty at the start."""
    return blake2b(before + np.array(tokens, dtype="<i8").tobytes(), digest_size=16).digest()


class BlockPool:
    """`count` blocks by their numbers; it knows nothing of what they hold."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._holders = [0] * count
        self._by_key: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that can be taken: free ones, and those kept for a prefix that nobody holds."""
        return len(self._free) + len(self._idle)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.count - self.available

    @property
    def kept(self) -> int:
        """Blocks that nobody holds, with a prefix that may be asked for again."""
        return len(self._idle)

    def take(self) -> int | None:
        """A block for new content, held once; None where all are held."""
        if self._free:
            block = self._free.pop()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._forget(block)
        else:
            return None
        self._holders[block] = 1
        return block

    def find(self, key: bytes) -> int | None:
        """The block of this content, without holding it."""
        return self._by_key.get(key)

    def share(self, block: int) -> None:
        """One holder more."""
        self._idle.pop(block, None)
        self._holders[block] += 1

    def name(self, block: int, key: bytes) -> None:
        """The block is full, and this is its content; a second block of it stays unnamed."""
        if key not in self._by_key:
            self._by_key[key] = block
            self._key_of[block] = key

    def give_back(self, blocks: Sequence[int]) -> None:
        """One holder less of each. The last blocks of a sequence go first when room is needed,
        since a prefix is of no use without its beginning."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._key_of:
                self._idle[block] = None
            else:
                self._free.append(block)

    def forget_all(self) -> None:
        """Drop every name: the contents belong to weights that are gone."""
        for block in list(self._key_of):
            self._forget(block)
        self._free.extend(self._idle)
        self._idle.clear()

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._by_key[key]


Place = tuple[PagedCache, int, Tensor]
"""The cache, the layer, and the slots of the step's tokens."""


@dataclass(frozen=True, slots=True)
class ChunkGroup:
    """Pieces of equal length: their rows in the step, the slots that they see, and how many."""

    rows_BT: Tensor
    slots_BS: Tensor
    lengths_B: Tensor

    @property
    def visible(self) -> Tensor:
        """[B, T, S]: whether token t of a piece sees slot s: those up to itself."""
        T, S = self.rows_BT.shape[1], self.slots_BS.shape[1]
        last_BT = self.lengths_B[:, None] - T + torch.arange(T)
        return torch.arange(S) <= last_BT[:, :, None]


def attend(
    block: Attention, x_1ND: Tensor, turns_NR: Tensor, place: Place, groups: list[ChunkGroup]
) -> Tensor:
    """The block's output for all tokens of a step, [1, N, D], whose rows enter the cache."""
    if isinstance(block, MultiLatentAttention):
        return _latent(block, x_1ND, turns_NR, place, groups)
    if isinstance(block, GroupedQueryAttention):
        return _grouped(block, x_1ND, turns_NR, place, groups)
    raise TypeError(f"no paged attention for {type(block).__name__}")


def _latent(
    block: MultiLatentAttention,
    x_1ND: Tensor,
    turns_NR: Tensor,
    place: Place,
    groups: list[ChunkGroup],
) -> Tensor:
    cache, layer, slots_N = place
    whole = hasattr(block, "q")
    queries = block.q(x_1ND) if whole else block.q_up(block.q_norm(block.q_down(x_1ND)))
    nope_1NHP, rope_1NHR = queries.unflatten(-1, (block.heads, -1)).split(
        (block.nope, block.rotary), -1
    )
    weight_HXC = block.kv_up.weight.unflatten(0, (block.heads, -1))
    key_HPC, value_HVC = weight_HXC.split((block.nope, block.value), 1)
    asked_NHC = torch.einsum("nhp,hpc->nhc", nope_1NHP[0], key_HPC)
    q_NHW = torch.cat((asked_NHC, rotate(rope_1NHR, turns_NR)[0]), -1)
    latent_1NC, shared_1NR = block.kv_down(x_1ND).split((block.rank, block.rotary), -1)
    turned_1NR = rotate(shared_1NR[:, :, None], turns_NR)[:, :, 0]
    cache.write(layer, slots_N, torch.cat((block.kv_norm(latent_1NC), turned_1NR), -1)[0])
    read_NHC = torch.empty_like(asked_NHC)
    for group in groups:
        seen_BSW = cache.read(layer, group.slots_BS)
        q_BTHW = q_NHW[group.rows_BT]
        made = _weighed(q_BTHW, seen_BSW, seen_BSW[..., : block.rank], group, block.scale)
        read_NHC[group.rows_BT] = made
    out_NHV = torch.einsum("nhc,hvc->nhv", read_NHC, value_HVC)
    return block.out(out_NHV.flatten(1)[None])


def _grouped(
    block: GroupedQueryAttention,
    x_1ND: Tensor,
    turns_NR: Tensor,
    place: Place,
    groups: list[ChunkGroup],
) -> Tensor:
    cache, layer, slots_N = place
    q_NHQ = _turned(block, block.q(x_1ND), block.heads, block.q_norm, turns_NR)
    k_NGQ = _turned(block, block.k(x_1ND), block.kv_heads, block.k_norm, turns_NR)
    cache.write(layer, slots_N, torch.cat((k_NGQ.flatten(1), block.v(x_1ND)[0]), -1))
    out_NHQ = torch.empty_like(q_NHQ)
    shared = block.heads // block.kv_heads
    for group in groups:
        rows_BSGW = cache.read(layer, group.slots_BS).unflatten(-1, (2 * block.kv_heads, -1))
        k_BSGQ, v_BSGQ = rows_BSGW.split(block.kv_heads, 2)
        for head in range(block.kv_heads):
            some = slice(head * shared, (head + 1) * shared)
            q_BTJQ = q_NHQ[:, some][group.rows_BT]
            seen = (k_BSGQ[:, :, head], v_BSGQ[:, :, head])
            out_NHQ[:, some][group.rows_BT] = _weighed(q_BTJQ, *seen, group, block.scale)
    return block.out(out_NHQ.flatten(1)[None])


def _turned(
    block: GroupedQueryAttention, x_1NX: Tensor, heads: int, norm: RmsNorm | None, turns: Tensor
) -> Tensor:
    x_1NHQ = x_1NX.unflatten(-1, (heads, -1))
    if norm is not None:
        x_1NHQ = norm(x_1NHQ)
    return (rotate_halves(x_1NHQ, turns) if block.rotary else x_1NHQ)[0]


def _weighed(
    q_BTHW: Tensor, k_BSW: Tensor, v_BSV: Tensor, group: ChunkGroup, scale: float
) -> Tensor:
    """Attention of all heads to one key and value per token, softmax in fp32 (float64 for
    float64): [B, T, H, V]."""
    B, T, H, _ = q_BTHW.shape
    wide = torch.promote_types(q_BTHW.dtype, torch.float32)
    q_BNW = q_BTHW.flatten(1, 2).to(wide)
    logits_BNS = torch.bmm(q_BNW, k_BSW.to(wide).transpose(1, 2)).mul_(scale)
    logits_BTHS = logits_BNS.view(B, T, H, -1)
    logits_BTHS.masked_fill_(~group.visible[:, :, None], -torch.inf)
    p_BNS = torch.softmax(logits_BNS, -1).to(v_BSV.dtype)
    return torch.bmm(p_BNS, v_BSV).view(B, T, H, -1)


@dataclass(frozen=True, slots=True)
class SequenceChunk:
    """Tokens of one sequence that follow the `start` tokens that the cache holds already."""

    tokens: Sequence[int]
    start: int
    blocks: list[int]
    """The sequence's blocks, with room for these tokens."""


@torch.no_grad()
def forward(
    model: Transformer, pieces: Sequence[SequenceChunk], cache: PagedCache, *, every: bool = False
) -> Tensor:
    """Logits after the last token of each piece, [pieces, W], or after `every` token, [N, W]."""
    ids_N = torch.tensor([token for piece in pieces for token in piece.tokens])
    groups, ends = _groups(pieces, cache)
    positions_N = torch.cat(
        [torch.arange(piece.start, piece.start + len(piece.tokens)) for piece in pieces]
    )
    slots_N = torch.cat(
        [
            cache.slots(piece.blocks, piece.start, piece.start + len(piece.tokens))
            for piece in pieces
        ]
    )
    x_1ND = model.embedding(ids_N[None])
    turns_NR = model.positions.turns(int(positions_N.max()) + 1, x_1ND)[positions_N]
    for index, block in enumerate(cast("Iterable[TransformerBlock]", model.layers.values())):
        normed_1ND = block.attention_norm(x_1ND)
        place = (cache, index, slots_N)
        x_1ND = x_1ND + attend(block.attention, normed_1ND, turns_NR, place, groups)
        x_1ND = x_1ND + block.ffn(block.ffn_norm(x_1ND))
    hidden_ND = x_1ND[0] if every else x_1ND[0, ends]
    return model.head(model.final_norm(hidden_ND))


def _groups(pieces: Sequence[SequenceChunk], cache: PagedCache) -> tuple[list[ChunkGroup], Tensor]:
    """Pieces of one token together, each other alone; and where each piece ends."""
    single: list[tuple[int, SequenceChunk]] = []
    groups: list[ChunkGroup] = []
    ends: list[int] = []
    first = 0
    for piece in pieces:
        count = len(piece.tokens)
        if count == 1:
            single.append((first, piece))
        else:
            seen_S = cache.slots(piece.blocks, 0, piece.start + count)
            rows_T = torch.arange(first, first + count)
            lengths = torch.tensor([piece.start + count])
            groups.append(ChunkGroup(rows_T[None], seen_S[None], lengths))
        first += count
        ends.append(first - 1)
    if single:
        groups.append(_together(single, cache))
    return groups, torch.tensor(ends)


def _together(single: Sequence[tuple[int, SequenceChunk]], cache: PagedCache) -> ChunkGroup:
    """One token of each of many sequences; slots behind a sequence's end are hidden later."""
    lengths_B = torch.tensor([piece.start + 1 for _, piece in single])
    slots_BS = torch.zeros(len(single), int(lengths_B.max()), dtype=torch.int64)
    for row, (_, piece) in enumerate(single):
        slots_BS[row, : piece.start + 1] = cache.slots(piece.blocks, 0, piece.start + 1)
    return ChunkGroup(torch.tensor([[at] for at, _ in single]), slots_BS, lengths_B)
