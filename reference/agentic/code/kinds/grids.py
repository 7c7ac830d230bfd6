"""Problems on grids, graphs and ways of choosing."""

from __future__ import annotations

from random import Random

from reference.agentic.code.kind import Arguments, Kind


def _grid(draw: Random, low: int = 0, high: int = 9) -> list[list[int]]:
    wide = draw.randint(1, 5)
    return [[draw.randint(low, high) for _ in range(wide)] for _ in range(draw.randint(1, 5))]


def _land(draw: Random) -> Arguments:
    return ([[int(one > 4) for one in row] for row in _grid(draw)],)


def _graph(draw: Random) -> tuple[int, list[list[int]]]:
    count = draw.randint(2, 7)
    edges = [draw.sample(range(count), 2) for _ in range(draw.randint(0, 9))]
    return count, edges


def _way(draw: Random) -> Arguments:
    count, edges = _graph(draw)
    return count, edges, 0, count - 1


def _order(draw: Random) -> Arguments:
    count, edges = _graph(draw)
    forward = [sorted(one) for one in edges]
    return count, [one[::-1] for one in forward] if draw.random() < 0.5 else edges


def _coins(draw: Random) -> Arguments:
    return draw.sample(range(2, 9), draw.randint(1, 3)), draw.randint(0, 24)


def _sack(draw: Random) -> Arguments:
    items = [[draw.randint(1, 7), draw.randint(1, 9)] for _ in range(draw.randint(0, 6))]
    return items, draw.randint(0, 15)


KINDS = (
    Kind(
        "transpose",
        1,
        ("grids",),
        "(grid: list[list[int]]) -> list[list[int]]",
        "Return the grid turned by a quarter $side. All rows have the same length; an empty grid "
        "stays empty.",
        """    return [list(row) for row in zip(*grid[::-1])]
""",
        lambda draw: (_grid(draw),),
        (([],), ([[1]],), ([[1, 2, 3]],), ([[1, 2], [3, 4]],)),
        (("grid[::-1]", "grid"), ("list(row)", "list(row)[::-1]")),
        {"side": ("clockwise",)},
    ),
    Kind(
        "spiral",
        3,
        ("grids",),
        "(grid: list[list[int]]) -> list[int]",
        "Return the numbers of a grid along a spiral: the first row from left to right, down the "
        "last column, back along the last row, up the first column, and so on inwards.",
        """    found = []
    while grid:
        found += grid[0]
        grid = [list(row) for row in zip(*grid[1:])][::-1]
    return found
""",
        lambda draw: (_grid(draw),),
        (([],), ([[1]],), ([[1, 2], [3, 4]],), ([[1], [2], [3]],), ([[1, 2, 3], [4, 5, 6]],)),
        (("[::-1]", ""), ("found += grid[0]", "found += grid[0][::-1]"), ("while", "if")),
    ),
    Kind(
        "count_islands",
        3,
        ("grids", "search"),
        "(grid: list[list[int]]) -> int",
        "1 is land and 0 is water. Return how many pieces of land there are, where land is joined "
        "to land $where.",
        """    land = {(y, x) for y, row in enumerate(grid) for x, one in enumerate(row) if one}
    count = 0
    while land:
        count, waiting = count + 1, [land.pop()]
        while waiting:
            y, x = waiting.pop()
            for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                near = (y + step[0], x + step[1])
                if near in land:
                    land.remove(near)
                    waiting.append(near)
    return count
""",
        _land,
        (
            ([],),
            ([[0]],),
            ([[1]],),
            ([[1, 0], [0, 1]],),
            ([[1, 1], [1, 1]],),
            ([[1, 0, 1]],),
            ([[1, 1, 1], [1, 0, 1], [1, 1, 1]],),
        ),
        (
            ("((1, 0), (-1, 0), (0, 1), (0, -1))", "((1, 0), (0, 1), (-1, 0))"),
            ("(0, -1))", "(0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))"),
            ("count, waiting = count + 1", "count, waiting = count + len(land) % 2"),
        ),
        {"where": ("above, below, left and right of it",)},
    ),
    Kind(
        "cheapest_path",
        3,
        ("grids", "dynamic programming"),
        "(grid: list[list[int]]) -> int",
        "Go from the top left to the bottom right of a grid, each step to the right or down. "
        "Return the smallest sum of the numbers on the way, both ends included.",
        """    row = [0] + [10**9] * (len(grid[0]) - 1)
    for line in grid:
        for x, cost in enumerate(line):
            row[x] = cost + (min(row[x], row[x - 1]) if x else row[x])
    return row[-1]
""",
        lambda draw: (_grid(draw),),
        (([[3]],), ([[1, 2, 3]],), ([[1], [2]],), ([[1, 9], [1, 1]],), ([[1, 1], [9, 1]],)),
        (
            ("min(row[x], row[x - 1])", "max(row[x], row[x - 1])"),
            ("min(row[x], row[x - 1])", "row[x - 1]"),
            ("cost + (", "("),
        ),
    ),
    Kind(
        "fewest_steps",
        3,
        ("graphs", "search"),
        "(count: int, edges: list[list[int]], start: int, end: int) -> int",
        "A graph has nodes from 0 to count - 1 and edges that can be gone both ways. Return the "
        "smallest number of edges from `start` to `end`, or -1 where there is no way.",
        """    steps, front = {start: 0}, [start]
    for here in front:
        for a, b in edges:
            for one, other in ((a, b), (b, a)):
                if one == here and other not in steps:
                    steps[other] = steps[here] + 1
                    front.append(other)
    return steps.get(end, -1)
""",
        _way,
        (
            (2, [], 0, 1),
            (1, [], 0, 0),
            (3, [[0, 1], [1, 2]], 0, 2),
            (3, [[1, 0], [2, 1]], 0, 2),
            (4, [[0, 1], [1, 2], [0, 2], [2, 3]], 0, 3),
        ),
        (
            ("((a, b), (b, a))", "((a, b),)"),
            ("steps.get(end, -1)", "steps.get(end, 0)"),
            ("steps[here] + 1", "len(steps)"),
        ),
    ),
    Kind(
        "has_cycle",
        4,
        ("graphs",),
        "(count: int, edges: list[list[int]]) -> bool",
        "A graph has nodes from 0 to count - 1; an edge [a, b] can be gone from a to b only. "
        "Return whether one can leave a node and come back to it.",
        """    left, edges = set(range(count)), [tuple(one) for one in edges]
    while left:
        free = {node for node in left if not any(b == node for a, b in edges if a in left)}
        if not free:
            return True
        left -= free
    return False
""",
        _order,
        (
            (1, []),
            (1, [[0, 0]]),
            (2, [[0, 1], [1, 0]]),
            (3, [[0, 1], [0, 2], [1, 2]]),
            (4, [[3, 2], [2, 1], [1, 3]]),
            (3, [[0, 1], [1, 2], [2, 0]]),
        ),
        (("return True", "return len(left) > 2"), (" if a in left", " if a in left and a < b")),
    ),
    Kind(
        "component_sizes",
        3,
        ("graphs",),
        "(count: int, edges: list[list[int]]) -> list[int]",
        "A graph has nodes from 0 to count - 1 and edges that can be gone both ways. Return the "
        "sizes of its connected parts, the largest first.",
        """    part = list(range(count))
    for a, b in edges:
        old, new = part[a], part[b]
        part = [new if one == old else one for one in part]
    return sorted((part.count(one) for one in set(part)), reverse=True)
""",
        _graph,
        ((1, []), (3, []), (3, [[0, 1]]), (4, [[0, 1], [2, 3], [1, 2]]), (2, [[1, 0]])),
        (
            (", reverse=True", ""),
            (
                "new if one == old else one for one in part",
                "new if at == a else one for at, one in enumerate(part)",
            ),
        ),
    ),
    Kind(
        "fewest_coins",
        4,
        ("dynamic programming",),
        "(coins: list[int], amount: int) -> int",
        "Each coin may be used as often as one likes. Return the smallest number of coins with "
        "the sum `amount`, or -1 where there is none.",
        """    best = [0] + [None] * amount
    for total in range(1, amount + 1):
        ways = [best[total - one] for one in coins if one <= total]
        known = [one for one in ways if one is not None]
        best[total] = min(known) + 1 if known else None
    return -1 if best[amount] is None else best[amount]
""",
        _coins,
        (([2], 0), ([2], 3), ([5], 5), ([4, 3, 1], 6), ([7, 5], 24), ([6, 4], 8), ([5, 4], 8)),
        (("min(known)", "max(known)"), ("one <= total", "one < total"), ("return -1", "return 0")),
    ),
    Kind(
        "ways_to_climb",
        2,
        ("dynamic programming", "counting"),
        "(steps: int) -> int",
        "Stairs have so many steps, and one takes 1 to $most of them at a time. Return in how many "
        "ways the stairs can be climbed; no steps are climbed in one way.",
        """    ways = [1]
    for _ in range(steps):
        ways.append(sum(ways[-$most:]))
    return ways[steps]
""",
        lambda draw: (draw.randint(0, 24),),
        ((0,), (1,), (2,), (3,), (4,), (5,)),
        (
            ("ways = [1]", "ways = [2]"),
            ("ways[-$most:]", "ways[-$most - 1:]"),
            ("ways[-$most:]", "ways[-1:]"),
        ),
        {"most": (2, 3, 4)},
    ),
    Kind(
        "best_load",
        5,
        ("dynamic programming",),
        "(items: list[list[int]], room: int) -> int",
        "Each item is a list of its weight and its value, and can be taken once. Return the "
        "largest value of items that together weigh at most `room`.",
        """    best = [0] * (room + 1)
    for weight, value in items:
        for full in range(room, weight - 1, -1):
            best[full] = max(best[full], best[full - weight] + value)
    return best[room]
""",
        _sack,
        (([], 5), ([[3, 4]], 2), ([[3, 4]], 3), ([[2, 3]], 6), ([[1, 1], [3, 5], [2, 4]], 4)),
        (
            ("range(room, weight - 1, -1)", "range(weight, room + 1)"),
            ("weight - 1, -1", "weight, -1"),
            ("max(best[full], best[full - weight] + value)", "best[full - weight] + value"),
        ),
    ),
    Kind(
        "count_queens",
        5,
        ("search", "backtracking"),
        "(size: int) -> int",
        "Return in how many ways `size` queens can stand on a board of size x size fields so that "
        "none attacks another: no two in a row, a column or a diagonal.",
        """    def place(rows):
        if len(rows) == size:
            return 1
        return sum(
            place([*rows, x])
            for x in range(size)
            if all(x != y and abs(x - y) != len(rows) - at for at, y in enumerate(rows))
        )
    return place([])
""",
        lambda draw: (draw.randint(1, 7),),
        ((0,), (1,), (4,), (6,)),
        (("return 1", "return size"), ("x != y and ", ""), ("len(rows) - at", "1")),
    ),
    Kind(
        "subset_sums",
        5,
        ("search", "backtracking"),
        "(numbers: list[int], target: int) -> list[list[int]]",
        "Return all ways to choose different positive whole numbers of a list with the sum "
        "`target`: each a list in rising order, all in rising order of lists. The numbers of the "
        "list differ; a target of 0 has one way, the empty list.",
        """    found = [[]]
    for number in sorted(numbers):
        found += [[*one, number] for one in found if sum(one) + number <= target]
    return sorted(one for one in found if sum(one) == target)
""",
        lambda draw: (draw.sample(range(1, 13), draw.randint(0, 7)), draw.randint(0, 18)),
        (([], 0), ([], 3), ([3], 3), ([4, 1, 3], 4), ([1, 2, 3, 4, 5], 6), ([9], 2), ([3, 1], 4)),
        (
            ("+ number <= target", "+ number < target"),
            ("sorted(numbers)", "numbers"),
            ("sorted(one for", "list(one for"),
        ),
    ),
)
