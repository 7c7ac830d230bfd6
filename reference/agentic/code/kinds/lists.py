"""Problems on lists of numbers."""

from __future__ import annotations

from random import Random

from reference.agentic.code.kind import Arguments, Kind


def _numbers(draw: Random, most: int = 12, low: int = -9, high: int = 9) -> list[int]:
    return [draw.randint(low, high) for _ in range(draw.randint(0, most))]


def _one(draw: Random) -> Arguments:
    return (_numbers(draw),)


def _with_target(draw: Random) -> Arguments:
    return _numbers(draw), draw.randint(-8, 8)


def _sorted_pair(draw: Random) -> Arguments:
    return sorted(_numbers(draw)), sorted(_numbers(draw))


def _spans(draw: Random) -> Arguments:
    starts = [draw.randint(0, 30) for _ in range(draw.randint(0, 7))]
    return ([[start, start + draw.randint(0, 6)] for start in starts],)


KINDS = (
    Kind(
        "second_largest",
        1,
        ("lists",),
        "(numbers: list[int]) -> int | None",
        "Return the second largest of the different values in a list, or None where there are "
        "fewer than two different values.",
        """    values = sorted(set(numbers))
    return values[-2] if len(values) >= 2 else None
""",
        _one,
        (([],), ([5],), ([5, 5],), ([5, 5, 4],), ([-1, -2],)),
        (("sorted(set(numbers))", "sorted(numbers)"), ("[-2]", "[-1]"), (">= 2", "> 2")),
    ),
    Kind(
        "count_pairs",
        2,
        ("lists", "counting"),
        "(numbers: list[int], target: int) -> int",
        "Return how many pairs of places i < j there are in a list whose two numbers have the sum "
        "`target`.",
        """    seen, total = {}, 0
    for number in numbers:
        total += seen.get(target - number, 0)
        seen[number] = seen.get(number, 0) + 1
    return total
""",
        lambda draw: (_numbers(draw, low=-3, high=4), draw.randint(-2, 3)),
        (([], 0), ([0, 0, 0], 0), ([1, 2], 3), ([2], 4), ([1, 1, 1, 1], 2)),
        (
            ("target - number, 0", "number - target, 0"),
            ("seen.get(number, 0) + 1", "1"),
            ("total = {}, 0", "total = {target // 2: 1}, 0"),
        ),
    ),
    Kind(
        "rotate",
        1,
        ("lists",),
        "(numbers: list[int], places: int) -> list[int]",
        "Return the list turned by so many places to the $side: what leaves it at one end comes "
        "back at the other. `places` may be negative, which turns the other way, and larger than "
        "the list.",
        """    if not numbers:
        return []
    at = $sign places % len(numbers)
    return numbers[at:] + numbers[:at]
""",
        _with_target,
        (([], 3), ([1, 2, 3], 0), ([1, 2, 3], 1), ([1, 2, 3, 4], -1), ([1, 2], 5), ([1, 2, 3], 7)),
        (("$sign places", "places + 1 $sign"), ("numbers[:at]", "numbers[:at][::-1]")),
        {"side": ("right",), "sign": ("-",)},
    ),
    Kind(
        "running_maximum",
        1,
        ("lists",),
        "(numbers: list[int]) -> list[int]",
        "Return a list of the same length: at each place the largest of the numbers up to there.",
        """    found = []
    for number in numbers:
        found.append(max(found[-1], number) if found else number)
    return found
""",
        _one,
        (([],), ([-5],), ([-5, -7, -3],), ([3, 1, 2],)),
        (("if found else number", "if found else max(0, number)"), ("max(found", "min(found")),
    ),
    Kind(
        "best_sum",
        3,
        ("lists", "dynamic programming"),
        "(numbers: list[int]) -> int",
        "Return the largest sum of consecutive numbers of a list. At least one number must be "
        "taken; an empty list has the sum 0.",
        """    if not numbers:
        return 0
    best = here = numbers[0]
    for number in numbers[1:]:
        here = max(number, here + number)
        best = max(best, here)
    return best
""",
        _one,
        (([],), ([-3],), ([-3, -1, -2],), ([2, -1, 3],), ([4, -5, 3],), ([1, 2, 3],)),
        (
            ("max(number, here + number)", "max(0, here + number)"),
            ("max(number, here + number)", "here + number"),
            ("return best", "return here"),
            ("here = numbers[0]", "here = 0"),
        ),
    ),
    Kind(
        "merge_sorted",
        2,
        ("lists", "sorting"),
        "(left: list[int], right: list[int]) -> list[int]",
        "Both lists are sorted. Return one sorted list of the values that are in $which; each "
        "value once.",
        """    return sorted(set(left) $sign set(right))
""",
        _sorted_pair,
        (([], []), ([1], []), ([1, 1, 2], [1]), ([-2, 3], [-2, 4]), ([1, 2], [1, 2])),
        (("sorted(set(left) $sign set(right))", "sorted(set(left))"), ("$sign", "-")),
        {"which": ("at least one of them",), "sign": ("|",)},
    ),
    Kind(
        "merge_spans",
        3,
        ("lists", "intervals"),
        "(spans: list[list[int]]) -> list[list[int]]",
        "Each span is a list of its start and its end, both included. Join spans that overlap or "
        "share an end point, and return the spans that result in rising order.",
        """    found = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found
""",
        _spans,
        (([],), ([[1, 2]],), ([[1, 2], [2, 3]],), ([[1, 9], [2, 3]],), ([[5, 6], [1, 2]],)),
        (
            ("start <= found", "start < found"),
            ("max(found[-1][1], end)", "end"),
            ("sorted(spans)", "spans"),
        ),
    ),
    Kind(
        "missing_number",
        2,
        ("lists", "sets"),
        "(numbers: list[int]) -> int",
        "Return the smallest whole number that is at least $low and not in the list.",
        """    have, number = set(numbers), $low
    while number in have:
        number += 1
    return number
""",
        lambda draw: (draw.sample(range(-2, 14), draw.randint(0, 15)),),
        (([],), ([0],), ([1],), ([0, 1, 2, 3],), ([2, 1],), ([-1, 5],), ([3, 2, 4, 1],)),
        (("number = set(numbers), $low", "number = set(numbers), $low + 1"), ("while", "if")),
        {"low": (0, 1, 2)},
    ),
    Kind(
        "longest_rise",
        4,
        ("lists", "dynamic programming"),
        "(numbers: list[int]) -> int",
        "Return the length of the longest strictly rising sequence that is left when any numbers "
        "of the list are taken out.",
        """    from bisect import bisect_left
    tails = []
    for number in numbers:
        at = bisect_left(tails, number)
        tails[at:at + 1] = [number]
    return len(tails)
""",
        _one,
        (([],), ([1],), ([2, 2, 2],), ([3, 2, 1],), ([1, 5, 2, 3],), ([1, 2, 2, 3],)),
        (
            ("bisect_left\n", "bisect_right as bisect_left\n"),
            ("return len(tails)", "return max(len(tails), 1)"),
            ("tails[at:at + 1] = [number]", "tails[at:] = [number]"),
        ),
    ),
    Kind(
        "water_held",
        4,
        ("lists", "two pointers"),
        "(heights: list[int]) -> int",
        "Columns of these heights, one wide, stand side by side in the rain. Return how many unit "
        "squares of water stay between them.",
        """    total = 0
    for at, height in enumerate(heights):
        level = min(max(heights[:at + 1]), max(heights[at:]))
        total += level - height
    return total
""",
        lambda draw: (_numbers(draw, low=0),),
        (([],), ([3],), ([3, 0, 3],), ([1, 2, 3],), ([5, 1, 2, 1, 4],), ([0, 4, 1, 2],)),
        (("min(max", "max(max"), ("total += level", "total = level"), ("heights[at:]", "heights")),
    ),
)
