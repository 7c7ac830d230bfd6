"""Fields of protocol buffers, without their schema (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterable

Value = int | bytes
"""A whole number, or the bytes of anything else."""


def fields(message: bytes) -> Iterable[tuple[int, Value]]:
    """Number and value of each field of a protocol buffer, as far as it is one: whole numbers as
    such, all else as bytes."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == 2:
            length, at = varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            return
        if at + length > len(message):
            return
        yield number, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """A whole number in groups of seven bits, and the place behind it; what is cut counts as far as
    it goes."""
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return found, at
