"""Each rule breaks on a text made for it alone, and on no ordinary one."""

from __future__ import annotations

import pytest

from reference.data.quality import OF_DOMAIN, RULES, Text, good, rules_of
from reference.data.spec import SourceSpec
from reference.data.stage import Dropped, Record
from twin.errors import UsageError

PLAIN = (
    "The town lies where two rivers meet, and its oldest houses stand on the northern bank. "
    "Merchants came early with salt, which was carried over the hills to be sold in the south.\n"
    "After a great fire most of the streets were laid out again, wider than they had been before. "
    "Nobody knows who drew the plan, but it is thought that a bridge builder was asked for help.\n"
    "Today visitors walk along the walls, look at the harbour, and have lunch with a view of it."
)
WORDS = [f"word{chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(200)]
LONG = " ".join(WORDS)
BROKEN = {
    "gopher-length": "Too few words to be of any use.",
    "gopher-word-length": "to be of it " * 20,
    "gopher-symbols": " # ".join(WORDS[:60]),
    "gopher-bullets": "\n".join(f"- {word}" for word in WORDS[:60]),
    "gopher-ellipses": "\n".join(f"{word} ..." for word in WORDS[:60]),
    "gopher-letters": PLAIN + " 12 34 56 78" * 12,
    "gopher-stop-words": LONG,
    "gopher-repeated-lines": "\n".join(["a line that comes again"] * 4 + WORDS[:5]),
    "gopher-repeated-paragraphs": "\n\n".join(["a part that comes again"] * 4 + WORDS[:5]),
    "gopher-top-grams": " ".join(f"buy cheap {word}" for word in WORDS[:60]),
    "gopher-repeated-grams": f"{' '.join(WORDS[:30])} {' '.join(WORDS[:30])} {PLAIN}",
    "c4-placeholder": f"{PLAIN} Lorem ipsum dolor sit amet.",
    "c4-braces": f"{PLAIN} function () {{ return; }}",
    "c4-sentences": "One sentence alone.",
    "fineweb-line-ends": "\n".join(WORDS[:60]),
    "fineweb-line-copies": "\n".join(["a line that comes again"] * 2 + WORDS[:10]),
    "fineweb-short-lines": "\n".join(f"{word}." for word in WORDS[:60]),
    "codex-long-lines": "x = 1\n" + "y" * 1001,
    "stack-alphanumeric": "{}[]();" * 30,
}


def test_there_is_a_broken_text_for_every_rule() -> None:
    assert BROKEN.keys() == RULES.keys()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_breaks_on_its_text_and_not_on_a_plain_one(name: str) -> None:
    assert RULES[name](Text(BROKEN[name]))
    assert not RULES[name](Text(PLAIN.replace(". ", ".\n")))


def test_thresholds_are_where_their_papers_put_them() -> None:
    """Gopher: 50 words; C4: three sentences; FineWeb: more than 12 % of lines with a mark."""
    assert RULES["gopher-length"](Text("word " * 49))
    assert not RULES["gopher-length"](Text("word " * 50))
    assert not RULES["c4-sentences"](Text("One. Two. Three."))
    lines = ["a line without one"] * 22 + ["a line with one."] * 3
    assert RULES["fineweb-line-ends"](Text("\n".join(lines)))
    assert not RULES["fineweb-line-ends"](Text("\n".join([*lines, "and another."])))


def test_a_document_is_counted_under_the_first_rule_that_it_breaks() -> None:
    records = [Record("a", "s", "web", PLAIN), Record("b", "s", "web", "Short.")]
    source = SourceSpec(name="s", domain="web", path=("x",))
    kept, lost = good(records, {"s": rules_of(source)})
    assert kept == records[0]
    assert lost == Dropped("s", "gopher-length", "b")


def test_an_unknown_rule_is_refused_and_domains_name_known_ones() -> None:
    with pytest.raises(UsageError, match="TW471"):
        rules_of(SourceSpec(name="s", domain="web", path=("x",), rules=("nice",)))
    assert all(name in RULES for names in OF_DOMAIN.values() for name in names)
