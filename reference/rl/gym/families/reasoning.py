"""Data sets of reasoning-gym (github.com/open-thought/reasoning-gym, Apache-2.0), each a maker of
tasks with a scorer of its own; the package is optional (`pip install 'twin[gym]'`).

Right is what its scorer gives 1 for, and is not much longer than its own answer: some scorers look
for the answer anywhere in a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, asked
from reference.rl.gym.family import Family, Item
from twin.errors import Problem, UsageError

_SUM: Final = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
_SETS: Final[tuple[Mapping[str, Mapping[str, Any]], ...]] = (
    {"chain_sum": _SUM},
    {"chain_sum": {**_SUM, "max_digits": 2}, "spell_backward": {"max_word_len": 5}},
    {"gcd": {}, "lcm": {}, "letter_counting": {}, "base_conversion": {}, "count_bits": {}},
    {
        "simple_equations": {},
        "family_relationships": {},
        "products": {},
        "fraction_simplification": {},
    },
    {"count_primes": {}, "polynomial_multiplication": {}, "word_sorting": {}, "time_intervals": {}},
)
"""Data sets with their settings, by level."""


def _make(level: int, seed: int) -> Item:
    names = sorted(_SETS[level - 1])
    name = drawn("reasoning", level, seed).choice(names)
    given = _package().create_dataset(name, size=1, seed=seed, **_SETS[level - 1][name])
    entry = given[0]
    answer = str(entry["answer"])
    hacks = {
        "many numbers": " ".join(map(str, range(-20, 100))),
        "the answer among others": f"0 1 2 {answer} or not, who knows, take any of these that fits",
    }
    return asked(entry["question"], _check(given, entry, answer), answer, (name,), hacks)


def _check(given: Any, entry: Mapping[str, Any], answer: str) -> Check:
    def judge(text: str) -> Mapping[str, bool]:
        short = len(text) <= 2 * len(answer) + 16
        return {"right": short and given.score_answer(text, entry) >= 1.0}

    return judge


def _package() -> Any:
    try:
        return import_module("reasoning_gym")
    except ImportError:
        message = "the family `reasoning` needs the package reasoning-gym"
        fix = "`pip install reasoning-gym`, or take the other families"
        raise UsageError([Problem("TW651", "tasks.source", message, fix)]) from None


FAMILY = Family(
    "reasoning",
    "data sets of reasoning-gym",
    (
        "sums of two digits",
        "sums of short numbers, words backwards",
        "divisors, multiples, letters, bases",
        "equations, families, products, fractions",
        "primes, polynomials, sorting, times",
    ),
    _make,
)
