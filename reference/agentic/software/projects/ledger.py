"""Accounts with transfers and statements."""

from reference.agentic.software.project import Bug, Project

_BANK = '''"""Accounts; amounts are whole cents."""

from $package.entries import Entry, interest

OVERDRAFT = $overdraft


class Bank:
    """Entries of all accounts, in their order."""

    def __init__(self, owners=()):
        self.entries = {owner: [] for owner in owners}

    def open(self, owner):
        """A new account, empty."""
        if owner in self.entries:
            raise ValueError("there is one already")
        self.entries[owner] = []

    def balance(self, owner):
        """What is on the account."""
        return sum(entry.amount for entry in self.entries[owner])

    def deposit(self, owner, amount, text="deposit"):
        """Put money on an account."""
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.entries[owner].append(Entry(amount, text))

    def withdraw(self, owner, amount, text="withdrawal"):
        """Take money, down to the overdraft."""
        if amount <= 0:
            raise ValueError("amount must be positive")
        if self.balance(owner) - amount < -OVERDRAFT:
            raise ValueError("not enough")
        self.entries[owner].append(Entry(-amount, text))

    def transfer(self, source, target, amount):
        """From one account to the other, or not at all."""
        if target not in self.entries:
            raise KeyError(target)
        self.withdraw(source, amount, f"to {target}")
        self.deposit(target, amount, f"from {source}")

    def statement(self, owner, last=None):
        """The lines of an account: amount, text, balance after it; only the last so many."""
        lines, total = [], 0
        for entry in self.entries[owner]:
            total += entry.amount
            lines.append((entry.amount, entry.text, total))
        if last is None:
            return lines
        return lines[-last:] if last > 0 else []

    def year_end(self):
        """Put interest on all accounts that have earned some."""
        for owner in self.entries:
            earned = interest(self.balance(owner))
            if earned > 0:
                self.deposit(owner, earned, "interest")
'''
_ENTRIES = '''"""Entries of an account, and interest."""

RATE_PERCENT = $rate


class Entry:
    """An amount that was moved, and why."""

    def __init__(self, amount, text):
        self.amount, self.text = amount, text


def interest(balance):
    """A year's interest in cents, rounded down; none on debts."""
    return max(0, balance) * RATE_PERCENT // 100
'''
_TESTS = """import unittest

from $package.bank import Bank


class BankTest(unittest.TestCase):
    def setUp(self):
        self.bank = Bank(["ann", "bob"])
        self.bank.deposit("ann", 1000)

    def test_a_transfer_moves_money(self):
        self.bank.transfer("ann", "bob", 300)
        self.assertEqual(self.bank.balance("ann"), 700)
        self.assertEqual(self.bank.balance("bob"), 300)

    def test_amounts_are_positive(self):
        with self.assertRaises(ValueError):
            self.bank.deposit("ann", 0)

    def test_a_statement_has_all_lines(self):
        self.assertEqual(self.bank.statement("ann"), [(1000, "deposit", 1000)])


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = (
    "from $package.bank import Bank\nfrom $package.entries import interest\n"
    "b = Bank(['a', 'b'])\nb.deposit('a', 1000)\n"
)
PROJECT = Project(
    "ledger",
    "Accounts with transfers and statements.",
    {
        "package": ("bank_app", "ledger", "accounts"),
        "overdraft": ("0", "200", "500"),
        "rate": ("2", "3", "4"),
    },
    {"bank.py": _BANK, "entries.py": _ENTRIES},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "b.withdraw('a', 1000 + $overdraft)\nresult = b.balance('a')",
            "b.withdraw('a', 1001 + $overdraft)",
            "b.transfer('a', 'b', 400)\nresult = [b.statement('a'), b.statement('b')]",
            "try:\n    b.transfer('a', 'c', 5)\nexcept KeyError:\n    result = b.balance('a')",
            "try:\n    b.transfer('a', 'b', 9999)\nexcept ValueError:\n    result = b.balance('b')",
            "b.deposit('a', 5, 'gift')\nresult = [b.statement('a', 1), b.statement('a', 0)]",
            "b.deposit('a', 5)\nb.deposit('a', 6)\nresult = b.statement('a', 2)",
            "b.year_end()\nresult = [b.statement('a'), b.statement('b')]",
            "result = [interest(175), interest(-500), interest(0), interest(10000)]",
            "b.open('c')\nresult = [b.balance('c'), b.statement('c')]",
            "b.open('a')\nresult = b.balance('a')",
            "b.deposit('b', -5)",
            "b.withdraw('a', 0)",
            "result = [b.balance('a'), b.balance('b')]",
        )
    ),
    (
        Bug(
            "boundary",
            "bank.py",
            "- amount < -OVERDRAFT",
            "- amount <= -OVERDRAFT",
            "Cannot use the whole overdraft\n\nWith 1000 on the account and an overdraft of "
            "$overdraft, taking all of it is refused. One cent less works.",
        ),
        Bug(
            "condition",
            "bank.py",
            "        if target not in self.entries:\n            raise KeyError(target)\n",
            "",
            "Money is lost in transfers to nobody\n\nA transfer to a name without account fails "
            "with KeyError, which is right, but the money has left the first account.",
        ),
        Bug(
            "state",
            "bank.py",
            "        if owner in self.entries:\n"
            '            raise ValueError("there is one already")\n'
            "        self.entries[owner] = []",
            "        self.entries[owner] = []",
            "Opening an account again empties it\n\nOpening an account for an owner who has one "
            "should raise ValueError. Instead, all entries are gone.",
        ),
        Bug(
            "argument",
            "bank.py",
            'self.deposit(target, amount, f"from {source}")',
            'self.deposit(target, amount, f"from {target}")',
            "Statements name the wrong sender\n\nAfter a transfer from a to b, the statement of b "
            "says `from b`.",
        ),
        Bug(
            "missing case",
            "bank.py",
            "lines[-last:] if last > 0 else []",
            "lines[-last:]",
            "Asking for the last 0 lines gives all\n\n`statement(owner, 0)` should be an empty "
            "list. It is the whole statement.",
        ),
        Bug(
            "arithmetic",
            "entries.py",
            "* RATE_PERCENT // 100",
            "// 100 * RATE_PERCENT",
            "Interest is too low for odd balances\n\n175 cents at $rate percent are rounded to "
            "whole units before the rate is applied. Only the result should be rounded down.",
        ),
    ),
)
