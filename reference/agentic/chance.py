"""Chance that is a value: the same words give the same draws, on every machine."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def drawn(*words: object) -> random.Random:
    """A generator of its own for these words."""
    return random.Random("\x1f".join(map(str, words)))


def number(*words: object) -> int:
    """A whole number of 0 to 2^32 - 1 that these words stand for, nearly uniform."""
    return zlib.crc32("\x1f".join(map(str, words)).encode(errors="surrogatepass"))


def pick(weights: Mapping[T, float], draw: random.Random) -> T:
    """One of these, by weight."""
    return draw.choices(list(weights), list(weights.values()))[0]
