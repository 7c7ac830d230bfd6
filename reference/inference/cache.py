"""The memory of decoding: one table of rows per layer, and who holds which blocks of it.

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
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

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
