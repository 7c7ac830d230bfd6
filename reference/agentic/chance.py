"""Seeded random draws: the same key gives the same draws on every machine."""

from __future__ import annotations

import random
import zlib


def drawn(*key: object) -> random.Random:
    """A random generator with this key as its seed."""
    return random.Random("\x1f".join(map(str, key)))


def number(*key: object) -> int:
    """An integer from 0 to 2^32 - 1 that follows from the key, nearly uniform."""
    return zlib.crc32("\x1f".join(map(str, key)).encode(errors="surrogatepass"))
