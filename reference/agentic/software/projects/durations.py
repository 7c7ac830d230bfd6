"""Durations read from text and written to it."""

from reference.agentic.software.project import Bug, Project

_READ = '''"""Durations such as 1h30m, in seconds."""

from $package.units import SECONDS


def parse(text):
    """The seconds of a text such as `2d4h` or `90s`; a `-` before it makes it negative."""
    text = text.strip()
    sign = -1 if text.startswith("-") else 1
    total, digits = 0, ""
    for letter in text.lstrip("-").lower():
        if letter.isdigit():
            digits += letter
        elif letter in SECONDS and digits:
            total += int(digits) * SECONDS[letter]
            digits = ""
        elif letter != " ":
            raise ValueError(f"not understood: {letter}")
    if digits:
        raise ValueError("a number without unit")
    if not text.lstrip("-"):
        raise ValueError("empty")
    return sign * total


def total(texts):
    """The sum of many durations, in seconds."""
    return sum(parse(text) for text in texts)


def longest(texts):
    """The text of the longest duration; the first of several."""
    return max(texts, key=parse)
'''
_WRITE = '''"""Durations as text."""

from $package.units import ORDER, SECONDS


def written(seconds, parts=$parts):
    """As few units as the duration needs, the largest first, at most so many; what is smaller is
    left out. Zero is `0s`."""
    sign = "-" if seconds < 0 else ""
    left, found = abs(seconds), []
    for unit in ORDER:
        count, left = divmod(left, SECONDS[unit])
        if count:
            found.append(f"{count}{unit}")
    return sign + "".join(found[:parts]) if found else "0s"


def clock(seconds):
    """As hours, minutes and seconds: 1:02:03; hours may be many."""
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def rounded(seconds, unit="m"):
    """The nearest whole number of units; half a unit counts as one."""
    size = SECONDS[unit]
    return (seconds + size // 2) // size
'''
_UNITS = '''"""Units by letter, in seconds."""

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
ORDER = sorted(SECONDS, key=SECONDS.get, reverse=True)
'''
_TESTS = """import unittest

from $package.read import parse
from $package.write import clock, written


class DurationsTest(unittest.TestCase):
    def test_minutes_are_read(self):
        self.assertEqual(parse("30m"), 1800)
        self.assertEqual(parse("45s"), 45)

    def test_nonsense_is_refused(self):
        with self.assertRaises(ValueError):
            parse("3x")

    def test_written(self):
        self.assertEqual(written(60), "1m")
        self.assertEqual(clock(3723), "1:02:03")


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = "from $package.read import *\nfrom $package.write import *\n"
PROJECT = Project(
    "durations",
    "Durations read from text and written to it.",
    {"package": ("spans", "timetext", "howlong"), "parts": ("2", "3")},
    {"read.py": _READ, "write.py": _WRITE, "units.py": _UNITS},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "result = [parse('1h30m'), parse('2d4h'), parse('1w'), parse(' 5s ')]",
            "result = [parse('-1h30m'), parse('-5s')]",
            "result = [parse('1H 30M'), parse('10m')]",
            "parse('5')",
            "parse('')",
            "parse('-')",
            "parse('1h2')",
            "result = [total(['1m', '1m30s']), total([])]",
            "result = [longest(['1h', '90m', '5s']), longest(['60s', '1m'])]",
            "result = [longest(['2h', '119m']), longest(['1m', '60s'])]",
            "result = [written(3661), written(90061), written(59), written(0)]",
            "result = [written(-90), written(-3600)]",
            "result = [written(3661, 1), written(694861, 9), written(604800)]",
            "result = [clock(0), clock(59), clock(3600), clock(100 * 3600 + 61)]",
            "result = [rounded(89), rounded(90), rounded(30), rounded(29), rounded(5400, 'h')]",
        )
    ),
    (
        Bug(
            "boundary",
            "write.py",
            "found[:parts]",
            "found[:parts - 1]",
            "The last unit is cut off\n\nWith one unit asked for, 3661 seconds are written as an "
            "empty text instead of `1h`; without a number, one unit too few comes out.",
        ),
        Bug(
            "condition",
            "read.py",
            '        raise ValueError("a number without unit")\n',
            "        total += int(digits)\n",
            "A number without unit is taken\n\n`parse('1h2')` gives 3602. Nobody said seconds; "
            "a number without unit should raise ValueError.",
        ),
        Bug(
            "state",
            "read.py",
            '            digits = ""\n',
            "",
            "Only the first unit is read right\n\n`1h30m` gives far more than 5400 seconds. "
            "With a single unit all is well.",
        ),
        Bug(
            "argument",
            "read.py",
            "max(texts, key=parse)",
            "max(texts, key=len)",
            "The longest text wins instead of the longest duration\n\n"
            "`longest(['1h', '100s'])` gives 100s. It should be the one that lasts longest.",
        ),
        Bug(
            "missing case",
            "write.py",
            'sign + "".join(found[:parts]) if found else "0s"',
            'sign + "".join(found[:parts])',
            "Zero is written as nothing\n\n`written(0)` is an empty text. It should be `0s`.",
        ),
        Bug(
            "arithmetic",
            "write.py",
            "(seconds + size // 2) // size",
            "seconds // size",
            "Rounding goes down always\n\n`rounded(90)` should be 2, since half a unit counts as "
            "one. It is 1.",
        ),
    ),
)
