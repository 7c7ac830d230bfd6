"""Quantities at the boundary: text with a unit to an SI float, and back. Imports nothing of ours.

The grammar is small and case-sensitive: a plain decimal number, at most one space, one unit of the
field's dimension. `GB` is 10^9 bytes and `GiB` 2^30; `Gbps` counts bits, `GB/s` bytes. What a
reader could take in two ways (`400Gb`, `80G`, `989TFLOPS`) is refused, and the hint spells out both
readings. Counts may drop the unit behind a prefix (`15.5T` or `300B` tokens). No unit object exists
at run time: past this module every quantity is a float.

>>> parse("400Gbps", "bytes_per_s")
50000000000.0
>>> format_quantity(85899345920.0, "bytes")
'80GiB'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Dimension = Literal[
    "bytes",
    "bytes_per_s",
    "flop_per_s",
    "seconds",
    "usd",
    "usd_per_kwh",
    "watts",
    "kwh",
    "grams_per_kwh",
    "tonnes",
    "tokens",
    "sequences",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "gpu_hours",
]
"""What a field measures; the name is also the unit that `parse` returns."""


class QuantityError(ValueError):
    """A value that is no quantity of the wanted dimension; `hint` says what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BareNumberError(QuantityError):
    """A number without the unit that its field needs."""


class AmbiguousUnitError(QuantityError):
    """A spelling that readers take in more than one way."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit as `factor` x 10^`exponent` of the SI unit: so decimal prefixes convert exactly."""

    exponent: int = 0
    factor: float = 1.0

    def value(self, number: str) -> float:
        mantissa, _, exponent = number.lower().partition("e")
        return float(f"{mantissa}e{int(exponent or 0) + self.exponent}") * self.factor

    def number(self, value: float) -> str:
        """`value` counted in this unit, without an exponent where 15 digits can do without."""
        mantissa, _, exponent = repr(value / self.factor).partition("e")
        return _plain(float(f"{mantissa}e{int(exponent or 0) - self.exponent}"))


@dataclass(frozen=True, slots=True)
class _Measure:
    """One dimension: what it is in words, its SI unit, what to write, the units that are read, and
    of these the units that are written."""

    noun: str
    base: str
    example: str
    units: dict[str, _Unit]
    written: tuple[str, ...]


_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _decimal(suffix: str, prefixes: str = "kMGTPE", factor: float = 1.0) -> dict[str, _Unit]:
    return {p + suffix: _Unit(_DECIMAL[p], factor) for p in ("", *prefixes)}


def _binary(suffix: str) -> dict[str, _Unit]:
    return {p + suffix: _Unit(0, 2.0**power) for p, power in _BINARY.items()}


def _measure(noun: str, base: str, example: str, *units: dict[str, _Unit]) -> _Measure:
    """A dimension; the units of all but the first group are read, never written."""
    known = {name: unit for group in units for name, unit in group.items()}
    return _Measure(noun, base, example, known, tuple(units[0]))


# Counts know no `k`: 128k tokens are 128,000 to one reader and 131,072 to another.
_BARE_COUNTS = {"M": _Unit(6), "G": _Unit(9), "B": _Unit(9), "T": _Unit(12)}
_TIMES = {
    "ns": _Unit(-9),
    "us": _Unit(-6),
    "ms": _Unit(-3),
    "s": _Unit(),
    "min": _Unit(0, 60.0),
    "h": _Unit(0, 3600.0),
    "d": _Unit(0, 86400.0),
}
# Counted in kWh as on a bill, whatever the prefix.
_ENERGIES = {"Wh": _Unit(-3), "kWh": _Unit(), "MWh": _Unit(3), "GWh": _Unit(6), "TWh": _Unit(9)}
# What agencies print instead: a pound is 0.45359237 kg exactly.
_INTENSITIES = {"kg/kWh": _Unit(3), "kg/MWh": _Unit(), "lb/MWh": _Unit(0, 0.45359237)}
_MEASURES: dict[Dimension, _Measure] = {
    "bytes": _measure("bytes", "B", "`80GiB` or `85.5GB`", _decimal("B") | _binary("B")),
    "bytes_per_s": _measure(
        "bytes per second",
        "B/s",
        "`400Gbps` (bits) or `50GB/s` (bytes)",
        _decimal("B/s"),
        _binary("B/s"),
        _decimal("bps", factor=1 / 8),
    ),
    "flop_per_s": _measure("FLOP per second", "FLOP/s", "`989TFLOP/s`", _decimal("FLOP/s")),
    "seconds": _measure("a time", "s", "`2.5us` or `45d`", _TIMES),
    "usd": _measure("US dollars", "USD", "`2.0USD`", _decimal("USD", "kMG")),
    "usd_per_kwh": _measure("US dollars per kWh", "USD/kWh", "`0.09USD/kWh`", {"USD/kWh": _Unit()}),
    "watts": _measure("power", "W", "`700W` or `10.2kW`", _decimal("W", "kMG")),
    "kwh": _measure("energy", "kWh", "`433196kWh` or `21.6GWh`", _ENERGIES),
    "grams_per_kwh": _measure(
        "grams of CO2e per kWh", "g/kWh", "`390g/kWh`", {"g/kWh": _Unit()}, _INTENSITIES
    ),
    "tonnes": _measure("tonnes of CO2e", "t", "`8930t`", _decimal("t", "kM")),
    "tokens": _measure(
        "a number of tokens", "tok", "`4096tok` or `15.5T`", _decimal("tok", "MGT"), _BARE_COUNTS
    ),
    "sequences": _measure(
        "a number of sequences", "seq", "`64seq`", _decimal("seq", "MGT"), _BARE_COUNTS
    ),
    "tokens_per_s": _measure(
        "tokens per second", "tok/s", "`2.5Mtok/s`", _decimal("tok/s", "kMGT")
    ),
    "tokens_per_s_per_gpu": _measure(
        "tokens per second and GPU", "tok/s/GPU", "`1.4ktok/s/GPU`", _decimal("tok/s/GPU", "kMGT")
    ),
    "gpu_hours": _measure("GPU-hours", "GPU-h", "`2.8MGPU-h`", _decimal("GPU-h", "kMG")),
}
_COUNTS: frozenset[Dimension] = frozenset(("tokens", "sequences"))

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})(?: ?([^\s0-9._,].*))?")


def parse(value: object, dimension: Dimension) -> float:
    """The SI value of a written quantity, in the unit that the dimension is named after.

    Raises `BareNumberError`, `AmbiguousUnitError` or `QuantityError`. Counts must be whole, and are
    exact at any size (an `int`).
    """
    measure = _MEASURES[dimension]
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise _bare(_plain(value), dimension)
    if not isinstance(value, str):
        raise QuantityError(f"this field takes {measure.noun}", _example(measure))
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise _malformed(value, measure)
    number, unit = match.group(1), match.group(2)
    if unit is None:
        raise _bare(number, dimension)
    if unit not in measure.units:
        raise _unknown(number, unit, dimension)
    if dimension in _COUNTS:
        count = Fraction(number) * 10 ** measure.units[unit].exponent
        if count.denominator != 1:
            raise QuantityError(f"`{value}` is not whole", _example(measure))
        return int(count)
    result = measure.units[unit].value(number)
    if result == float("inf"):
        raise QuantityError(f"`{value}` is more than a number can hold", _example(measure))
    return result


def noun(dimension: Dimension) -> str:
    """What a quantity of this dimension is, in words: `bytes per second`."""
    return _MEASURES[dimension].noun


def of_noun(noun: str) -> Dimension | None:
    """The dimension of which a quantity is this, in words; None where it is of several."""
    return next((one for one, measure in _MEASURES.items() if measure.noun == noun), None)


def examples(dimension: Dimension) -> tuple[str, ...]:
    """What people write: `80GiB`, `85.5GB`."""
    return tuple(re.findall(r"`([^`]+)`", _MEASURES[dimension].example))


def pattern(*dimensions: Dimension) -> str:
    """A regular expression, as JSON Schema and Python read it, for the quantities of a dimension,
    or of several, in units that only one of them has. It does not see that a count is whole."""
    known = Counter(unit for one in dimensions for unit in _MEASURES[one].units)
    own = sorted((unit for unit, times in known.items() if times == 1), key=lambda u: (-len(u), u))
    return f"{_NUMBER} ?(?:{'|'.join(own)})"


def leading_number(text: str) -> str | None:
    """The number that a text begins with, with its decimal prefix if one follows; else None.

    >>> leading_number("67M"), leading_number("64 sequences"), leading_number("many")
    ('67M', '64', None)
    """
    match = re.match(rf"({_NUMBER})([MGT](?![A-Za-z]))?", text)
    return match[0] if match else None


def format_quantity(value: float, dimension: Dimension, digits: int | None = None) -> str:
    """The shortest text that `parse` reads back as exactly `value` (finite, not negative).

    With `digits`, the value rounded to so many significant digits for a person: thousands
    separated, a space before the unit, and bytes in binary units.

    >>> format_quantity(5e10, "bytes_per_s"), format_quantity(85.5e9, "bytes", digits=3)
    ('50GB/s', '79.6 GiB')
    """
    measure = _MEASURES[dimension]
    if digits is not None:
        return _display(value, dimension, digits)
    if value == 0:
        return f"0{measure.base}"
    numbers = {unit: measure.units[unit].number(value) for unit in measure.written}
    texts = [number + unit for unit, number in numbers.items() if "e" not in number]
    exact = [text for text in texts if parse(text, dimension) == value]
    # `written` ascends in size: of equally short texts the one in the largest unit is read best,
    # but 200GB/s better than 0.2TB/s.
    return min(
        reversed(exact),
        key=lambda text: (len(text), text.startswith("0.")),
        default=(str(int(value)) if dimension in _COUNTS else repr(value)) + measure.base,
    )


def _display(value: float, dimension: Dimension, digits: int) -> str:
    measure = _MEASURES[dimension]
    shown = ("B", *_binary("B")) if dimension == "bytes" else measure.written
    by_size = sorted(shown, key=lambda unit: measure.units[unit].value("1"))
    below = [unit for unit in by_size if measure.units[unit].value("1") <= abs(value)]
    # Below the smallest unit that fits there is nothing to choose; zero stays in the SI unit.
    unit = below[-1] if below else measure.base if value == 0 else by_size[0]
    if dimension in _COUNTS and unit == measure.base:
        return f"{value:,.0f} {unit}"
    number = float(f"{value / measure.units[unit].value('1'):.{digits}g}")
    return f"{number:,.0f} {unit}" if number.is_integer() else f"{number:,} {unit}"


def _plain(number: float) -> str:
    return str(int(number)) if abs(number) < 1e15 and float(number).is_integer() else repr(number)


def _example(measure: _Measure) -> str:
    return f"write {measure.noun}, such as {measure.example}"


def _bare(number: str, dimension: Dimension) -> BareNumberError:
    measure = _MEASURES[dimension]
    # Where the SI unit is what people write, the nearest fix is to append it.
    si_is_usual = dimension not in ("bytes", "bytes_per_s", "flop_per_s")
    hint = f"write `{number}{measure.base}`" if si_is_usual else _example(measure)
    return BareNumberError(f"`{number}` has no unit; this field takes {measure.noun}", hint)


def _malformed(value: str, measure: _Measure) -> QuantityError:
    if value.startswith("-"):
        return QuantityError(f"`{value}` is negative", _example(measure))
    if value.startswith("$"):
        return QuantityError(f"`{value}` is no quantity", f"write `{value[1:].strip()}USD`")
    if re.match(r"[0-9]+[_,][0-9]", value):
        plain = re.sub(r"(?<=[0-9])[_,](?=[0-9])", "", value)
        return QuantityError(f"`{value}` has separators in its number", f"write `{plain}`")
    return QuantityError(f"`{value}` is no quantity", _example(measure))


def _unknown(number: str, unit: str, dimension: Dimension) -> QuantityError:
    """Why a unit is refused: it has several readings, or one with another spelling, or belongs to
    another dimension, or is nothing that we know."""
    measure = _MEASURES[dimension]
    read = _READINGS.get(dimension)
    readings = read(number, unit) if read else []
    hint = "write " + " or ".join(f"`{text}` ({meaning})" for text, meaning in readings)
    if len(readings) > 1:
        return AmbiguousUnitError(f"`{number}{unit}` can be read in two ways", hint)
    if readings:
        return QuantityError(f"`{unit}` is no unit of {measure.noun}", hint)
    for other in _MEASURES.values():
        if unit in other.units:
            wrong = f"`{number}{unit}` is {other.noun}; this field takes {measure.noun}"
            return QuantityError(wrong, _example(measure))
    return QuantityError(f"`{unit}` is no unit of {measure.noun}", _example(measure))


_Readings = list[tuple[str, str]]
"""What a refused spelling may mean: (what to write instead, what that says)."""


def _prefix(letter: str) -> str:
    """The decimal prefix that a letter in any case stands for; `m` is mega, as in `10mb`."""
    return "k" if letter in ("k", "K") else letter.upper()


def _byte_readings(number: str, unit: str) -> _Readings:
    found = re.fullmatch(r"([kmgtpe]?)(i?)(b|bits?|bytes?)?", unit.lower())
    if found is None:
        return []
    prefix = _prefix(found[1])
    decimal, binary = f"{number}{prefix}B", f"{number}{prefix.upper()}iB"
    if found[2] and prefix:
        return [(binary, "powers of 1,024")]
    if "bit" in unit or (unit.endswith("b") and unit == f"{prefix}b"):
        bits = f"{_plain(float(number) / 8)}{prefix}B"
        return [(decimal, "bytes"), (bits, f"{number}{prefix}bit as bytes")]
    if not prefix:
        return [(decimal, "bytes")]
    return [(decimal, "powers of 1,000"), (binary, "powers of 1,024")]


def _bandwidth_readings(number: str, unit: str) -> _Readings:
    found = re.fullmatch(r"([kmgtpe]?)(i?)(?:b|bits?|bytes?)?(?:/s|/sec|ps)?", unit.lower())
    if found is None:
        return []
    prefix = _prefix(found[1])
    if found[2]:
        return [(f"{number}{prefix.upper()}iB/s", "powers of 1,024")]
    return [(f"{number}{prefix}bps", "bits"), (f"{number}{prefix}B/s", "bytes")]


def _flop_readings(number: str, unit: str) -> _Readings:
    found = re.fullmatch(r"([kmgtpe]?)(flops?)?(/s|/sec|ps)?", unit.lower())
    if found is None:
        return []
    rate = f"{number}{_prefix(found[1])}FLOP/s"
    if found[2] and not found[3]:
        count = f"{number}{_prefix(found[1])}FLOP"
        return [(rate, "a rate"), (count, "a count, which this field does not take")]
    return [(rate, "a rate")]


def _time_readings(number: str, unit: str) -> _Readings:
    if unit in ("m", "M"):
        return [(f"{number}min", "minutes"), (f"{number}ms", "milliseconds")]
    spelled = {
        "s": r"s|secs?|seconds?",
        "min": r"mins?|minutes?",
        "h": r"h|hrs?|hours?",
        "d": r"d|days?",
        "us": r"us|µs|μs|microseconds?",
        "ms": r"milliseconds?",
        "ns": r"ns|nanoseconds?",
    }
    names = [name for name, spellings in spelled.items() if re.fullmatch(spellings, unit.lower())]
    return [(f"{number}{name}", "units are short and in lower case") for name in names]


def _count_readings(number: str, unit: str, base: str, word: str) -> _Readings:
    found = re.fullmatch(rf"([kmgtb]?) ?(?:{base}s?|{word}s?)?", unit.lower())
    if found is None:
        return []
    if found[1] != "k":
        prefix = _prefix(found[1]).replace("B", "G")
        return [(f"{number}{prefix}{base}", f"{word}s")]
    thousands, binary = (_plain(float(number) * step) for step in (1000, 1024))
    return [(f"{thousands}{base}", "steps of 1,000"), (f"{binary}{base}", "steps of 1,024")]


def _cased_readings(number: str, unit: str, dimension: Dimension) -> _Readings:
    """The unit that differs in case only: `10kw`. Milliwatts are nobody's cluster, so `mw` is one
    of them, too."""
    known = [name for name in _MEASURES[dimension].units if name.lower() == unit.lower()]
    return [(f"{number}{name}", "letters in this case") for name in known]


_READINGS: dict[Dimension, Callable[[str, str], _Readings]] = {
    "bytes": _byte_readings,
    "bytes_per_s": _bandwidth_readings,
    "flop_per_s": _flop_readings,
    "seconds": _time_readings,
    "usd_per_kwh": lambda number, unit: _cased_readings(number, unit, "usd_per_kwh"),
    "watts": lambda number, unit: _cased_readings(number, unit, "watts"),
    "kwh": lambda number, unit: _cased_readings(number, unit, "kwh"),
    "grams_per_kwh": lambda number, unit: _cased_readings(number, unit, "grams_per_kwh"),
    "tokens": lambda number, unit: _count_readings(number, unit, "tok", "token"),
    "sequences": lambda number, unit: _count_readings(number, unit, "seq", "sequence"),
}
