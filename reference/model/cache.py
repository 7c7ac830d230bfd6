"""What decoding remembers: per layer and token the latent and the rotary key (576 numbers in Kimi
K2), or keys and values.

Shapes: B batch, T new tokens, S tokens seen, X and Y widths of the two things remembered.
"""

from __future__ import annotations

from torch import Tensor


class LayerCache:
    """Two growing tensors of one layer, in storage that doubles when it is full."""

    def __init__(self, absorbed: bool = True) -> None:
        self.absorbed = absorbed
        """Whether latent attention decodes on latents; it gives the same numbers either way."""
        self.length = 0
        self._parts: list[Tensor] = []

    def extend(self, x_BTX: Tensor, y_BTY: Tensor) -> tuple[Tensor, Tensor]:
        """Append what belongs to T further tokens; both tensors, all S tokens long."""
        start, self.length = self.length, self.length + x_BTX.shape[1]
        if not self._parts or self.length > self._parts[0].shape[1]:
            self._grow((x_BTX, y_BTY), start)
        for part, new in zip(self._parts, (x_BTX, y_BTY), strict=True):
            part[:, start : self.length] = new.detach()
        first, second = (part[:, : self.length] for part in self._parts)
        return first, second

    def _grow(self, new: tuple[Tensor, Tensor], filled: int) -> None:
        size = 1 << max(self.length - 1, 63).bit_length()
        old, self._parts = self._parts, []
        for index, like in enumerate(new):
            part = like.new_empty(like.shape[0], size, like.shape[2])
            if filled:
                part[:, :filled] = old[index][:, :filled]
            self._parts.append(part)


class Cache:
    """The caches of all layers; decoding runs without gradients."""

    def __init__(self, layers: int, absorbed: bool = True) -> None:
        self.layers = [LayerCache(absorbed) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Tokens seen."""
        return self.layers[0].length

    def bytes(self) -> int:
        """Bytes in use, without storage kept free for growth."""
        return sum(
            part[:, : layer.length].numel() * part.element_size()
            for layer in self.layers
            for part in layer._parts  # noqa: SLF001 - one noun in two classes
        )
