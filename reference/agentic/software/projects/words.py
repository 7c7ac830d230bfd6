"""Counting the words of texts."""

from reference.agentic.software.project import Bug, Project

_COUNTS = '''"""How often words stand in texts."""

from $package.tokens import words

COMMON = ("the", "a", "of", "and")


class Counts:
    """Counts over all texts that were added."""

    def __init__(self, skip=COMMON):
        self.skip = skip
        self.texts = 0
        self.counts = {}

    def add(self, text):
        """Count a text's words."""
        self.texts += 1
        for word in words(text):
            if word not in self.skip:
                self.counts[word] = self.counts.get(word, 0) + 1

    def top(self, count=$top):
        """The most frequent words with their counts; of equal ones, the first by the alphabet."""
        rows = sorted(self.counts.items(), key=lambda row: (-row[1], row[0]))
        return rows[:count]

    def share(self, word):
        """The word's share of all counted words, from 0 to 1."""
        total = sum(self.counts.values())
        if total == 0:
            return 0.0
        return self.counts.get(word.lower(), 0) / total

    def merged(self, other):
        """New counts: the sum of both."""
        found = Counts(self.skip)
        found.texts = self.texts + other.texts
        found.counts = dict(self.counts)
        for word, count in other.counts.items():
            found.counts[word] = found.counts.get(word, 0) + count
        return found
'''
_TOKENS = '''"""Words of a text."""

SHORTEST = $shortest


def words(text):
    """The words in lower case, of at least SHORTEST letters; hyphens at the ends fall away."""
    found, word = [], ""
    for letter in text + " ":
        if letter.isalpha() or letter == "-":
            word += letter
            continue
        word = word.strip("-")
        if len(word) >= SHORTEST:
            found.append(word.lower())
        word = ""
    return found


def longest(text):
    """The longest word; the first of several; an empty text where there is none."""
    return max(words(text), key=len, default="")
'''
_TESTS = """import unittest

from $package.counts import Counts
from $package.tokens import longest, words


class WordsTest(unittest.TestCase):
    def test_words_are_lower_case(self):
        self.assertEqual(words("Green Tea"), ["green", "tea"])

    def test_counts_over_texts(self):
        counts = Counts()
        counts.add("tea and cake")
        counts.add("more tea")
        self.assertEqual(counts.counts["tea"], 2)
        self.assertEqual(counts.texts, 2)

    def test_the_longest_word(self):
        self.assertEqual(longest("some strawberries here"), "strawberries")


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = (
    "from $package.counts import Counts\nfrom $package.tokens import longest, words\nc = Counts()\n"
)
PROJECT = Project(
    "words",
    "Counting the words of texts.",
    {"package": ("wordbook", "textcount", "lexi"), "top": ("3", "5"), "shortest": ("2", "3")},
    {"counts.py": _COUNTS, "tokens.py": _TOKENS},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "result = words('x xy xyz wxyz, Wxyz')",
            "result = words('well-known - old -new- end')",
            "result = words('last word here')",
            "result = [words(''), longest(''), longest('abc abcd wxyz')]",
            "c.add('Tea the tea of and')\nresult = c.counts",
            "c.add('pear fig pear apple fig kiwi lime date')\nresult = c.top()",
            "c.add('pear fig pear apple fig kiwi lime date')\nresult = c.top(2)",
            "c.add('tea tea cake pie')\nresult = [c.share('tea'), c.share('Tea'), c.share('no')]",
            "result = [c.share('tea'), c.top()]",
            "c.add('tea')\ne = c.merged(c)\nresult = [e.counts, e.texts, c.counts]",
            "c.add('tea')\nd = Counts()\nd.add('pie')\nresult = [c.counts, d.counts]",
            "d = Counts(('tea',))\nd.add('tea the')\nresult = d.merged(c).counts",
        )
    ),
    (
        Bug(
            "boundary",
            "tokens.py",
            "len(word) >= SHORTEST",
            "len(word) > SHORTEST",
            "Words of exactly $shortest letters are missing\n\nThe shortest words to be counted "
            "have $shortest letters, but those of that length do not turn up.",
        ),
        Bug(
            "condition",
            "tokens.py",
            'for letter in text + " ":',
            "for letter in text:",
            "The last word is lost\n\nIn `last word here` only two words are found, unless the "
            "text ends with a full stop.",
        ),
        Bug(
            "state",
            "counts.py",
            "found.counts = dict(self.counts)",
            "found.counts = self.counts",
            "Merging changes the counts that it is called on\n\nAfter `e = c.merged(d)`, c has "
            "the counts of both. Merging should give new counts and leave both as they are.",
        ),
        Bug(
            "argument",
            "counts.py",
            "key=lambda row: (-row[1], row[0])",
            "key=lambda row: (row[0], -row[1])",
            "The top words come by the alphabet\n\n`top` should have the most frequent words "
            "first. It begins with words that stand only once.",
        ),
        Bug(
            "missing case",
            "counts.py",
            "        if total == 0:\n            return 0.0\n",
            "",
            "Share of a word fails before any text\n\nAsking new counts for the share of a word "
            "raises ZeroDivisionError. It should be 0.",
        ),
        Bug(
            "arithmetic",
            "counts.py",
            "total = sum(self.counts.values())",
            "total = len(self.counts)",
            "Shares add up to more than one\n\nIn `tea tea cake pie` the share of tea is said to "
            "be 0.67. It is half of all words.",
        ),
    ),
)
