"""A shopping cart with discounts and shipping."""

from reference.agentic.software.project import Bug, Project

_CART = '''"""What a customer wants to buy; prices are in cents."""

from $package.prices import discounted, shipping


class Cart:
    """Lines by name: price of one, and how many."""

    def __init__(self, lines=None):
        self.lines = dict(lines or {})

    def add(self, name, price, count=1):
        """Put so many more of a thing into the cart."""
        if count < 1:
            raise ValueError("count must be at least 1")
        old = self.lines.get(name, (price, 0))[1]
        self.lines[name] = (price, old + count)

    def remove(self, name, count=1):
        """Take so many out again; a line of none goes away."""
        if name not in self.lines:
            raise KeyError(name)
        price, old = self.lines[name]
        if count >= old:
            del self.lines[name]
        else:
            self.lines[name] = (price, old - count)

    def count(self):
        """How many things there are."""
        return sum(count for _, count in self.lines.values())

    def subtotal(self):
        """What the things cost, with discounts for many of a kind."""
        return sum(discounted(price, count) for price, count in self.lines.values())

    def total(self):
        """What is paid, with shipping."""
        return self.subtotal() + shipping(self.subtotal(), self.count())
'''
_PRICES = '''"""Rules for prices, in cents."""

MANY = $many
OFF_PERCENT = $off
FREE_FROM = 5000
FIRST, EACH_MORE = 400, 50


def discounted(price, count):
    """The price of so many: from MANY on, each costs OFF_PERCENT less, rounded down."""
    whole = price * count
    if count >= MANY:
        return whole - whole * OFF_PERCENT // 100
    return whole


def shipping(subtotal, count):
    """Nothing for an empty cart, nor from FREE_FROM on; otherwise by the number of things."""
    if count == 0 or subtotal >= FREE_FROM:
        return 0
    return FIRST + EACH_MORE * (count - 1)
'''
_TESTS = """import unittest

from $package.cart import Cart
from $package.prices import shipping


class CartTest(unittest.TestCase):
    def test_one_thing(self):
        cart = Cart()
        cart.add("pen", 120)
        self.assertEqual(cart.count(), 1)
        self.assertEqual(cart.total(), 120 + 400)

    def test_removed_things_go(self):
        cart = Cart()
        cart.add("pen", 120, 3)
        cart.remove("pen", 3)
        self.assertEqual(cart.lines, {})

    def test_shipping_is_free_for_large_orders(self):
        self.assertEqual(shipping(9000, 2), 0)


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = "from $package.cart import Cart\nfrom $package import prices\nc = Cart()\n"
PROJECT = Project(
    "cart",
    "A shopping cart.",
    {"package": ("shop", "store", "basket"), "many": ("10", "6", "12"), "off": ("5", "10", "15")},
    {"cart.py": _CART, "prices.py": _PRICES},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "c.add('a', 100)\nc.add('a', 100, 2)\nresult = [c.lines, c.count(), c.total()]",
            "c.add('a', 70, $many)\nresult = c.subtotal()",
            "c.add('a', 70, $many - 1)\nresult = c.subtotal()",
            "c.add('a', 10, 3)\nc.remove('a')\nresult = c.lines",
            "c.add('a', 10, 2)\nc.remove('a', 2)\nresult = [c.lines, c.total()]",
            "c.add('a', 10)\nc.remove('b')",
            "c.add('a', 10, 0)",
            "result = [c.total(), prices.shipping(0, 0)]",
            "result = [prices.shipping(4999, 3), prices.shipping(5000, 3), prices.shipping(1, 1)]",
            "result = [prices.discounted(33, $many + 5), prices.discounted(33, 1)]",
            "lines = {'a': (10, 1)}\nd = Cart(lines)\nd.add('b', 5)\nresult = [lines, d.count()]",
            "c.add('a', 300, 2)\nc.add('b', 500)\nresult = [c.subtotal(), c.total()]",
        )
    ),
    (
        Bug(
            "boundary",
            "prices.py",
            "count >= MANY",
            "count > MANY",
            "No discount for exactly $many things\n\nI ordered $many of the same thing. The rules "
            "say that the discount holds from $many on, but I paid the whole price. One more, and "
            "it is there.",
        ),
        Bug(
            "condition",
            "prices.py",
            "count == 0 or subtotal >= FREE_FROM",
            "subtotal >= FREE_FROM",
            "An empty cart is charged for shipping\n\nThe total of a new cart is 350 cents. "
            "Nothing is sent, so it should be 0.",
        ),
        Bug(
            "state",
            "cart.py",
            "dict(lines or {})",
            "{} if lines is None else lines",
            "Adding to a cart changes my saved order\n\nI build a cart from the lines of a saved "
            "order and add something to it. Afterwards the saved order has it, too.",
        ),
        Bug(
            "argument",
            "cart.py",
            "shipping(self.subtotal(), self.count())",
            "shipping(self.count(), self.subtotal())",
            "Totals are far too high\n\nTwo things of 300 cents and one of 500 make a subtotal of "
            "1100, which is right, but the total is many times that.",
        ),
        Bug(
            "missing case",
            "cart.py",
            "        old = self.lines.get(name, (price, 0))[1]\n"
            "        self.lines[name] = (price, old + count)",
            "        self.lines[name] = (price, count)",
            "The same thing added twice is counted once\n\nI add one of a thing and later two "
            "more of it. The cart shows two instead of three.",
        ),
        Bug(
            "arithmetic",
            "prices.py",
            "whole - whole * OFF_PERCENT // 100",
            "whole - price * OFF_PERCENT // 100",
            "The discount is too small\n\nFor many things of a kind the discount should be "
            "$off percent of the whole line. It looks as if only one of them got it.",
        ),
    ),
)
