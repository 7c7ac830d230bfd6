"""Problems on texts."""

from __future__ import annotations

from random import Random

from reference.agentic.code.kind import Arguments, Kind


def _letters(draw: Random, alphabet: str = "abc", most: int = 10) -> str:
    return "".join(draw.choice(alphabet) for _ in range(draw.randint(0, most)))


def _words(draw: Random) -> Arguments:
    chosen = [draw.choice(("red", "tea", "Ant", "be", "stone", "to")) for _ in range(7)]
    return (" ".join(chosen[: draw.randint(0, 7)]),)


def _brackets(draw: Random) -> Arguments:
    text, waiting = "", []
    for _ in range(draw.randint(0, 10)):
        if waiting and draw.random() < 0.5:
            text += waiting.pop()
        else:
            pair = draw.choice(("()", "[]", "{}"))
            text, _unused = text + pair[0], waiting.append(pair[1])
    text += "".join(reversed(waiting))
    at = draw.randint(0, max(0, len(text) - 1))
    return (text if draw.random() < 0.6 else text[:at] + text[at + 1 :],)


def _written(draw: Random) -> Arguments:
    return (
        "".join(f"{draw.choice('abcx')}{draw.randint(1, 12)}" for _ in range(draw.randint(0, 5))),
    )


def _path(draw: Random) -> Arguments:
    parts = [draw.choice(("a", "b", "..", ".", "", "cd")) for _ in range(draw.randint(0, 8))]
    return ("/" + "/".join(parts),)


KINDS = (
    Kind(
        "count_vowels",
        1,
        ("texts", "counting"),
        "(text: str) -> int",
        "Return how many letters of a text are one of `$letters`, in upper or lower case.",
        """    return sum(1 for letter in text.lower() if letter in "$letters")
""",
        lambda draw: (_letters(draw, "aeiouAEIOUxyzB ", 20),),
        (("",), ("AEIOU",), ("xyz",), ("aeiou",), ("Oboe",)),
        (("text.lower()", "text"), ("sum(1", "sum(2"), ("text.lower()", "set(text.lower())")),
        {"letters": ("aeiou", "aeo", "aeiouy")},
    ),
    Kind(
        "is_palindrome",
        1,
        ("texts",),
        "(text: str) -> bool",
        "Return whether a text reads the same from both ends, where only letters and digits count "
        "and upper and lower case are the same. A text without any is one.",
        """    kept = [one for one in text.lower() if one.isalnum()]
    return kept == kept[::-1]
""",
        lambda draw: (
            (half := _letters(draw, "abA ", 4)) + draw.choice(("", "b", ", ", "xa")) + half[::-1],
        ),
        (
            ("",),
            ("a",),
            ("ab",),
            ("A man, a plan, a canal: Panama",),
            ("Aa",),
            ("a1",),
            (", ",),
            ("x, y",),
        ),
        (
            ("text.lower()", "text"),
            (" if one.isalnum()", ""),
            ("one.isalnum()", "one.isalpha()"),
        ),
    ),
    Kind(
        "run_lengths",
        2,
        ("texts", "coding"),
        "(text: str) -> str",
        "Write each run of equal letters as the letter and the length of the run: `aab` becomes "
        "`a2b1`.",
        """    found, at = "", 0
    while at < len(text):
        end = at
        while end < len(text) and text[end] == text[at]:
            end += 1
        found += text[at] + str(end - at)
        at = end
    return found
""",
        lambda draw: (_letters(draw, "aab", 16),),
        (("",), ("a",), ("aaaaaaaaaaaa",), ("abc",), ("aabba",)),
        (
            ("str(end - at)", "(str(end - at) if end - at > 1 else '')"),
            ("str(end - at)", "str(end - at)[-1]"),
            ("text[at] + str", "text[at - 1] + str"),
        ),
    ),
    Kind(
        "expand_runs",
        2,
        ("texts", "coding"),
        "(text: str) -> str",
        "A text holds letters, each followed by a positive whole number. Return the text where "
        "each letter stands as often as its number says: `a2b1` becomes `aab`.",
        """    import re
    return "".join(one * int(times) for one, times in re.findall(r"([a-z])([0-9]+)", text))
""",
        _written,
        (("",), ("a1",), ("a12",), ("a2b1",), ("a1a2",)),
        (("[0-9]+", "[0-9]"), ("int(times)", "max(2, int(times))"), ("[a-z]", "[a-c]")),
    ),
    Kind(
        "balanced",
        3,
        ("texts", "stacks"),
        "(text: str) -> bool",
        "A text holds only the brackets `()[]{}`. Return whether each is closed by one of its own "
        "kind, in the right order.",
        """    waiting = []
    for one in text:
        if one in "([{":
            waiting.append(")]}"["([{".index(one)])
        elif not waiting or waiting.pop() != one:
            return False
    return not waiting
""",
        _brackets,
        (("",), ("(",), (")",), ("([)]",), ("()[]{}",), ("{[()]}",), ("(()",), ("())",)),
        (
            ("return not waiting", "return True"),
            ("not waiting or waiting.pop() != one", "not waiting or not waiting.pop()"),
            ("return False", "return not waiting"),
        ),
    ),
    Kind(
        "shift_letters",
        2,
        ("texts", "coding"),
        "(text: str) -> str",
        "Replace each letter from `a` to `z` by the one $places places later in the alphabet, "
        "where `a` follows `z`; upper-case letters in the same way. All else stays.",
        """    found = ""
    for one in text:
        if one.isascii() and one.isalpha():
            first = ord("a") if one.islower() else ord("A")
            one = chr((ord(one) - first + $places) % 26 + first)
        found += one
    return found
""",
        lambda draw: (_letters(draw, "abyzABYZ 1,", 14),),
        (("",), ("xyz",), ("XYZ",), ("Hello, World 1",)),
        (
            ("% 26 ", ""),
            ('if one.islower() else ord("A")', ""),
            ("one.isascii() and one.isalpha()", "one != ' '"),
        ),
        {"places": (3, 5, 13, 11)},
    ),
    Kind(
        "reverse_words",
        1,
        ("texts",),
        "(text: str) -> str",
        "Words are separated by single spaces. Return the text with the letters of each word of "
        "at least $least letters reversed, and the words in their old order.",
        """    return " ".join(one[::-1] if len(one) >= $least else one for one in text.split(" "))
""",
        _words,
        (("",), ("red",), ("stone be",), ("to be or not",)),
        ((">= $least", "> $least"), (">= $least", ">= 0 and True"), ("one[::-1]", "one.upper()")),
        {"least": (3,)},
    ),
    Kind(
        "most_common_word",
        2,
        ("texts", "counting"),
        "(text: str) -> str",
        "Words are separated by single spaces; upper and lower case are the same. Return the word "
        "that stands most often, in lower case; of several, the first by the alphabet. A text "
        "without words gives an empty text.",
        """    words = text.lower().split()
    return min(words, key=lambda one: (-words.count(one), one), default="")
""",
        _words,
        (("",), ("b a",), ("Ant ant be",), ("b b a",), ("to to be be",), ("a B b",)),
        (
            ("text.lower()", "text"),
            ("(-words.count(one), one)", "-words.count(one)"),
            ("-words", "words"),
        ),
    ),
    Kind(
        "edit_distance",
        4,
        ("texts", "dynamic programming"),
        "(left: str, right: str) -> int",
        "Return the smallest number of letters to insert, delete or replace that turns one text "
        "into the other.",
        """    row = list(range(len(right) + 1))
    for at, one in enumerate(left, 1):
        last, row[0] = row[0], at
        for to, other in enumerate(right, 1):
            kept = last + (one != other)
            last = row[to]
            row[to] = min(kept, row[to] + 1, row[to - 1] + 1)
    return row[-1]
""",
        lambda draw: (_letters(draw, most=7), _letters(draw, most=7)),
        (("", ""), ("abc", ""), ("", "ab"), ("abc", "acb"), ("kitten", "sitting"), ("aa", "a")),
        (
            ("(one != other)", "2 * (one != other)"),
            (", row[to - 1] + 1)", ")"),
            ("row[0] = row[0], at", "row[0] = row[0], 0"),
        ),
    ),
    Kind(
        "shared_sequence",
        4,
        ("texts", "dynamic programming"),
        "(left: str, right: str) -> int",
        "Return the length of the longest text that is left of both texts when any of their "
        "letters are taken out.",
        """    row = [0] * (len(right) + 1)
    for one in left:
        last = 0
        for to, other in enumerate(right, 1):
            kept = last + 1 if one == other else max(row[to], row[to - 1])
            last, row[to] = row[to], kept
    return row[-1]
""",
        lambda draw: (_letters(draw, most=9), _letters(draw, most=9)),
        (("", ""), ("abc", ""), ("abc", "abc"), ("abc", "cba"), ("aab", "ab"), ("abcab", "bab")),
        (
            (
                "last + 1 if one == other else max(row[to], row[to - 1])",
                "last + 1 if one == other else 0",
            ),
            ("max(row[to], row[to - 1])", "row[to]"),
            ("last, row[to] = row[to], kept", "row[to] = last = kept"),
        ),
    ),
    Kind(
        "simple_path",
        3,
        ("texts", "stacks"),
        "(path: str) -> str",
        "A path begins with `/`. Return it without `.`, without doubled slashes and without a "
        "slash at its end, where `..` takes away the part before it, if there is one. The top is "
        "`/`.",
        """    parts = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
""",
        _path,
        (("/",), ("/..",), ("/a/./b/",), ("//a//b",), ("/a/../..",), ("/a/b/..",)),
        (
            ("del parts[-1:]", "del parts[:]"),
            ('("", ".")', '("",)'),
            ('return "/" + ', "return "),
        ),
    ),
)
