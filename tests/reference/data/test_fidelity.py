"""Planted corruptions of rewritings: how many are caught, and how many good ones are refused.

Rewritings are those of the embedded generator, of towns whose eight sentences look alike: the case
for which the check was made. With a language model's freer sentences it will refuse more.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from reference.data.rephrase import judge, rewrite
from reference.data.spec import STYLES
from reference.generate.request import ChatRequest, Reply, Tokens
from reference.generate.rules import RuleGenerator
from reference.text.documents import cut, sentences
from reference.text.toy import towns

TOWNS = towns(60, 7)
STYLE_NAMES = ("plain", "lecture", "wikipedia", "reporter")
Corrupt = Callable[[str, int], str]


def rewritten(at: int) -> str:
    style = STYLES[STYLE_NAMES[at % len(STYLE_NAMES)]]
    return rewrite(TOWNS[at].text, style, RuleGenerator(), 64, seed=3).text


def another_number(text: str, at: int) -> str:
    year = TOWNS[at].facts[0].answer
    return text.replace(year, str(int(year) + 7))


def without_a_sentence(text: str, at: int) -> str:
    parts = sentences(text)
    return " ".join(part for place, part in enumerate(parts) if place != at % len(parts))


def negated(text: str, at: int) -> str:
    """A statement denied, or a denial taken back."""
    if at % 2:
        return re.sub(r"\b(not |never )", "", text, count=1)
    return text.replace(" was ", " was not ", 1)


def another_name(text: str, at: int) -> str:
    return text.replace(TOWNS[at].facts[1].answer, TOWNS[at - 1].facts[1].answer)


def with_an_invention(text: str, at: int) -> str:
    invented = (
        "Its bakery won seven prizes for rye loaves.",
        "A dragon slept beneath the northern watchtower for ages.",
        "The mayor later moved to Lisbon.",
    )
    return f"{text} {invented[at % 3]}"


KINDS: dict[str, Corrupt] = {
    "number": another_number,
    "sentence": without_a_sentence,
    "negation": negated,
    "name": another_name,
    "invention": with_an_invention,
}


def test_corruptions_are_caught_at_the_stated_precision_and_recall() -> None:
    """Recall of each kind at least 0.9, precision at least 0.95, with as many good as bad ones of
    each kind; the figures are printed."""
    good = [rewritten(at) for at in range(len(TOWNS))]
    refused = sum(bool(judge(TOWNS[at].text, text).faults) for at, text in enumerate(good))
    caught: dict[str, int] = {}
    for kind, corrupt in KINDS.items():
        bad = [corrupt(text, at) for at, text in enumerate(good)]
        assert all(one != other for one, other in zip(bad, good, strict=True))
        caught[kind] = sum(bool(judge(TOWNS[at].text, text).faults) for at, text in enumerate(bad))
    total = len(good)
    precision = {kind: count / max(1, count + refused) for kind, count in caught.items()}
    recall = {kind: count / total for kind, count in caught.items()}
    print(f"good refused {refused} of {total}; recall {recall}; precision {precision}")
    assert min(recall.values()) >= 0.9
    assert min(precision.values()) >= 0.95


def test_the_fault_names_what_is_wrong() -> None:
    source = "Ada met Bertil in Paris in 1902. They did not marry."
    assert judge(source, source).faults == ()
    assert judge(source, source.replace("1902", "1912")).faults == (
        "number invented: 1912",
        "number lost: 1902",
    )
    assert "name lost: Paris" in judge(source, source.replace("Paris", "London")).faults
    assert judge(source, source.replace(" not", "")).faults == ("negation: They did not marry",)
    assert "length: 0.50 of the source" not in judge(source, "Ada met.").faults
    assert any(fault.startswith("sentence lost") for fault in judge(source, "Ada met.").faults)


def test_shares_count_both_ways() -> None:
    found = judge("Alpha beta gamma delta.", "Alpha beta gamma omega zeta.")
    assert found.kept_terms == pytest.approx(3 / 4)
    assert found.novel_terms == pytest.approx(2 / 5)
    assert found.novel_grams == pytest.approx(2 / 3)
    assert found.lost_grams == pytest.approx(1 / 2)
    assert found.ratio == pytest.approx(5 / 4)


def test_of_a_translation_numbers_and_length_are_judged() -> None:
    source = "Anna hat 12 Kisten und kauft 3 weitere Kisten."
    assert judge(source, "Anna has 12 boxes and buys 3 more.", "translate").faults == ()
    faults = judge(source, "Anna has 12 boxes and buys 4 more.", "translate").faults
    assert faults == ("number invented: 4", "number lost: 3")


@pytest.mark.parametrize("words", [1, 7, 40, 1000])
def test_pieces_cover_the_text_in_order_and_fit(words: int) -> None:
    chance = random.Random(1)
    text = "\n".join(chance.sample([town.text for town in TOWNS], 3)) + "  word " * 50
    pieces = cut(text, words)
    assert "".join(text[begin:end] for begin, end in pieces) == text
    assert all(0 < len(text[begin:end].split()) <= words for begin, end in pieces)


def test_pieces_end_with_sentences_where_one_fits() -> None:
    for begin, end in cut(TOWNS[0].text, 40)[:-1]:
        assert TOWNS[0].text[begin:end].rstrip().endswith(".")


def test_later_pieces_are_asked_with_the_end_of_what_was_written() -> None:
    asked: list[ChatRequest] = []

    class Counting(RuleGenerator):
        def complete(self, request: ChatRequest) -> Reply:
            asked.append(request)
            return Reply(f"answer {len(asked)}.", (), Tokens(None, None), "stop")

    found = rewrite(TOWNS[0].text, STYLES["lecture"], Counting(), 30, 0)
    system, passage = asked[2].messages
    assert (system.role, passage.role) == ("system", "user")
    assert "Style: lecture." in system.content
    assert "<before>" not in asked[0].messages[1].content
    assert "<before>\nanswer 1. answer 2.\n</before>" in passage.content
    assert asked[2].metadata == {"kind": "rephrase", "style": "lecture"}
    assert asked[2].sampling.max_tokens == 120
    assert len({one.sampling.seed for one in asked}) == len(asked)
    assert found.text.splitlines() == [f"answer {at + 1}." for at in range(len(asked))]
    begin, end = found.pieces[1][2:]
    assert found.text[begin:end] == "answer 2."


def test_sentences_keep_titles_and_initials_together() -> None:
    text = "Dr. Vik met J. Smith. He left! 12 came (twice.) Then\nnothing"
    assert sentences(text) == [
        "Dr. Vik met J. Smith.",
        "He left!",
        "12 came (twice.)",
        "Then",
        "nothing",
    ]
