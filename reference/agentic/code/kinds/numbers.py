"""Problems on whole numbers."""

from __future__ import annotations

from random import Random

from reference.agentic.code.kind import Arguments, Kind


def _two(draw: Random) -> Arguments:
    shared = draw.randint(1, 12)
    return shared * draw.randint(1, 60), shared * draw.randint(1, 60)


KINDS = (
    Kind(
        "digit_sum",
        1,
        ("numbers", "digits"),
        "(number: int) -> int",
        "Return the sum of the digits of a whole number in base $base. The sign does not count.",
        """    number, total = abs(number), 0
    while number > 0:
        total += number % $base
        number //= $base
    return total
""",
        lambda draw: (draw.randint(-(10**6), 10**6),),
        ((0,), (-15,), (9,), (100,)),
        (("abs(number)", "number"), ("number > 0", "number > 9"), ("total +=", "total =")),
        {"base": (10, 2, 8, 16)},
    ),
    Kind(
        "sum_of_multiples",
        1,
        ("numbers",),
        "(limit: int) -> int",
        "Return the sum of all positive whole numbers below `limit` that are divisible by $a or by"
        " $b. A number that is divisible by both counts once.",
        """    return sum(n for n in range(1, limit) if n % $a == 0 or n % $b == 0)
""",
        lambda draw: (draw.randint(0, 400),),
        ((0,), (1,), (4,), (16,), (36,), (85,)),
        (("limit)", "limit + 1)"), (" or ", " and "), ("n % $b == 0", "False")),
        {"a": (3, 4), "b": (5, 7)},
    ),
    Kind(
        "greatest_divisor",
        2,
        ("numbers", "divisors"),
        "(a: int, b: int) -> int",
        "Return the greatest whole number that divides both `a` and `b`, which are positive.",
        """    while b:
        a, b = b, a % b
    return a
""",
        _two,
        ((1, 1), (12, 18), (18, 12), (7, 13), (5, 5)),
        (("return a", "return max(a, 2)"), ("while b:", "if b:"), ("a % b", "0")),
    ),
    Kind(
        "count_primes",
        2,
        ("numbers", "primes"),
        "(limit: int) -> int",
        "Return how many primes are smaller than `limit`.",
        """    found = []
    for n in range(2, limit):
        if all(n % p for p in found if p * p <= n):
            found.append(n)
    return len(found)
""",
        lambda draw: (draw.randint(0, 600),),
        ((0,), (2,), (3,), (4,), (5,), (10,), (26,), (50,)),
        (("p * p <= n", "p * p < n"), ("range(2, limit)", "range(2, limit + 1)"), ("(2,", "(1,")),
    ),
    Kind(
        "prime_factors",
        2,
        ("numbers", "primes"),
        "(number: int) -> list[int]",
        "Return the prime factors of a positive whole number in rising order, each as often as it "
        "divides the number; an empty list for 1.",
        """    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    if number > 1:
        found.append(number)
    return found
""",
        lambda draw: (draw.randint(1, 5000),),
        ((1,), (2,), (4,), (97,), (64,), (49,), (12,)),
        (
            ("while number % divisor == 0", "if number % divisor == 0"),
            ("number > 1", "number > 2"),
            ("divisor <= number", "divisor < number"),
        ),
    ),
    Kind(
        "halving_steps",
        1,
        ("numbers", "sequences"),
        "(number: int) -> int",
        "Start with a positive whole number. While it is not 1, halve it if it is even, and "
        "otherwise multiply it by 3 and add 1. Return how many steps that takes.",
        """    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps
""",
        lambda draw: (draw.randint(1, 300),),
        ((1,), (2,), (3,), (27,)),
        (("steps = 0", "steps = 1"), ("steps += 1", "steps += number % 2"), ("!= 1", "> 2")),
    ),
    Kind(
        "to_base",
        2,
        ("numbers", "digits"),
        "(number: int) -> str",
        "Write a whole number in base $base, with the digits 0 to 9 and then a, b, c, ...; a "
        "negative number begins with `-`.",
        """    if number == 0:
        return "0"
    sign, number, digits = "-" if number < 0 else "", abs(number), ""
    while number:
        digits = "0123456789abcdef"[number % $base] + digits
        number //= $base
    return sign + digits
""",
        lambda draw: (draw.randint(-5000, 5000),),
        ((0,), (-1,), (16,), (255,), (-256,)),
        (('return "0"', 'return ""'), ("sign + digits", "digits"), ("] + digits", "]")),
        {"base": (2, 3, 7, 16)},
    ),
    Kind(
        "perfect_numbers",
        3,
        ("numbers", "divisors"),
        "(first: int, last: int) -> list[int]",
        "Return, in rising order, the whole numbers from `first` to `last`, both included, whose "
        "divisors other than themselves have a sum that is $word than the number. 1 has the "
        "sum 0.",
        """    found = []
    for number in range(max(1, first), last + 1):
        total = sum(d for d in range(1, number // 2 + 1) if number % d == 0)
        if total $sign number:
            found.append(number)
    return found
""",
        lambda draw: ((low := draw.randint(1, 120)), low + draw.randint(0, 40)),
        ((1, 1), (1, 30), (12, 12), (13, 12), (0, 6)),
        (("last + 1", "last"), ("// 2 + 1", "// 2"), ("total $sign number", "total >= number")),
        {"word": ("greater",), "sign": (">",)},
    ),
)
