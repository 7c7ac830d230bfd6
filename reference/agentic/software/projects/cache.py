"""A store of few values, each for some time."""

from reference.agentic.software.project import Bug, Project

_CACHE = '''"""Values by key; the least recently used goes first, old ones go, too."""

from $package.clock import Clock

ROOM, LIFE = $room, $life


class Cache:
    """At most so many values, each for so many ticks of the clock."""

    def __init__(self, clock=None, room=ROOM, life=LIFE):
        if room < 1:
            raise ValueError("room must be at least 1")
        self.clock = Clock() if clock is None else clock
        self.room, self.life = room, life
        self.rows = {}
        self.hits = self.misses = 0

    def put(self, key, value):
        """Keep a value; where there is no room, the least recently used one goes."""
        self.rows.pop(key, None)
        self.expire()
        if len(self.rows) >= self.room:
            del self.rows[next(iter(self.rows))]
        self.rows[key] = (value, self.clock.now + self.life)

    def get(self, key, default=None):
        """The value, which is now the most recently used; or the default."""
        self.expire()
        if key not in self.rows:
            self.misses += 1
            return default
        self.hits += 1
        self.rows[key] = self.rows.pop(key)
        return self.rows[key][0]

    def expire(self):
        """Drop what has reached the end of its life."""
        old = [key for key, row in self.rows.items() if row[1] <= self.clock.now]
        for key in old:
            del self.rows[key]

    def keys(self):
        """Keys that are still good, the least recently used first."""
        self.expire()
        return list(self.rows)

    def hit_percent(self):
        """Share of the gets that found something, in whole percent, rounded down."""
        asked = self.hits + self.misses
        return 100 * self.hits // asked if asked else 0
'''
_CLOCK = '''"""Time in ticks."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 0

    def move(self, ticks=1):
        """Go on by so many ticks; never back."""
        if ticks < 0:
            raise ValueError("time does not go back")
        self.now += ticks
'''
_TESTS = """import unittest

from $package.cache import Cache
from $package.clock import Clock


class CacheTest(unittest.TestCase):
    def test_what_is_put_is_got(self):
        cache = Cache()
        cache.put("a", 1)
        self.assertEqual(cache.get("a"), 1)
        self.assertIsNone(cache.get("b"))

    def test_there_is_only_so_much_room(self):
        cache = Cache(room=2)
        for key in "abcd":
            cache.put(key, key)
        self.assertEqual(len(cache.keys()), 2)

    def test_old_values_go(self):
        clock = Clock()
        cache = Cache(clock, life=3)
        cache.put("a", 1)
        clock.move(10)
        self.assertEqual(cache.keys(), [])


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = (
    "from $package.cache import Cache\nfrom $package.clock import Clock\n"
    "k = Clock()\nc = Cache(k, room=3, life=5)\nfor one in 'abc': c.put(one, one * 2)\n"
)
PROJECT = Project(
    "cache",
    "A store of few values, each for some time.",
    {"package": ("memo", "keep", "cachebox"), "room": ("4", "8"), "life": ("10", "60")},
    {"cache.py": _CACHE, "clock.py": _CLOCK},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "c.put('d', 1)\nresult = c.keys()",
            "c.get('a')\nc.put('d', 1)\nresult = c.keys()",
            "c.put('a', 7)\nresult = [c.keys(), c.get('a')]",
            "c.put('c', 7)\nresult = [c.keys(), c.get('a')]",
            "k.move(4)\nresult = c.keys()",
            "k.move(5)\nresult = [c.keys(), c.get('a')]",
            "k.move(4)\nc.put('a', 1)\nk.move(2)\nresult = c.keys()",
            "result = [c.get('z'), c.get('z', 9), c.hits, c.misses]",
            "c.get('a')\nc.get('b')\nc.get('z')\nresult = c.hit_percent()",
            "result = c.hit_percent()",
            "d = Cache(k)\nd.put('x', 1)\nk.move(3)\nresult = [d.clock.now, d.room, c.keys()]",
            "d, e = Cache(), Cache()\nd.clock.move(3)\nresult = e.clock.now",
            "Cache(k, room=0)",
            "k.move(-1)",
            "k.move(2)\nk.move(2)\nresult = k.now",
        )
    ),
    (
        Bug(
            "boundary",
            "cache.py",
            "row[1] <= self.clock.now",
            "row[1] < self.clock.now",
            "Values live one tick too long\n\nA value with a life of 5 ticks is still there "
            "when 5 ticks have gone by. At that time it should be gone.",
        ),
        Bug(
            "condition",
            "cache.py",
            "        self.rows.pop(key, None)\n        self.expire()",
            "        self.expire()",
            "Putting a key again throws another one out\n\nThe cache is full and I put a new "
            "value for a key that it has. Another key disappears, and the order is not by use.",
        ),
        Bug(
            "state",
            "cache.py",
            "clock=None, room=ROOM",
            "clock=Clock(), room=ROOM",
            "Two caches share their time\n\nI make two caches without a clock and move the clock "
            "of one of them. The other one's time goes on, too.",
        ),
        Bug(
            "argument",
            "cache.py",
            "        self.rows[key] = self.rows.pop(key)\n",
            "",
            "Values in use are thrown out\n\nI get a key and put a new one into the full cache. "
            "The key that I have just used is gone, instead of the one used least recently.",
        ),
        Bug(
            "missing case",
            "cache.py",
            "100 * self.hits // asked if asked else 0",
            "100 * self.hits // asked",
            "The hit rate of a new cache fails\n\n`hit_percent` raises ZeroDivisionError when "
            "nothing was asked yet. It should be 0.",
        ),
        Bug(
            "arithmetic",
            "clock.py",
            "self.now += ticks",
            "self.now = ticks",
            "The clock does not add up\n\nMoving the clock by 2 and again by 2 leaves it at 2. "
            "Values live too long because of that.",
        ),
    ),
)
