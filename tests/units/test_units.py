"""Quantities: what is read, how the rest is refused, and that writing undoes reading."""

from __future__ import annotations

import doctest
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin import units
from twin.units import (
    AmbiguousUnitError,
    BareNumberError,
    Dimension,
    QuantityError,
    format_quantity,
    parse,
)

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80GB", "bytes", 80e9),
        ("80GiB", "bytes", 80 * 2**30),
        ("80 GiB", "bytes", 80 * 2**30),
        ("81559MiB", "bytes", 81559 * 2**20),
        (".5kB", "bytes", 500),
        ("1e3B", "bytes", 1000),
        ("0B", "bytes", 0),
        ("400Gbps", "bytes_per_s", 50e9),
        ("400GB/s", "bytes_per_s", 400e9),
        ("3.35TB/s", "bytes_per_s", 3.35e12),
        ("1GiB/s", "bytes_per_s", 2**30),
        ("989TFLOP/s", "flop_per_s", 989e12),
        ("2.3GFLOP/s", "flop_per_s", 2_300_000_000.0),
        ("2.5us", "seconds", 2.5e-6),
        ("45d", "seconds", 45 * 86400),
        ("90min", "seconds", 5400),
        ("2.0USD", "usd", 2.0),
        ("1.5MUSD", "usd", 1.5e6),
        ("0.09USD/kWh", "usd_per_kwh", 0.09),
        ("4096tok", "tokens", 4096),
        ("15.5T", "tokens", 15.5e12),
        ("300B", "tokens", 300e9),
        ("67M", "tokens", 67e6),
        ("67108864tok", "tokens", 67108864),
        ("64seq", "sequences", 64),
    ],
)
def test_a_quantity_is_read_as_its_si_value(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "hint"),
    [
        ("80G", "bytes", "write `80GB` (powers of 1,000) or `80GiB` (powers of 1,024)"),
        ("80gb", "bytes", "write `80GB` (powers of 1,000) or `80GiB` (powers of 1,024)"),
        ("80Kb", "bytes", "write `80kB` (powers of 1,000) or `80KiB` (powers of 1,024)"),
        ("400Gb", "bytes", "write `400GB` (bytes) or `50GB` (400Gbit as bytes)"),
        ("400Gbit", "bytes", "write `400GB` (bytes) or `50GB` (400Gbit as bytes)"),
        ("400Gb", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        ("400Gb/s", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        ("400gbps", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        ("400GBps", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        ("400Gbit/s", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        ("400GB", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        ("400G", "bytes_per_s", "write `400Gbps` (bits) or `400GB/s` (bytes)"),
        (
            "989TFLOPS",
            "flop_per_s",
            "write `989TFLOP/s` (a rate) or `989TFLOP` (a count, which this field does not take)",
        ),
        (
            "989TFLOPs",
            "flop_per_s",
            "write `989TFLOP/s` (a rate) or `989TFLOP` (a count, which this field does not take)",
        ),
        ("5m", "seconds", "write `5min` (minutes) or `5ms` (milliseconds)"),
        ("128k", "tokens", "write `128000tok` (steps of 1,000) or `131072tok` (steps of 1,024)"),
        ("4Ktok", "tokens", "write `4000tok` (steps of 1,000) or `4096tok` (steps of 1,024)"),
    ],
)
def test_an_ambiguous_spelling_is_refused_with_both_readings(
    text: str, dimension: Dimension, hint: str
) -> None:
    with pytest.raises(AmbiguousUnitError) as caught:
        parse(text, dimension)
    assert caught.value.hint == hint
    assert caught.value.message == f"`{text}` can be read in two ways"


@pytest.mark.parametrize(
    ("value", "dimension", "hint"),
    [
        (80, "bytes", "write bytes, such as `80GiB` or `85.5GB`"),
        ("80", "bytes", "write bytes, such as `80GiB` or `85.5GB`"),
        (
            5e10,
            "bytes_per_s",
            "write bytes per second, such as `400Gbps` (bits) or `50GB/s` (bytes)",
        ),
        (989e12, "flop_per_s", "write FLOP per second, such as `989TFLOP/s`"),
        (2.5, "seconds", "write `2.5s`"),
        (2, "usd", "write `2USD`"),
        (4096, "tokens", "write `4096tok`"),
        ("64", "sequences", "write `64seq`"),
    ],
)
def test_a_bare_number_is_refused(value: object, dimension: Dimension, hint: str) -> None:
    with pytest.raises(BareNumberError) as caught:
        parse(value, dimension)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("value", "dimension", "message"),
    [
        ("80GIB", "bytes", "`GIB` is no unit of bytes"),
        ("-3GB", "bytes", "`-3GB` is negative"),
        ("1,000GB", "bytes", "`1,000GB` has separators in its number"),
        ("1_000B", "bytes", "`1_000B` has separators in its number"),
        ("80  GB", "bytes", "`80  GB` is no quantity"),
        ("GB", "bytes", "`GB` is no quantity"),
        ("nanB", "bytes", "`nanB` is no quantity"),
        ("", "bytes", "`` is no quantity"),
        ("9e999B", "bytes", "`9e999B` is more than a number can hold"),
        ("400Gbps", "bytes", "`400Gbps` is bytes per second; this field takes bytes"),
        ("64GT/s", "bytes_per_s", "`GT/s` is no unit of bytes per second"),
        ("989T", "flop_per_s", "`T` is no unit of FLOP per second"),
        ("3 sec", "seconds", "`sec` is no unit of a time"),
        ("2.5µs", "seconds", "`µs` is no unit of a time"),
        ("$2", "usd", "`$2` is no quantity"),
        ("2EUR", "usd", "`EUR` is no unit of US dollars"),
        (
            "64seq",
            "tokens",
            "`64seq` is a number of sequences; this field takes a number of tokens",
        ),
        ("1.5tok", "tokens", "`1.5tok` is not whole"),
        ("15.5t", "tokens", "`t` is no unit of a number of tokens"),
        (True, "bytes", "this field takes bytes"),
        (None, "bytes", "this field takes bytes"),
        ([], "bytes", "this field takes bytes"),
    ],
)
def test_what_is_no_quantity_of_the_field_is_refused(
    value: object, dimension: Dimension, message: str
) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(value, dimension)
    assert not isinstance(caught.value, AmbiguousUnitError | BareNumberError)
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (85.5e9, "bytes", "85.5GB"),
        (80 * 2**30, "bytes", "80GiB"),
        (50e9, "bytes_per_s", "50GB/s"),
        (200e9, "bytes_per_s", "200GB/s"),
        (3.35e12, "bytes_per_s", "3.35TB/s"),
        (2.5e-6, "seconds", "2.5us"),
        (64, "sequences", "64seq"),
        (67108864, "tokens", "67108864tok"),
        (0.0, "seconds", "0s"),
    ],
)
def test_the_shortest_exact_text_is_written(value: float, dimension: Dimension, text: str) -> None:
    assert format_quantity(value, dimension) == text


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (85.5e9, "bytes", "79.6 GiB"),
        (1.0264e12, "flop_per_s", "1.03 TFLOP/s"),
        (18.1342, "seconds", "18.1 s"),
        (3.2e-10, "seconds", "0.32 ns"),
        (0, "bytes", "0 B"),
        (1234567, "usd", "1.23 MUSD"),
        (4097, "tokens", "4,097 tok"),
    ],
)
def test_digits_round_for_a_reader(value: float, dimension: Dimension, text: str) -> None:
    assert format_quantity(value, dimension, digits=3) == text


@given(st.integers(0, 10**40), st.sampled_from(["tokens", "sequences"]))
def test_counts_are_exact_at_any_size(count: int, dimension: Dimension) -> None:
    unit = {"tokens": "tok", "sequences": "seq"}[dimension]
    assert parse(f"{count}{unit}", dimension) == count
    assert parse(format_quantity(count, dimension), dimension) == count


@given(st.sampled_from(DIMENSIONS), st.floats(0, 1e30))
def test_reading_what_was_written_gives_the_same_value(dimension: Dimension, value: float) -> None:
    if dimension in ("tokens", "sequences"):
        value = float(int(value))
    assert parse(format_quantity(value, dimension), dimension) == value


@given(st.sampled_from(DIMENSIONS), st.text(max_size=12))
def test_any_text_is_read_or_refused_with_a_hint(dimension: Dimension, text: str) -> None:
    try:
        assert parse(text, dimension) >= 0
    except QuantityError as error:
        refused = error
    else:
        return
    assert refused.message
    assert refused.hint


READABLE: list[tuple[str, Dimension]] = [
    ("80gb", "bytes"),
    ("80gib", "bytes"),
    ("400Gb", "bytes"),
    ("400Gb/s", "bytes_per_s"),
    ("989T", "flop_per_s"),
    ("5m", "seconds"),
    ("3 secs", "seconds"),
    ("128k", "tokens"),
    ("15.5t", "tokens"),
]


@pytest.mark.parametrize(("text", "dimension"), READABLE)
def test_an_offered_reading_is_itself_read(text: str, dimension: Dimension) -> None:
    """A hint must not send a reader into the next error."""
    with pytest.raises(QuantityError) as caught:
        parse(text, dimension)
    offered = caught.value.hint.split("`")[1::2]
    assert offered
    for offer in offered:
        parse(offer, dimension)


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(units).failed == 0
