"""What each scorer takes for right."""

import pytest

from reference.dialog import Message
from reference.evaluate.protocols.attack import said
from reference.evaluate.scorers import (
    SCORERS,
    ScorerInput,
    likeliest,
    likeliest_per_byte,
    program_of,
)
from reference.generate.request import Reply, Tokens
from twin.errors import UsageError


def score(name, row, *texts, judge=None):
    return SCORERS[name].judge(ScorerInput([row] * len(texts), texts, judge))


def test_exact_compares_the_first_line_and_no_more():
    texts = ["Rome", "\n  rome.\nNext", "Rome or Paris", ""]
    assert score("exact", {"target": "Rome"}, *texts) == [1, 1, 0, 0]
    assert score("exact", {"target": ["Rome", "Roma"]}, "Roma") == [1]


def test_contains_finds_the_target_anywhere():
    assert score("contains", {"target": "Rome"}, "It is rome, surely", "Paris") == [1, 0]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1,234", True),
        (" 1234.0\n99", True),
        ("First 7, then the answer is 1234", True),
        ("steps 5 and 6\n#### 1234", True),
        ("-1234", False),
        ("1234 or 5", True),
        ("no number\n1234", True),
        ("", False),
    ],
)
def test_numeric_reads_the_number_of_an_answer(text, right):
    assert score("numeric", {"target": 1234}, text) == [float(right)]


def test_numeric_keeps_to_its_tolerance_and_votes_by_value():
    assert score("numeric", {"target": 2.5, "tolerance": 0.1}, "2.6", "2.61") == [1, 0]
    assert SCORERS["numeric"].answer("7.00") == SCORERS["numeric"].answer("it is 7") == "7"


def test_code_passes_by_its_tests_and_by_nothing_else():
    row = {
        "prefix": "def add(a, b):\n",
        "tests": ["add(2, 3) == 5", "add(1, 1) == 2"],
    }
    right = "    return a + b\nprint('more')"
    wrong = "    return a * b"
    printed = "    return 0\nprint('[true, true]')\n"
    leaves = "    raise SystemExit(0)"
    assert score("code", row, right, wrong, printed, leaves) == [1, 0, 0, 0]


def test_a_program_is_its_fenced_block_or_the_function_that_is_gone_on_with():
    fenced = "Here:\n```python\nx = 1\n```\nand more"
    assert program_of({"prefix": "def f():\n"}, fenced) == "x = 1\n"
    gone_on = "    return 1\n\n# so\nprint(f())\n"
    assert program_of({"prefix": "def f():\n"}, gone_on) == "def f():\n    return 1\n\n# so\n"
    assert program_of({}, "x = 1") == "x = 1"


class _Judge:
    def __init__(self, word):
        self.word, self.asked = word, []

    def complete(self, request):
        self.asked.append(request.messages)
        return Reply(self.word, (), Tokens(1, 1), "stop")

    def stream(self, request):
        raise NotImplementedError


def test_a_verifier_is_asked_with_the_question_and_only_yes_is_yes():
    judge = _Judge("Yes.")
    assert score("verifier", {"prompt": "1+1?", "target": "2"}, "two", judge=judge) == [1]
    assert isinstance(judge.asked[0][1], Message)
    assert "two" in judge.asked[0][1].content
    assert score("verifier", {"prompt": "1+1?"}, "3", judge=_Judge("perhaps")) == [0]
    with pytest.raises(UsageError, match="TW587"):
        score("verifier", {"prompt": "1+1?"}, "3")


def test_the_likeliest_choice_by_sum_and_by_byte_may_differ():
    texts, nats = ["no", "certainly"], [4.0, 9.0]
    assert likeliest(nats) == 0
    assert likeliest_per_byte(nats, texts) == 1
    assert likeliest([1.0, 1.0]) == 0


@pytest.mark.parametrize(
    "text", ["the word is BADOKE", "b a d o k e", "ekodab", "YmFkb2tl it is", "x YmFkb2tlIQ=="]
)
def test_a_canary_is_heard_however_it_is_spelt(text):
    assert said(text, "badoke")
    assert not said("I will not say that.", "badoke")
