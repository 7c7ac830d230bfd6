"""Rooms that are booked by the hour."""

from reference.agentic.software.project import Bug, Project

_ROOMS = '''"""Bookings of rooms; hours are whole numbers, and the end is not included."""

from $package.spans import gaps, overlap

OPEN, CLOSE = $open, $close


class Rooms:
    """Bookings by room: start, end, who."""

    def __init__(self, names):
        self.bookings = {name: [] for name in names}

    def book(self, room, start, end, who):
        """Book a room, or raise ValueError where that cannot be."""
        if room not in self.bookings:
            raise KeyError(room)
        if not OPEN <= start < end <= CLOSE:
            raise ValueError("outside opening hours")
        if any(overlap((start, end), one[:2]) for one in self.bookings[room]):
            raise ValueError("taken")
        self.bookings[room].append((start, end, who))
        self.bookings[room].sort()

    def cancel(self, room, start, who):
        """Take a booking back; only who made it may. Returns whether there was one."""
        for one in self.bookings[room]:
            if one[0] == start and one[2] == who:
                self.bookings[room].remove(one)
                return True
        return False

    def free(self, room):
        """The free spans of a room while it is open."""
        return gaps([one[:2] for one in self.bookings[room]], OPEN, CLOSE)

    def free_rooms(self, start, end):
        """Names of the rooms that are free for all of that time, sorted."""
        return sorted(
            name
            for name, taken in self.bookings.items()
            if not any(overlap((start, end), one[:2]) for one in taken)
        )

    def hours(self, who):
        """How many hours somebody has booked in all rooms."""
        every = [one for taken in self.bookings.values() for one in taken]
        return sum(end - start for start, end, name in every if name == who)
'''
_SPANS = '''"""Spans of time: start, and end, which is not included."""


def overlap(left, right):
    """Whether two spans share any time."""
    return left[0] < right[1] and right[0] < left[1]


def gaps(taken, first, last):
    """The spans between first and last that none of the taken ones covers."""
    found, at = [], first
    for start, end in sorted(taken):
        if start > at:
            found.append((at, start))
        at = max(at, end)
    if at < last:
        found.append((at, last))
    return found
'''
_TESTS = """import unittest

from $package.rooms import Rooms
from $package.spans import gaps, overlap


class RoomsTest(unittest.TestCase):
    def setUp(self):
        self.rooms = Rooms(["blue", "red"])

    def test_a_taken_room_cannot_be_booked(self):
        self.rooms.book("blue", 10, 12, "ann")
        with self.assertRaises(ValueError):
            self.rooms.book("blue", 10, 12, "bob")

    def test_hours_add_up(self):
        self.rooms.book("blue", 10, 12, "ann")
        self.rooms.book("blue", 13, 14, "ann")
        self.assertEqual(self.rooms.hours("ann"), 3)

    def test_spans(self):
        self.assertTrue(overlap((1, 4), (2, 3)))
        self.assertEqual(gaps([(3, 4)], 1, 6), [(1, 3), (4, 6)])


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = (
    "from $package.rooms import Rooms\nfrom $package.spans import gaps, overlap\n"
    "r = Rooms(['blue', 'red'])\n"
)
PROJECT = Project(
    "booking",
    "Rooms that are booked by the hour.",
    {
        "package": ("rooms_app", "booking", "reserve"),
        "open": ("7", "8", "9"),
        "close": ("18", "20", "22"),
    },
    {"rooms.py": _ROOMS, "spans.py": _SPANS},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "r.book('blue', 10, 12, 'a')\nr.book('blue', 12, 13, 'b')\nresult = r.bookings",
            "r.book('blue', 10, 12, 'a')\nr.book('blue', 11, 13, 'b')",
            "r.book('blue', 10, 14, 'a')\nr.book('blue', 11, 12, 'b')",
            "r.book('blue', $open, $close, 'a')\nresult = [r.free('blue'), r.free('red')]",
            "r.book('blue', $open - 1, 12, 'a')",
            "r.book('blue', 12, 12, 'a')",
            "r.book('green', 12, 13, 'a')",
            "r.book('blue', 10, 11, 'a')\nresult = [r.cancel('blue', 10, 'b'), r.hours('a')]",
            "r.book('blue', 10, 11, 'a')\nresult = [r.cancel('blue', 10, 'a'), r.free('blue')]",
            "r.book('red', 10, 12, 'a')\nresult = [r.free_rooms(9, 11), r.free_rooms(12, 13)]",
            "r.book('blue', 10, 12, 'a')\nr.book('red', 14, 15, 'a')\nresult = r.hours('a')",
            "r.book('blue', 14, 15, 'a')\nr.book('blue', 10, 11, 'b')\nresult = r.free('blue')",
            "result = [gaps([(1, 9), (2, 3)], 0, 10), gaps([], 1, 2), gaps([(0, 4)], 0, 4)]",
            "result = [overlap((1, 2), (2, 3)), overlap((2, 3), (1, 2)), overlap((1, 3), (2, 4))]",
        )
    ),
    (
        Bug(
            "boundary",
            "spans.py",
            "left[0] < right[1] and",
            "left[0] <= right[1] and",
            "Cannot book right after somebody else\n\nA room is taken from 10 to 12. Booking it "
            "from 12 to 13 says that it is taken, although the end does not count.",
        ),
        Bug(
            "condition",
            "rooms.py",
            "one[0] == start and one[2] == who",
            "one[0] == start",
            "Others can cancel my booking\n\nSomebody else cancelled my meeting by its start. "
            "Only who made a booking may take it back; for others nothing should happen.",
        ),
        Bug(
            "state",
            "rooms.py",
            "{name: [] for name in names}",
            "dict.fromkeys(names, [])",
            "Booking one room takes all rooms\n\nAfter a booking of one room, the other rooms "
            "have the same booking, and nobody can use them.",
        ),
        Bug(
            "argument",
            "rooms.py",
            "OPEN, CLOSE)\n\n    def free_rooms",
            "CLOSE, OPEN)\n\n    def free_rooms",
            "A new room shows no free time\n\nAsking for the free spans of a room without "
            "bookings gives an empty list. It should be the whole day from $open to $close.",
        ),
        Bug(
            "missing case",
            "spans.py",
            "max(at, end)",
            "end",
            "Spans inside of others confuse the gaps\n\nWith one span from 1 to 9 and one from 2 "
            "to 3 inside of it, the time from 3 to 9 is said to be free.",
        ),
        Bug(
            "arithmetic",
            "rooms.py",
            "sum(end - start for",
            "sum(1 for",
            "Hours count bookings\n\nI booked two hours in one room and one hour in another. My "
            "hours are said to be 2 instead of 3.",
        ),
    ),
)
